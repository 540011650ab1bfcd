"""One set of parameters on one input: the law, and what is worth telling of it."""

from __future__ import annotations

from collections.abc import Callable

from sipguard.core.levels import State
from sipguard.core.parameters import Parameters
from sipguard.core.policy import Policy
from sipguard.core.verdicts import Change, Cycle, Verdict
from sipguard.lab.incidents import Incidents
from sipguard.lab.replay import Replay
from sipguard.lab.shares import MethodShares, SourceShares
from sipguard.lab.timeline import Timeline

#: Changes of state kept one by one.
MAX_CHANGES = 1000

_ALLOW, _REJECT = Verdict.ALLOW, Verdict.REJECT


class Course:
    """A controller on virtual time (origin 0) with its record.

    In shadow mode (SPEC X2) the record says what would have been: the law decides the same, only nothing is enforced.
    sources: None when they are not to be told apart. on_cycle: called with each cycle, silent ones of a long gap left out
    (DESIGN §5). lcps_refused: 503s in the normal state (SPEC V3). state_ns: time spent in each state up to the last cycle.
    """

    __slots__ = (
        "_admit",
        "_due_ns",
        "_replay",
        "_seen",
        "_since_ns",
        "changes",
        "changes_total",
        "incidents",
        "lcps_refused",
        "methods",
        "on_cycle",
        "peak_rps",
        "policy",
        "sources",
        "state_ns",
        "timeline",
    )

    def __init__(self, parameters: Parameters, policy: Policy, *, sources: bool = True) -> None:
        self.policy = policy
        enforced = Policy(policy.shed, True, policy.refuse_methods, policy.drop_methods)
        self._replay = Replay(parameters, enforced)
        self._admit = self._replay.controller.admit
        self._due_ns = parameters.window_ns
        self._seen = (0, 0, 0)
        self._since_ns = 0
        self.methods = MethodShares()
        self.sources = SourceShares() if sources else None
        self.timeline = Timeline(parameters.window_ns)
        self.incidents = Incidents()
        self.changes: list[Change] = []
        self.changes_total = 0
        self.peak_rps = 0
        self.lcps_refused = 0
        self.state_ns = dict.fromkeys(State, 0)
        self.on_cycle: Callable[[Cycle], None] | None = None

    def __repr__(self) -> str:
        return f"<Course {self._replay.controller!r}>"

    @property
    def parameters(self) -> Parameters:
        return self._replay.controller.parameters

    @property
    def state(self) -> State:
        """After the last cycle."""
        return self._replay.controller.state

    @property
    def verdicts(self) -> tuple[int, int, int]:
        """Allowed, refused, dropped in all."""
        law = self._replay.controller
        return law.allowed, law.rejected, law.dropped

    @property
    def requests(self) -> int:
        return sum(self.verdicts)

    def offer(self, time_ns: int, method: str, source: bytes | str) -> Verdict:
        """One request; time_ns since the origin, one that goes back counts as the last (SPEC M4)."""
        if time_ns >= self._due_ns:
            self.advance(time_ns)
        verdict = self._admit(method, now_ns=time_ns)
        place = 0 if verdict is _ALLOW else 1 if verdict is _REJECT else 2
        self.methods.row(method)[place] += 1
        if self.sources is not None:
            self.sources.row(source)[place] += 1
        return verdict

    def offer_many(self, time_ns: int, method: str, n: int, source: bytes | str) -> tuple[int, int, int]:
        """n requests at one instant: how many allowed, refused, dropped."""
        if time_ns >= self._due_ns:
            self.advance(time_ns)
        before = self.verdicts
        self._replay.controller.admit_many(method, n, now_ns=time_ns)
        after = self.verdicts
        counts = (after[0] - before[0], after[1] - before[1], after[2] - before[2])
        rows = [self.methods.row(method)]
        if self.sources is not None:
            rows.append(self.sources.row(source))
        for row in rows:
            for place, count in enumerate(counts):
                row[place] += count
        return counts

    def advance(self, now_ns: int) -> None:
        """Evaluate the windows that have ended by now_ns."""
        cycles = self._replay.advance(now_ns)
        changes = {change.time_ns: change for change in self._replay.changes()}
        self._due_ns = self._replay.controller.next_deadline_ns
        if not cycles:
            return
        # The requests since the last call are all of the first window that ends: the next one's come after this.
        allow, reject, drop = self._fresh()
        for cycle in cycles:
            self._close(cycle, changes.get(cycle.time_ns), allow, reject, drop)
            allow = reject = drop = 0

    def finish(self) -> None:
        """The input has ended: the requests of the open window enter the record, no cycle is evaluated for them."""
        allow, reject, drop = self._fresh()
        if allow or reject or drop:
            self._shed(reject, drop)
            self.timeline.add(self._due_ns, allow, reject, drop, 0, self.state)

    def _close(self, cycle: Cycle, change: Change | None, allow: int, reject: int, drop: int) -> None:
        self._shed(reject, drop)
        self.incidents.cycle(cycle.rps)
        before = change.before if change is not None else cycle.state
        self.state_ns[before] += cycle.time_ns - self._since_ns
        self._since_ns = cycle.time_ns
        if change is not None:
            self.changes_total += 1
            if len(self.changes) < MAX_CHANGES:
                self.changes.append(change)
            self.incidents.change(change)
        self.peak_rps = max(self.peak_rps, cycle.rps)
        self.timeline.add(cycle.time_ns, allow, reject, drop, cycle.rps, cycle.state)
        if self.on_cycle is not None:
            self.on_cycle(cycle)

    def _shed(self, reject: int, drop: int) -> None:
        if not self.incidents.open:
            self.lcps_refused += reject
        self.incidents.shed(reject, drop)

    def _fresh(self) -> tuple[int, int, int]:
        """The verdicts since the last cycle."""
        now, seen = self.verdicts, self._seen
        self._seen = now
        return now[0] - seen[0], now[1] - seen[1], now[2] - seen[2]
