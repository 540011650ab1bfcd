"""Each stay out of the normal state: when, how high, and what it cost."""

from __future__ import annotations

from typing import NamedTuple

from sipguard.core.levels import State
from sipguard.core.verdicts import Change

#: Kept one by one; the rest is in the sums.
MAX_KEPT = 1000


class Incident(NamedTuple):
    """A stay out of normal (SPEC §2).

    start_ns, end_ns: since the origin, ends of cycles; end_ns is None when the input ended before it did. peak_rps: the
    highest of its cycles, the one that began it included. refused, dropped: requests within it. worst: the furthest state.
    """

    start_ns: int
    end_ns: int | None
    peak_rps: int
    refused: int
    dropped: int
    worst: State


class Incidents:
    """Told of every cycle; keeps the first MAX_KEPT incidents.

    total: how many there were, the open one included.
    """

    __slots__ = ("_dropped", "_kept", "_peak_rps", "_refused", "_start_ns", "_worst", "total")

    def __init__(self) -> None:
        self.total = 0
        self._kept: list[Incident] = []
        self._start_ns: int | None = None
        self._peak_rps = self._refused = self._dropped = 0
        self._worst = State.NORMAL

    def __repr__(self) -> str:
        return f"<Incidents {self.total}>"

    @property
    def open(self) -> bool:
        """Whether the state is out of normal."""
        return self._start_ns is not None

    def shed(self, refused: int, dropped: int) -> None:
        """Requests judged since the last cycle, in the state as it is."""
        if self._start_ns is not None:
            self._refused += refused
            self._dropped += dropped

    def cycle(self, rps: int) -> None:
        """A cycle that ends in the state as it is."""
        if self._start_ns is not None and rps > self._peak_rps:
            self._peak_rps = rps

    def change(self, change: Change) -> None:
        """The state changes at the end of a cycle."""
        if self._start_ns is None:
            self.total += 1
            self._start_ns, self._peak_rps = change.time_ns, change.rps
            self._refused = self._dropped = 0
            self._worst = change.after
        elif change.after is State.NORMAL:
            self._keep(change.time_ns)
            self._start_ns = None
        elif change.after is State.CRITICAL:
            self._worst = change.after

    def all(self) -> list[Incident]:
        """The kept ones in order, the open one last."""
        kept = list(self._kept)
        if self._start_ns is not None and len(kept) < MAX_KEPT:
            kept.append(self._current(None))
        return kept

    def _keep(self, end_ns: int) -> None:
        if len(self._kept) < MAX_KEPT:
            self._kept.append(self._current(end_ns))

    def _current(self, end_ns: int | None) -> Incident:
        assert self._start_ns is not None
        return Incident(self._start_ns, end_ns, self._peak_rps, self._refused, self._dropped, self._worst)
