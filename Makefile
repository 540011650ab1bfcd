# Two commands on a fresh machine with Python 3.11 or later: `make demo` and `make test`. Each does its own set-up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test check bench bench-lab run peers clean help

help:
	@echo "make demo   the guard, its embedded server and a load, on loopback, ~30 s, with a picture at the end"
	@echo "make test   all tests (installs sipp and Kamailio by apt where it is root on Debian)"
	@echo "make check  ruff, mypy --strict, import contracts"
	@echo "make bench  CPU microseconds per message, beside Kamailio in the same run"
	@echo "make bench-lab  packets per second of replay beside dpkt, CPU of simulate, time of tune"
	@echo "make run    the guard on 127.0.0.1:5060 (UDP and TCP), answering by itself; admin on 127.0.0.1:8060"

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("sipguard needs Python 3.11 or later, this is " + sys.version.split()[0] + "; say PYTHON=python3.x" if sys.version_info < (3, 11) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -c constraints.txt hatchling editables
	$(BIN)/python -m pip install -q -c constraints.txt --no-build-isolation -e '.[tune]'
	$(BIN)/python -m pip install -q -c constraints.txt coverage dpkt hypothesis import-linter mypy pytest pytest-timeout ruff
	touch $@

demo: $(STAMP)
	$(BIN)/sipguard demo

bench-lab: $(STAMP)
	$(BIN)/python bench/lab.py

run: $(STAMP)
	$(BIN)/sipguard run --listen udp:127.0.0.1:5060 --listen tcp:127.0.0.1:5060 --admin 127.0.0.1:8060

peers:
	scripts/install-peers

test: $(STAMP) peers
	$(BIN)/python -m pytest

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(STAMP) peers
	$(BIN)/python bench/run.py

clean:
	rm -rf $(VENV) out build dist .mypy_cache .ruff_cache .hypothesis .import_linter_cache
