"""What a run found: plain records, medians with their range, and the document they are kept in."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench.field import Point, Side


class Spread(NamedTuple):
    """A median and what it was taken from."""

    middle: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Of at least one value."""
        return cls(median(values), min(values), max(values))


@dataclass(frozen=True, slots=True)
class Lateness:
    """Of one guard's evaluations against their grid, over its life, nearly all of it under load; /api/v1/status `evaluation`."""

    cycles: int
    late_ms_p50: float
    late_ms_p99: float
    late_ms_max: float


@dataclass(slots=True)
class Comparison:
    """The guard and Kamailio under one load, in turns: the n-th points of all sides are neighbours in time."""

    name: str
    title: str
    target: float | None  # of the ratio
    note: str = ""
    points: dict[Side, list[Point]] = field(default_factory=lambda: {side: [] for side in Side})
    lateness: list[Lateness] = field(default_factory=list)

    def ratio(self, to: Side) -> Spread:
        """The guard's CPU per message to this side's, round by round."""
        rounds = zip(self.points[Side.GUARD], self.points[to], strict=True)
        return Spread.of([guard.us_per_message / other.us_per_message for guard, other in rounds])

    @property
    def saturated(self) -> bool:
        """Whether each side was offered at least twice what it did, in every round."""
        return all(point.offered >= 2 * point.done for points in self.points.values() for point in points)

    def document(self) -> dict[str, object]:
        """For JSON."""
        return {
            "name": self.name,
            "title": self.title,
            "target": self.target,
            "note": self.note,
            "us_per_message": {
                side.value: Spread.of([point.us_per_message for point in points])._asdict()
                for side, points in self.points.items()
            },
            "points": {side.value: [asdict(point) for point in points] for side, points in self.points.items()},
            "lateness": [asdict(late) for late in self.lateness],
        }


@dataclass(slots=True)
class KernelDrop:
    """The guard alone in critical_limit under a flood of `offered_per_s`, ten times its LC."""

    lc: int
    offered_per_s: int
    idle: list[Point] = field(default_factory=list)
    flood: list[Point] = field(default_factory=list)  # done: what reached the process
    lateness: list[Lateness] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU of one call, without any socket."""

    name: str
    title: str
    us: Spread
    target_us: float | None


@dataclass(slots=True)
class Results:
    """Everything, in the order of the tables."""

    saturation: list[Comparison] = field(default_factory=list)
    paced: list[Comparison] = field(default_factory=list)
    kernel: list[KernelDrop] = field(default_factory=list)
    costs: list[Cost] = field(default_factory=list)

    def write(self, path: Path) -> None:
        """As JSON; every point of every round, times in ns."""
        document = {
            "saturation": [comparison.document() for comparison in self.saturation],
            "paced": [comparison.document() for comparison in self.paced],
            "kernel": [asdict(drop) for drop in self.kernel],
            "calls": [{**asdict(cost), "us": cost.us._asdict()} for cost in self.costs],
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document, indent=1) + "\n")
