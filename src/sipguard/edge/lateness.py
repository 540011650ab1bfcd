"""How late the level was evaluated against its grid: the timer's proof (SPEC M1)."""

from __future__ import annotations

from collections import deque

#: Evaluations the percentiles are taken over: at TR 100 the last seven minutes.
KEPT = 4096


class Lateness:
    """Lateness of evaluations, ns: percentiles over the last KEPT, the maximum and the count over the whole life."""

    __slots__ = ("_last", "evaluations", "max_ns")

    def __init__(self) -> None:
        self._last: deque[int] = deque(maxlen=KEPT)
        self.evaluations = 0
        self.max_ns = 0

    def note(self, late_ns: int) -> None:
        """One evaluation came so late."""
        self._last.append(late_ns)
        self.evaluations += 1
        self.max_ns = max(self.max_ns, late_ns)

    def percentile_ns(self, percent: int) -> int:
        """The nearest-rank percentile, 0 without any evaluation."""
        if not self._last:
            return 0
        ranked = sorted(self._last)
        return ranked[max(0, -(-len(ranked) * percent // 100) - 1)]

    def status(self) -> dict[str, float | int]:
        """cycles, and p50, p99 and the maximum in ms."""
        return {
            "cycles": self.evaluations,
            "late_ms_p50": self.percentile_ns(50) / 1e6,
            "late_ms_p99": self.percentile_ns(99) / 1e6,
            "late_ms_max": self.max_ns / 1e6,
        }
