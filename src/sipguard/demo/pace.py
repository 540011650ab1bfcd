"""When the next request is due: absolute time, so that lateness never adds up."""

from __future__ import annotations

from collections import deque

from sipguard.core.meters import SECOND_NS

CATCH_UP_NS = 50_000_000
"""Requests later than this are skipped and counted, not sent in a burst: a stalled sender must not look like an overload."""


class Pace:
    """Requests due at a rate that changes at given moments of the monotonic clock.

    `skipped`: requests that were not sent because the sender came too late, whole life.
    """

    __slots__ = ("_begin_ns", "_changes", "_rate", "_taken", "skipped")

    def __init__(self) -> None:
        self.skipped = 0
        self._rate = 0
        self._begin_ns = 0
        self._taken = 0
        self._changes: deque[tuple[int, int]] = deque(maxlen=64)

    def __repr__(self) -> str:
        return f"<Pace {self._rate}/s taken={self._taken} then {list(self._changes)}>"

    def change(self, rate: int, at_ns: int) -> None:
        """From at_ns on `rate` requests/s; changes are given in order of time. Raises ValueError for a negative rate."""
        if rate < 0:
            raise ValueError(f"rate = {rate}: allowed is 0 or more requests/s")
        self._changes.append((at_ns, rate))

    def spend(self, n: int) -> None:
        """n requests went out that were not taken here (ACK, BYE): they are part of the rate."""
        self._taken += n

    def take(self, now_ns: int) -> int:
        """How many requests are due now."""
        while self._changes and self._changes[0][0] <= now_ns:
            self._begin_ns, self._rate = self._changes.popleft()
            self._taken = 0
        due = (now_ns - self._begin_ns) * self._rate // SECOND_NS - self._taken
        late = due - max(1, CATCH_UP_NS * self._rate // SECOND_NS)
        if late > 0:
            self.skipped += late
            self._taken += late
            due -= late
        if due <= 0:
            return 0
        self._taken += due
        return due
