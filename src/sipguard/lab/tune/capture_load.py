"""A recording as a load: the loop is open, so the server behind the guard is a capacity and no more.

Served is what passes in a second, up to the capacity; what passes beyond it is wasted, and costs the server the time of
as many others: goodput = (served − wasted) / what could have been served. Clients of a recording do not answer to what
the guard does: none comes again because it was refused, none stops. So 503 and the silent drop are alike here, and what
LCDM and PC are good for only a scenario shows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sipguard.core.levels import State
from sipguard.core.verdicts import Change
from sipguard.lab.sim.arrays import Bools, Floats, Ints
from sipguard.lab.tune.figures import SECOND_NS, Candidate, Figures, Shown, by_second
from sipguard.lab.tune.recording import Recording
from sipguard.lab.tune.windows import Judged, Windows

#: Two storms with less than this between them are one.
CALM_S = 5
#: A storm is at least so much above the capacity in sum, seconds of the capacity.
LEAST_EXCESS_S = 0.1


class _Storm(NamedTuple):
    """Whole seconds [begin, end); open: the recording ends before it does."""

    begin: int
    end: int
    open: bool


class CaptureLoad:
    """A recording before a server of `capacity` requests/s."""

    kind = "capture"

    def __init__(self, recording: Recording, capacity: float, name: str) -> None:
        self.name = name
        self.capacity = capacity
        self._recording = recording
        self._prepare()

    def __repr__(self) -> str:
        return f"<CaptureLoad {self.name} {self._recording.requests} requests>"

    def __getstate__(self) -> tuple[Recording, float, str]:
        # What is derived is made anew where it arrives.
        return self._recording, self.capacity, self.name

    def __setstate__(self, state: tuple[Recording, float, str]) -> None:
        self._recording, self.capacity, self.name = state
        self._prepare()

    @property
    def duration_s(self) -> float:
        return self._recording.end_ns / SECOND_NS

    @property
    def storms(self) -> tuple[tuple[float, float | None], ...]:
        """Where more comes than the server can do: seconds over the capacity, calms of under CALM_S bridged."""
        return tuple((float(storm.begin), None if storm.open else float(storm.end)) for storm in self._storms)

    def about(self) -> list[str]:
        """The model, said plainly; what this recording cannot tell."""
        told = [
            f"Open loop: the server is a capacity of {self.capacity:g} requests/s. What passes in a second up to that is "
            "served; beyond it is overload, served by nobody. Goodput is served less overload, of what could be served.",
            "Clients of a recording do not answer to the guard: 503 and silence are alike here, so LCDM and PC are not "
            "from this load but by rule: a 503 ends what silence would make clients repeat for up to 32 s.",
        ]
        if self.unsheddable:
            told.append(
                f"{100 * self.unsheddable:.1f} % of the requests cannot be shed (BYE, ACK, …): they pass in every state, "
                "and LC has to leave room for them."
            )
        if not self._storms:
            told.append(
                "The load never passes the capacity for long: it says which values leave it alone, not what they do in "
                "a storm. Try them on one: sipguard simulate --list."
            )
        return told

    @property
    def unsheddable(self) -> float:
        """Share of the requests that neither 503 nor the drop may touch (SPEC V1)."""
        counts = self._recording.counts
        return float(counts[self._recording.codes == 0].sum() / counts.sum())

    @property
    def offered(self) -> Ints:
        """Requests in each second; the last one may not be whole."""
        return self._offered

    def try_out(self, candidate: Candidate) -> Figures:
        """What this candidate would have done."""
        return self.figures(self._windows.judge(candidate.parameters, candidate.shed))

    def judge(self, candidate: Candidate) -> Judged:
        """The verdicts themselves, stretch by stretch."""
        return self._windows.judge(candidate.parameters, candidate.shed)

    def show(self, candidate: Candidate) -> Shown:
        """What this candidate would have done, over time."""
        judged, lc = self.judge(candidate), candidate.parameters.LC
        refused, dropped = (self._per_second(judged, each).tolist() for each in (judged.refused, judged.dropped))
        changes = [Change(turn.time_ns, turn.before, turn.after, 0, lc, 0, 0, "level") for turn in judged.turns]
        return by_second(self.passed(judged).tolist(), refused, dropped, changes)

    def passed(self, judged: Judged) -> Ints:
        """Let through in each second."""
        return self._per_second(judged, judged.offered - judged.refused - judged.dropped)

    def figures(self, judged: Judged) -> Figures:
        """What a verdict on the whole comes to."""
        passed, room = self.passed(judged), self._room
        served = int(np.minimum(passed, room).sum())
        wasted = int(passed.sum()) - served
        shed = self._per_second(judged, judged.refused + judged.dropped)
        departures = [turn.time_ns for turn in judged.turns if turn.before is State.NORMAL]
        away = _away(judged, self._recording.end_ns)
        detect_s = [self._detect_s(storm, judged.first_over, away) for storm in self._storms]
        recover = [
            self._recover_s(storm, following, away)
            for storm, following in zip(self._storms, [*self._storms[1:], None], strict=False)
            if not storm.open
        ]
        could = int(np.minimum(self._offered, room).sum())
        return Figures(
            offered=self._recording.requests,
            passed=int(passed.sum()),
            refused=int(judged.refused.sum()),
            dropped=int(judged.dropped.sum()),
            by_lcps=int(judged.by_lcps.sum()),
            wanted=could,
            served=served,
            wasted=wasted,
            needless=int(shed[~self._stormy].sum()),
            normal_s=judged.state_ns[State.NORMAL] / SECOND_NS,
            around_s=judged.state_ns[State.AROUND] / SECOND_NS,
            critical_s=judged.state_ns[State.CRITICAL] / SECOND_NS,
            alarms=len(departures),
            false_alarms=sum(not self._stormy[self._second_of(time_ns)] for time_ns in departures),
            detect_s=None if not detect_s or None in detect_s else max(d for d in detect_s if d is not None),
            recover_s=max((s for s, over in recover), default=None) if all(over for _, over in recover) else None,
            goodput=(served - wasted) / could if could else 0.0,
            recovery_s=max((s for s, _ in recover), default=0.0),
        )

    # -- inside --------------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        self._windows = Windows(self._recording)
        seconds = self._recording.end_ns // SECOND_NS + 1
        which = self._recording.times_ns // SECOND_NS
        self._offered: Ints = np.bincount(which, self._recording.counts, minlength=seconds).astype(np.int64)
        lengths: Floats = np.ones(seconds)
        # The request at the very end is in a second that has only begun.
        lengths[-1] = max(self._recording.end_ns % SECOND_NS, 1) / SECOND_NS
        self._room: Ints = np.ceil(self.capacity * lengths).astype(np.int64)
        self._storms = _storms(self._offered, self._room, self.capacity)
        self._stormy: Bools = np.zeros(seconds, bool)
        for storm in self._storms:
            self._stormy[storm.begin : storm.end] = True

    def _per_second(self, judged: Judged, counts: Ints) -> Ints:
        found: Ints = np.bincount(judged.starts_ns // SECOND_NS, counts, minlength=len(self._offered)).astype(np.int64)
        return found[: len(self._offered)]

    def _second_of(self, time_ns: int) -> int:
        """The second whose requests a cycle that ends then has seen last."""
        return min((time_ns - 1) // SECOND_NS, len(self._offered) - 1)

    def _detect_s(self, storm: _Storm, first_over: Ints, away: list[tuple[int, int]]) -> float | None:
        begin_ns, end_ns = storm.begin * SECOND_NS, storm.end * SECOND_NS
        at = [max(since_ns, begin_ns) for since_ns, until_ns in away if since_ns <= end_ns and until_ns > begin_ns]
        over = first_over[(first_over >= begin_ns) & (first_over < end_ns)]
        at += over[:1].tolist()
        return (min(at) - begin_ns) / SECOND_NS if at else None

    def _recover_s(self, storm: _Storm, following: _Storm | None, away: list[tuple[int, int]]) -> tuple[float, bool]:
        """How long the guard stayed out of normal after a storm (until the next one at most), and whether it came back."""
        end_ns = storm.end * SECOND_NS
        limit_ns = self._recording.end_ns if following is None else following.begin * SECOND_NS
        last_ns = max(
            (min(until, limit_ns) for since, until in away if since < limit_ns and until > end_ns), default=end_ns
        )
        back = following is not None or not away or away[-1][1] < self._recording.end_ns
        return (last_ns - end_ns) / SECOND_NS, back


def _away(judged: Judged, end_ns: int) -> list[tuple[int, int]]:
    """The stays out of normal, ns; one that does not end goes to the end of the recording."""
    stays: list[tuple[int, int]] = []
    since_ns: int | None = None
    for turn in judged.turns:
        if turn.before is State.NORMAL:
            since_ns = turn.time_ns
        elif turn.after is State.NORMAL and since_ns is not None:
            stays.append((since_ns, turn.time_ns))
            since_ns = None
    return stays if since_ns is None else [*stays, (since_ns, end_ns)]


def _storms(offered: Ints, room: Ints, capacity: float) -> list[_Storm]:
    found: list[list[int]] = []
    for second in np.flatnonzero(offered > room).tolist():
        if found and second - found[-1][1] < CALM_S:
            found[-1][1] = second + 1
        else:
            found.append([second, second + 1])
    excess = np.maximum(offered - room, 0)
    # The last second has only begun: a storm that goes up to it goes on.
    return [
        _Storm(begin, end, end >= len(offered) - 1)
        for begin, end in found
        if excess[begin:end].sum() >= LEAST_EXCESS_S * capacity
    ]
