"""One structured line per state change (issue 2 §5)."""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
from typing import Any

from sipguard import OverloadController, Parameters
from sipguard.manage.log import MAX_LINE, EventLog

WALL_NS = 1_700_000_000_123_456_789


def log_to(stream: Any, now_ns: int = 0) -> EventLog:
    return EventLog(stream, monotonic_ns=lambda: now_ns, wall_ns=lambda: WALL_NS)


def test_a_change_carries_the_figures_that_made_it() -> None:
    """SPEC L1, L2: from the controller itself, time by the wall clock of the change and not of the writing."""
    controller = OverloadController(Parameters(LC=100, LCPS=10000, PC=2, TR=100))
    for time_ms in (0, 100, 200):
        controller.admit_many("INVITE", 30, now_ns=time_ms * 10**6)
    controller.advance(now_ns=300 * 10**6)
    stream = io.StringIO()
    log = log_to(stream, now_ns=1_300_000_000)
    for change in controller.changes():
        log.state(change, shadow=True)
    entry, escalation = map(json.loads, stream.getvalue().splitlines())
    assert entry == {
        "event": "state",
        "time_ns": 100_000_000,
        "at": "2023-11-14T22:13:18.923Z",
        "from": "normal",
        "to": "around_critical_limit",
        "rps": 300,
        "lc": 100,
        "patience_run": 0,
        "relax_run": 0,
        "cause": "level",
        "shadow": True,
    }
    assert (escalation["to"], escalation["patience_run"], escalation["time_ns"]) == ("critical_limit", 2, 300_000_000)
    assert escalation["at"] == "2023-11-14T22:13:19.123Z"


def test_every_event_is_one_json_line() -> None:
    stream = io.StringIO()
    log = log_to(stream)
    log.start(version="0.1.0", parameters={"LC": 1})
    log.ready(listeners=["udp:127.0.0.1:5060"])
    log.warning("receive buffer\nof 4 MiB not granted", granted=1)
    log.stop(reason="SIGTERM")
    records = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [record["event"] for record in records] == ["start", "ready", "warning", "stop"]
    assert all(record["at"] == "2023-11-14T22:13:20.123Z" for record in records)
    assert records[2]["text"] == "receive buffer\nof 4 MiB not granted"


def test_a_line_longer_than_a_pipe_takes_at_once_is_cut() -> None:
    stream = io.StringIO()
    log_to(stream).start(huge="x" * 10_000)
    (line,) = stream.getvalue().splitlines()
    assert len(line) < MAX_LINE
    assert json.loads(line)["cut"].startswith('{"event": "start"')


def test_a_reader_that_does_not_read_loses_lines_and_the_guard_no_time() -> None:
    """DESIGN §2: a port says which way it fails. A blocking write here would hang this test."""
    read_end, write_end = os.pipe()
    fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, 4096)
    with os.fdopen(write_end, "w") as stream, os.fdopen(read_end, "rb", buffering=0) as reader:
        log = log_to(stream)
        for _ in range(100):
            log.warning("x" * 1000)
        lost = log.lost
        assert 90 <= lost < 100
        while len(reader.read(65536)) == 65536:
            pass
        log.ready()
        assert json.loads(reader.read(65536))["lost"] == lost
        log.stop()
        assert "lost" not in json.loads(reader.read(65536))


def test_a_closed_stderr_does_not_end_the_guard() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    stream = os.fdopen(write_end, "w")
    log = log_to(stream)
    log.ready()
    assert log.lost == 1
    with contextlib.suppress(BrokenPipeError):
        stream.close()
    log.ready()
    assert log.lost == 2
