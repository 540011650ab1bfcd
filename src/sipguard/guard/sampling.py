"""What the kernel dropped, by method: exact in total, estimated by the samples it let through (DESIGN §3)."""

from __future__ import annotations

from sipguard.guard.counters import Tally

#: One datagram in so many passes the kernel filter as a sample.
SAMPLE_ONE_IN = 64

UNSAMPLED = "UNSAMPLED"


class Samples:
    """The methods of the samples of this cycle, and of the whole life for a cycle too short to have any."""

    __slots__ = ("_cycle", "_life")

    def __init__(self) -> None:
        self._cycle = Tally()
        self._life = Tally()

    def add(self, method: str) -> None:
        """One sample; the method is one of the configured droppable ones, so the maps are bounded."""
        self._cycle.add(method)
        self._life.add(method)

    def share(self, dropped: int) -> dict[str, int]:
        """`dropped` requests shared out in proportion to the samples, to the last one; begins the next cycle."""
        samples = self._cycle or self._life
        self._cycle = Tally()
        if not samples:
            return {UNSAMPLED: dropped}
        total = sum(samples.values())
        shares = {method: dropped * n // total for method, n in samples.items()}
        # Largest remainders, so that the sum is exact.
        by_remainder = sorted(samples, key=lambda method: -(dropped * samples[method] % total))
        for method in by_remainder[: dropped - sum(shares.values())]:
            shares[method] += 1
        return shares
