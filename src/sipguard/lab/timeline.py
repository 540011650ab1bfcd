"""A run over time in bounded memory: a bucket per cycle, and when there are too many, per 2, 4, 8 … cycles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sipguard.core.levels import State
from sipguard.core.verdicts import Change
from sipguard.lab.plots import Sample

MAX_BUCKETS = 4096

_SECOND_NS = 1_000_000_000
_STATES = (State.NORMAL, State.AROUND, State.CRITICAL)
_RANK = {state: rank for rank, state in enumerate(_STATES)}


class Bucket(NamedTuple):
    """Requests between two times by verdict; the highest RPS of the cycles that ended within; the furthest state after one.

    start_ns, end_ns: since the origin.
    """

    start_ns: int
    end_ns: int
    allow: int
    reject: int
    drop: int
    peak_rps: int
    state: State


class Timeline:
    """Cycles added in order; silent ones may be left out.

    width_ns: of a bucket, TR times a power of two.
    """

    __slots__ = ("_buckets", "_end_ns", "_max", "width_ns")

    def __init__(self, window_ns: int, max_buckets: int = MAX_BUCKETS) -> None:
        self.width_ns = window_ns
        self._max = max_buckets
        # By number: allow, reject, drop, peak, rank of the state. Silent buckets are not there.
        self._buckets: dict[int, list[int]] = {}
        self._end_ns = 0

    def __repr__(self) -> str:
        return f"<Timeline {self.count} buckets of {self.width_ns} ns>"

    @property
    def count(self) -> int:
        """Buckets up to the last cycle."""
        return -(-self._end_ns // self.width_ns)

    def add(self, end_ns: int, allow: int, reject: int, drop: int, rps: int, state: State) -> None:
        """A cycle that ended at end_ns (ns since the origin, > 0), or the open window's requests so far."""
        self._end_ns = max(self._end_ns, end_ns)
        while self.count > self._max:
            self._halve()
        rank = _RANK[state]
        number = (end_ns - 1) // self.width_ns
        bucket = self._buckets.get(number)
        if bucket is None:
            if not (allow or reject or drop or rank):
                return
            bucket = self._buckets[number] = [0, 0, 0, 0, 0]
        bucket[0] += allow
        bucket[1] += reject
        bucket[2] += drop
        bucket[3] = max(bucket[3], rps)
        bucket[4] = max(bucket[4], rank)

    def buckets(self) -> Iterator[Bucket]:
        """All of them, silent ones included, from the origin on."""
        silent = [0, 0, 0, 0, 0]
        for number in range(self.count):
            allow, reject, drop, peak, rank = self._buckets.get(number, silent)
            start_ns = number * self.width_ns
            yield Bucket(start_ns, start_ns + self.width_ns, allow, reject, drop, peak, _STATES[rank])

    def samples(self) -> list[Sample]:
        """As rates, for a picture."""
        per_second = _SECOND_NS / self.width_ns
        return [
            Sample(b.start_ns, b.end_ns, b.allow * per_second, b.reject * per_second, b.drop * per_second)
            for b in self.buckets()
        ]

    def changes(self) -> list[Change]:
        """The states of the buckets as changes, for a picture of a run with more changes than anybody keeps."""
        changes: list[Change] = []
        before = State.NORMAL
        for bucket in self.buckets():
            if bucket.state is not before:
                changes.append(Change(bucket.end_ns, before, bucket.state, bucket.peak_rps, 0, 0, 0, "level"))
                before = bucket.state
        return changes

    def _halve(self) -> None:
        """Two buckets into one."""
        merged: dict[int, list[int]] = {}
        for number, bucket in self._buckets.items():
            into = merged.get(number // 2)
            if into is None:
                merged[number // 2] = bucket
            else:
                for i in range(3):
                    into[i] += bucket[i]
                into[3] = max(into[3], bucket[3])
                into[4] = max(into[4], bucket[4])
        self._buckets = merged
        self.width_ns *= 2
