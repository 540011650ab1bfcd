"""The demonstration itself, as `sipguard demo` runs it: real processes, real sockets (issue 2, section 1)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAM = [sys.executable, "-m", "sipguard", "demo", "--no-live"]


def descendants(pid: int) -> set[int]:
    """The processes below one, as the kernel tells it."""
    found: set[int] = set()
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            found |= {int(child)} | descendants(int(child))
    return found


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_the_whole_walk(tmp_path: Path) -> None:
    """Exit 0, the states in order with the figures of SPEC L1, L2, L5, the LCPS cut of V3, a picture, a table."""
    done = subprocess.run(
        [*PROGRAM, "--out", str(tmp_path / "out")], capture_output=True, text=True, check=False, timeout=110
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    picture = tmp_path / "out" / "demo.png"
    assert f"picture: {picture}" in done.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")
    events = [json.loads(line) for line in (tmp_path / "out" / "guard.log").read_text().splitlines()]
    states = [event for event in events if event["event"] == "state"]
    visited = [event["to"] for event in states]
    at_drop = visited.index("critical_limit")
    assert "around_critical_limit" in visited[:at_drop]
    assert "normal" in visited[at_drop:]
    assert states[at_drop]["patience_run"] == 25
    assert events[-1]["event"] == "stop"
    verdicts = events[-1]["verdicts"]
    assert events[-1]["requests"] == sum(verdicts.values())
    assert min(verdicts.values()) > 0
    for state in ("normal", "around_critical_limit", "critical_limit"):
        assert f"│ {state}" in done.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_nothing_running(number: signal.Signals, tmp_path: Path) -> None:
    with subprocess.Popen(
        [*PROGRAM, "--out", str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        deadline_s = time.monotonic() + 40
        while len(children := descendants(process.pid)) < 2 and time.monotonic() < deadline_s:
            time.sleep(0.05)
        time.sleep(1.0)
        os.kill(process.pid, number)
        output = process.communicate(timeout=30)[0]
    assert process.returncode == 128 + number, output
    assert "nothing is left running" in output
    assert len(children) == 2
    assert [pid for pid in children if alive(pid)] == []


def test_a_guard_that_dies_ends_the_demonstration(tmp_path: Path) -> None:
    with subprocess.Popen(
        [*PROGRAM, "--out", str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        deadline_s = time.monotonic() + 40
        while len(children := descendants(process.pid)) < 2 and time.monotonic() < deadline_s:
            time.sleep(0.05)
        guard = next(pid for pid in children if b"\0run\0" in Path(f"/proc/{pid}/cmdline").read_bytes())
        os.kill(guard, signal.SIGKILL)
        output = process.communicate(timeout=30)[0]
    assert process.returncode == 1, output
    assert "the guard ended by itself (code -9)" in output
    assert "Traceback" not in output
    assert [pid for pid in children if alive(pid)] == []


def test_a_guard_that_cannot_start_is_told(tmp_path: Path) -> None:
    """The child's own words, exit 1, no traceback."""
    script = (
        "import sys; from pathlib import Path; from sipguard.demo import process, run\n"
        "process.sys = type('S', (), {'executable': '/bin/false'})\n"
        f"sys.exit(run.run_demo(Path({str(tmp_path / 'out')!r}), live=False))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "the guard did not start" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_an_output_that_cannot_be_written_is_2(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = subprocess.run(
        [*PROGRAM, "--out", str(tmp_path / "file" / "out")], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 2
    assert "out = " in done.stdout
