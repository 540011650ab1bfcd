"""`sipguard run` as a process: it serves, tells its state, ends when told (issue 2 §5)."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sipguard import __version__
from sipguard.cli.status import fetch
from tests.cli.sipguard_command import sipguard

OPTIONS = (
    "OPTIONS sip:guard.example.org SIP/2.0\r\n"
    "Via: SIP/2.0/UDP 127.0.0.1:{port};rport;branch=z9hG4bK-cli-{n}\r\n"
    "Max-Forwards: 70\r\nFrom: <sip:a@example.org>;tag=a{n}\r\nTo: <sip:guard.example.org>\r\n"
    "Call-ID: cli-{n}@example.org\r\nCSeq: {n} OPTIONS\r\nContent-Length: 0\r\n\r\n"
)


class Running:
    """A guard on free ports of 127.0.0.1: its log lines so far, its addresses."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.records: list[dict[str, Any]] = []
        ready = self.until("ready")
        self.admin: str = ready["admin"]
        self.port = int(ready["listen"][0].rsplit(":", 1)[1])

    def until(self, event: str, **fields: object) -> dict[str, Any]:
        """The next line of this event with these fields; fails at the end of the log."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            record: dict[str, Any] = json.loads(line)
            self.records.append(record)
            if record["event"] == event and fields.items() <= record.items():
                return record
        raise AssertionError(f"no {event} {fields} in {self.records}")


@contextmanager
def running(tmp_path: Path, *flags: str) -> Iterator[Running]:
    sockets = ("--listen", "udp:127.0.0.1:0", "--listen", "tcp:127.0.0.1:0", "--admin", "127.0.0.1:0")
    process = subprocess.Popen(
        [sys.executable, "-m", "sipguard", "run", *sockets, "--state-dir", str(tmp_path), *flags],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "NO_COLOR": "1"},
    )
    try:
        yield Running(process)
    finally:
        process.terminate()
        try:
            process.wait(timeout=20)
        finally:
            process.kill()
            if process.stderr is not None:
                process.stderr.close()


def status_when(guard: Running, **figures: object) -> dict[str, Any]:
    """The status as soon as it has these figures, or as it is after ten seconds."""
    host, port = guard.admin.split(":")
    until_s = time.monotonic() + 10
    while True:
        status = fetch(host, int(port))
        if figures.items() <= status.items() or time.monotonic() > until_s:
            return status
        time.sleep(0.05)


def send_options(guard: Running, n: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        sock.connect(("127.0.0.1", guard.port))
        for number in range(1, n + 1):
            sock.send(OPTIONS.format(port=sock.getsockname()[1], n=number).encode())


def test_it_serves_tells_and_ends(tmp_path: Path) -> None:
    with running(tmp_path, "--tr", "600", "--lcps", "10000") as guard:
        assert [record["event"] for record in guard.records] == ["start", "warning", "ready"]
        assert guard.records[0]["parameters"]["TR"] == 600
        assert guard.records[1]["text"].startswith("TR = 600: ")
        send_options(guard, 5)
        status = status_when(guard, requests={"OPTIONS": 5})
        assert status["verdicts"] == {"allow": 5, "reject": 0, "drop": 0}
        assert status["version"] == __version__
        shown = sipguard("status", "--admin", guard.admin)
        assert (shown.code, shown.err) == (0, "")
        assert "OPTIONS 5" in shown.out
        guard.process.send_signal(signal.SIGTERM)
        stop = guard.until("stop")
        assert stop["verdicts"] == {"allow": 5, "reject": 0, "drop": 0}
        assert guard.process.wait(timeout=20) == 0
    assert sipguard("status", "--admin", guard.admin).code == 1


def test_a_change_of_state_is_one_line_with_its_figures_and_all_of_it_is_in_the_metrics(tmp_path: Path) -> None:
    """SPEC L1, L5; M1: 300 requests reach it within 1 s, so at least one window of 100 ms has more than LC 100 / 10."""
    with running(
        tmp_path, "--lc", "100", "--lcps", "10000", "--lcdm", "denial_only", "--lrc", "2", "--tr", "100"
    ) as guard:
        send_options(guard, 300)
        entry = guard.until("state", to="around_critical_limit")
        assert (entry["from"], entry["cause"], entry["lc"], entry["shadow"]) == ("normal", "level", 100, False)
        assert entry["rps"] > 100
        back = guard.until("state", to="normal")
        assert (back["from"], back["relax_run"]) == ("around_critical_limit", 2)
        origin_ns = status_when(guard)["origin_ns"]
        assert (entry["time_ns"] - origin_ns) % 100_000_000 == 0
        assert (back["time_ns"] - entry["time_ns"]) % 100_000_000 == 0
        text = page(guard, "/metrics")
        samples = {
            (s.name, *s.labels.values()): s.value for f in text_string_to_metric_families(text) for s in f.samples
        }
        status = status_when(guard)
        assert samples["sipguard_state", "normal"] == 1
        assert samples["sipguard_requests_total", "OPTIONS"] == sum(status["verdicts"].values()) == 300
        assert page(guard, "/readyz") == "ready\n"


def page(guard: Running, path: str) -> str:
    host, port = guard.admin.split(":")
    with socket.create_connection((host, int(port)), timeout=10) as sock:
        sock.sendall(f"GET {path} HTTP/1.1\r\nHost: {guard.admin}\r\n\r\n".encode())
        parts = []
        while part := sock.recv(65536):
            parts.append(part)
    return b"".join(parts).partition(b"\r\n\r\n")[2].decode()


def test_a_taken_address_is_exit_2_with_its_name(tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"udp:127.0.0.1:{taken.getsockname()[1]}"
        ran = sipguard("run", "--listen", address, "--state-dir", tmp_path)
    assert ran.code == 2
    assert address in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_either_signal_ends_it_with_0(tmp_path: Path, number: signal.Signals) -> None:
    with running(tmp_path) as guard:
        guard.process.send_signal(number)
        assert guard.process.wait(timeout=20) == 0
