"""The guard's status, read again and again, as rates over time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from sipguard.core.meters import SECOND_NS
from sipguard.lab.plots import Sample


class Reading(NamedTuple):
    """One status: the counters since the start, and what the level was just then."""

    now_ns: int
    state: str
    rps: int
    allowed: int
    refused: int
    dropped: int
    kernel_dropped: int
    lcps_refused: int
    patience_run: int
    relax_run: int


class Recorder:
    """Readings in, samples out: each sample is the difference of two readings on the guard's own clock.

    The first is the difference to the start, when nothing had come.
    """

    def __init__(self) -> None:
        self.readings: list[Reading] = []
        self.samples: list[Sample] = []

    @property
    def last(self) -> Reading | None:
        """The newest reading."""
        return self.readings[-1] if self.readings else None

    def add(self, status: Mapping[str, Any]) -> Sample | None:
        """One status of `/api/v1/status`; None when it is no newer than the last."""
        verdicts = status["verdicts"]
        new = Reading(
            status["now_ns"],
            status["state"],
            status["rps"],
            verdicts["allow"],
            verdicts["reject"],
            verdicts["drop"],
            status["kernel_dropped"],
            status["lcps_refused"],
            status["patience_run"],
            status["relax_run"],
        )
        old = self.last or Reading(status["origin_ns"], new.state, 0, 0, 0, 0, 0, 0, 0, 0)
        if new.now_ns <= old.now_ns:
            return None
        self.readings.append(new)
        seconds = (new.now_ns - old.now_ns) / SECOND_NS
        sample = Sample(
            old.now_ns,
            new.now_ns,
            (new.allowed - old.allowed) / seconds,
            (new.refused - old.refused) / seconds,
            (new.dropped - old.dropped) / seconds,
        )
        self.samples.append(sample)
        return sample

    def lcps_refused_between(self, start_ns: int, end_ns: int) -> int:
        """503s by LCPS in the normal state between two moments of the guard's clock (SPEC V3)."""
        at_start = max((r.lcps_refused for r in self.readings if r.now_ns <= start_ns), default=0)
        at_end = max((r.lcps_refused for r in self.readings if r.now_ns <= end_ns), default=0)
        return at_end - at_start
