"""What a candidate is, what came of it, and the three things a search weighs."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol

from sipguard.core.levels import State
from sipguard.core.parameters import Parameters
from sipguard.core.policy import Shed
from sipguard.core.verdicts import Change
from sipguard.lab.timeline import Timeline

SECOND_NS = 1_000_000_000


class Candidate(NamedTuple):
    """One set of values to try."""

    parameters: Parameters
    shed: Shed

    def as_dict(self) -> dict[str, int | str]:
        """By upper-case name, and `shed`."""
        return {**self.parameters.as_dict(), "shed": self.shed}

    def replaced(self, name: str, value: int | str) -> Candidate:
        """With one value changed; name as in `as_dict`. Raises ParameterError."""
        if name == "shed":
            return Candidate(self.parameters, "excess" if value == "excess" else "all")
        return Candidate(self.parameters.replaced(**{name: value}), self.shed)


class Objective(StrEnum):
    """What the recommended set is the best of."""

    GOODPUT = "goodput"
    REFUSED = "refused"
    RECOVERY = "recovery"


@dataclass(frozen=True, slots=True)
class Figures:
    """What one candidate did to the load.

    offered, passed, refused, dropped: requests at the guard; by_lcps: of refused, in the normal state (None: not known
    apart). wanted, served: see the load; wasted: passed and of no use to anybody. needless: shed while there was no
    storm. normal_s, around_s, critical_s: time in each state. alarms: how often normal was left, false_alarms: of these,
    outside storms. detect_s: from a storm's begin to the guard's first act, the slowest; None: a storm it did not act in,
    or no storm. recover_s: from a storm's end until it was over for the guard as well, the slowest; None: not within the
    load, or no storm that ends. goodput: 0 … 1, what the server was good for of what it could have been; may be under 0
    where it was only made to waste its time. recovery_s: recover_s, or what stands for it when there is none. setup_p99_s:
    of those served, 99 in 100 waited no longer for their answer; None: not known of this load.
    """

    offered: int
    passed: int
    refused: int
    dropped: int
    by_lcps: int | None
    wanted: int
    served: int
    wasted: int
    needless: int
    normal_s: float
    around_s: float
    critical_s: float
    alarms: int
    false_alarms: int
    detect_s: float | None
    recover_s: float | None
    goodput: float
    recovery_s: float
    setup_p99_s: float | None = None

    @property
    def shed(self) -> float:
        """Share of the offered requests that were refused or dropped."""
        return (self.refused + self.dropped) / self.offered if self.offered else 0.0

    def losses(self) -> tuple[float, float, float]:
        """What a search makes small: 1 − goodput, the share shed, recovery in s; in the order of `Objective`."""
        return 1 - self.goodput, self.shed, self.recovery_s

    def as_dict(self) -> dict[str, float | int | None]:
        """By name, plain values."""
        return asdict(self)


class Tried(NamedTuple):
    """A candidate and what came of it."""

    candidate: Candidate
    figures: Figures


class Shown(NamedTuple):
    """A candidate's run over time, for a picture: by second; the changes of the guard (of the first, where there are several)."""

    timeline: Timeline
    changes: Sequence[Change]


def by_second(
    passed: Iterable[int], refused: Iterable[int], dropped: Iterable[int], changes: Sequence[Change]
) -> Shown:
    """From counts by second, in order."""
    timeline = Timeline(SECOND_NS)
    state, turns = State.NORMAL, deque(changes)
    for second, counts in enumerate(zip(passed, refused, dropped, strict=True), 1):
        while turns and turns[0].time_ns <= second * SECOND_NS:
            state = turns.popleft().after
        timeline.add(second * SECOND_NS, *counts, sum(counts), state)
    return Shown(timeline, changes)


class Load(Protocol):
    """What candidates are tried on; goes to other processes by pickle.

    kind: "capture" or "scenario". name: for people. capacity: requests/s the protected servers can do. storms: (begin s,
    end s or None when the load ends before it).
    """

    @property
    def kind(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def capacity(self) -> float: ...

    @property
    def duration_s(self) -> float: ...

    @property
    def storms(self) -> tuple[tuple[float, float | None], ...]: ...

    def about(self) -> list[str]:
        """What has to be known of it to read the figures, in sentences."""
        ...

    def try_out(self, candidate: Candidate) -> Figures:
        """The same figures for the same candidate, in every process."""
        ...

    def show(self, candidate: Candidate) -> Shown:
        """What this candidate does, over time."""
        ...
