"""What the kernel dropped, by method: exact in total, estimated by the samples it let through (DESIGN §3)."""

from __future__ import annotations

from collections.abc import Mapping

from sipguard.guard.counters import OTHER_METHODS, Tally

#: One datagram in so many passes the kernel filter as a sample; fewer under a fast flood, as the plane chooses.
SAMPLE_ONE_IN = 64


class Samples:
    """The methods of the samples of this cycle; the maps hold configured droppable methods only, so they are bounded."""

    __slots__ = ("_cycle", "_droppable")

    def __init__(self, droppable: frozenset[str]) -> None:
        self._cycle = Tally()
        self._droppable = droppable

    def add(self, method: str) -> None:
        """One sample."""
        self._cycle.add(method)

    def share(self, dropped: int, offered: Mapping[str, int]) -> dict[str, int]:
        """`dropped` requests shared out in proportion to the cycle's samples, to the last one; begins the next cycle.

        offered: requests by method so far, the proportion for a cycle too short to have any sample.
        """
        cycle, self._cycle = self._cycle, Tally()
        if not dropped:
            return {}
        samples: Mapping[str, int] = cycle or {method: n for method, n in offered.items() if method in self._droppable}
        total = sum(samples.values())
        if not total:
            return {OTHER_METHODS: dropped}
        shares = {method: dropped * n // total for method, n in samples.items()}
        # Largest remainders, so that the sum is exact.
        by_remainder = sorted(samples, key=lambda method: -(dropped * samples[method] % total))
        for method in by_remainder[: dropped - sum(shares.values())]:
            shares[method] += 1
        return shares
