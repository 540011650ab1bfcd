"""A scenario as a load: the loop is closed, clients answer to what the guard does (`sipguard simulate`)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sipguard.core.levels import State
from sipguard.core.policy import Policy
from sipguard.core.verdicts import Change
from sipguard.lab.sim.engine import Run, Simulation
from sipguard.lab.sim.measure import BIN_NS, Count
from sipguard.lab.sim.scenario import Guard, Scenario
from sipguard.lab.sim.summary import per_second, summarise
from sipguard.lab.tune.figures import SECOND_NS, Candidate, Figures, Shown, by_second
from sipguard.shown import cut, shown


class ScenarioLoad:
    """A scenario with a guard, each time with other values.

    goodput: calls, refreshes and probes served of those wanted. wasted: what servers had no room for or answered too
    late. Where recovery cannot be told (a storm without end, no recovery in the run) recovery_s stands for it: the time
    left in the run after the storm, 0 when it does not end.
    """

    kind = "scenario"

    def __init__(self, scenario: Scenario, seed: int = 1) -> None:
        """scenario: with a guard; its method sets and its Retry-After are kept."""
        assert scenario.guard is not None
        self.scenario = scenario
        self.seed = seed
        self._guard: Guard = scenario.guard

    def __repr__(self) -> str:
        return f"<ScenarioLoad {self.scenario.name} seed {self.seed}>"

    @property
    def name(self) -> str:
        return cut(shown(self.scenario.name))

    @property
    def capacity(self) -> float:
        return self.scenario.capacity

    @property
    def duration_s(self) -> float:
        return self.scenario.duration_s

    @property
    def storms(self) -> tuple[tuple[float, float | None], ...]:
        return ((self.scenario.storm_begins_s, self.scenario.storm_ends_s),)

    def about(self) -> list[str]:
        """How the loop is closed, and what goodput is."""
        return [
            f"Closed loop: the clients of {self.name} answer to the guard; servers of {self.capacity:g} units of work/s. "
            "Goodput is what was served of all that was wanted, however late: look at the set-up delay too.",
            f"One draw of the random numbers (seed {self.seed}): sipguard simulate with other seeds tells how far it carries.",
        ]

    def with_guard(self, candidate: Candidate) -> Scenario:
        """The scenario under this candidate."""
        old = self._guard
        policy = Policy(candidate.shed, True, old.policy.refuse_methods, old.policy.drop_methods)
        return replace(self.scenario, guard=replace(old, parameters=candidate.parameters, policy=policy))

    def try_out(self, candidate: Candidate) -> Figures:
        """What this candidate does."""
        return self.figures(Simulation(self.with_guard(candidate), self.seed).run())

    def show(self, candidate: Candidate) -> Shown:
        """What this candidate does, over time: a run more."""
        run = Simulation(self.with_guard(candidate), self.seed).run()
        rows = (per_second(run.measure.bins[count]) for count in (Count.ALLOWED, Count.REJECTED, Count.DROPPED))
        passed, refused, dropped = ([round(value) for value in row.tolist()] for row in rows)
        return by_second(passed, refused, dropped, run.changes[0])

    def figures(self, run: Run) -> Figures:
        """What a run comes to."""
        summary = summarise(run)
        begin_s, end_s = self.storms[0]
        last_s = self.duration_s if end_s is None else end_s
        shed = run.measure.bins[Count.REJECTED] + run.measure.bins[Count.DROPPED]
        begins_s = np.arange(len(shed)) * (BIN_NS / SECOND_NS)
        times = [_times_s(changes, self.duration_s) for changes in run.changes]
        departures = [c.time_ns / SECOND_NS for changes in run.changes for c in changes if c.before is State.NORMAL]
        left_s = 0.0 if end_s is None else self.duration_s - end_s
        return Figures(
            offered=summary.offered,
            passed=int(run.measure.bins[Count.ALLOWED].sum()),
            refused=summary.refused,
            dropped=summary.dropped,
            by_lcps=None,
            wanted=summary.wanted,
            served=summary.served,
            wasted=summary.wasted + summary.overflow,
            needless=int(shed[(begins_s < begin_s) | (begins_s >= last_s)].sum()),
            normal_s=sum(each[State.NORMAL] for each in times),
            around_s=sum(each[State.AROUND] for each in times),
            critical_s=sum(each[State.CRITICAL] for each in times),
            alarms=len(departures),
            false_alarms=sum(not begin_s <= at_s <= last_s for at_s in departures),
            detect_s=summary.detect_s,
            recover_s=summary.recover_s,
            goodput=summary.served / summary.wanted if summary.wanted else 0.0,
            recovery_s=left_s if summary.recover_s is None else summary.recover_s,
            setup_p99_s=summary.setup_p99_s,
        )


def _times_s(changes: tuple[Change, ...], duration_s: float) -> dict[State, float]:
    found = dict.fromkeys(State, 0.0)
    state, since_s = State.NORMAL, 0.0
    for change in changes:
        at_s = min(change.time_ns / SECOND_NS, duration_s)
        found[state] += at_s - since_s
        state, since_s = change.after, at_s
    found[state] += duration_s - since_s
    return found
