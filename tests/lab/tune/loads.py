"""Loads for the tests of tune: made by rule, none read from outside."""

from __future__ import annotations

from collections.abc import Iterable

from sipguard.core.policy import Policy
from sipguard.lab.replay import Event
from sipguard.lab.tune.recording import Recorder, Recording

MS = 1_000_000


def events(rows: Iterable[tuple[float, str, int]]) -> list[Event]:
    """Rows of (time ms, method, how many)."""
    return [Event(round(at_ms * MS), method, n, f"{at_ms}") for at_ms, method, n in rows]


def recorded(rows: Iterable[Event], policy: Policy | None = None, until_ns: int | None = None) -> Recording:
    recorder = Recorder(policy or Policy())
    recorder.run_events(rows)
    recorder.close(until_ns)
    return recorder.recording()


def steps(*rates: tuple[int, int], method: str = "INVITE") -> list[tuple[float, str, int]]:
    """(for so many s, requests/s) one after another, evenly spaced."""
    rows: list[tuple[float, str, int]] = []
    begin_s = 0
    for length_s, rate in rates:
        rows += [(1000 * (begin_s + i / rate), method, 1) for i in range(length_s * rate)]
        begin_s += length_s
    return rows
