"""The law as one object: time and methods in, verdicts and cycles out (SPEC §3–§7)."""

from __future__ import annotations

from collections import deque

from sipguard.core.allowance import Allowance
from sipguard.core.levels import LevelMachine, State
from sipguard.core.meters import SECOND_NS, Second, Window
from sipguard.core.parameters import Parameters
from sipguard.core.policy import Policy
from sipguard.core.verdicts import Change, Cycle, Verdict

#: Cycles and changes kept for the next `advance` and `changes`; also the longest gap that is evaluated cycle by cycle.
MAX_KEPT = 1000

# Module globals: an Enum member looked up through its class costs a third of the hot path.
_ALLOW, _REJECT, _DROP = Verdict.ALLOW, Verdict.REJECT, Verdict.DROP
_NORMAL, _AROUND = State.NORMAL, State.AROUND


class OverloadController:
    """Counts requests, evaluates the level every TR ms and judges each request.

    now_ns is any monotonic clock in ns with origin_ns on it; a time earlier than one already seen counts as that one
    (SPEC M4). Methods are case-sensitive names (SPEC V1). Not thread-safe. Costs about 0.5 µs a request.

    Counters, whole life: allowed, rejected, dropped (what was returned), shadow_rejected, shadow_dropped (what would have
    been, SPEC X2).
    """

    __slots__ = (
        "_allowance",
        "_changes",
        "_cycles",
        "_level",
        "_now_ns",
        "_parameters",
        "_policy",
        "_refusable",
        "_second",
        "_window",
        "allowed",
        "dropped",
        "origin_ns",
        "rejected",
        "rps",
        "shadow_dropped",
        "shadow_rejected",
    )

    def __init__(self, parameters: Parameters, policy: Policy | None = None, *, origin_ns: int = 0) -> None:
        self._parameters = parameters
        self._policy = policy or Policy()
        # ACK is never answered, whatever is set (SPEC V1).
        self._refusable = self._policy.refuse_methods - {"ACK"}
        self.origin_ns = origin_ns
        self._now_ns = origin_ns
        self._window = Window(origin_ns, parameters.window_ns)
        self._second = Second(origin_ns)
        self._level = LevelMachine()
        self._allowance = Allowance() if self._policy.shed == "excess" else None
        self._cycles: deque[Cycle] = deque(maxlen=MAX_KEPT)
        self._changes: deque[Change] = deque(maxlen=MAX_KEPT)
        self.rps = 0
        self.allowed = self.rejected = self.dropped = 0
        self.shadow_rejected = self.shadow_dropped = 0

    def __repr__(self) -> str:
        return f"<OverloadController {self._level.state.value} rps={self.rps} {self._window!r} {self._second!r}>"

    @property
    def state(self) -> State:
        """The state as of the last evaluated cycle."""
        return self._level.state

    @property
    def parameters(self) -> Parameters:
        """The parameters in force."""
        return self._parameters

    @property
    def policy(self) -> Policy:
        """How the law is applied."""
        return self._policy

    @property
    def next_deadline_ns(self) -> int:
        """When the open window ends and `advance` is due."""
        return self._window.end_ns

    @property
    def patience_run(self) -> int:
        """Cycles above LC in a row since around_critical_limit was entered (SPEC L2)."""
        return self._level.patience_run

    @property
    def relax_run(self) -> int:
        """Cycles below LC in a row in a critical state (SPEC L5)."""
        return self._level.relax_run

    @property
    def sheds_all(self) -> bool:
        """Every droppable request would be dropped now: critical_limit, and under excess the allowance is spent."""
        if self._level.state is not State.CRITICAL:
            return False
        return self._allowance is None or self._allowance.left == 0

    # -- requests --------------------------------------------------------------------------------------------------

    def admit(self, method: str, *, now_ns: int) -> Verdict:
        """Evaluate what is due, count the request, judge it."""
        if now_ns > self._now_ns:
            self._now_ns = now_ns
        else:
            now_ns = self._now_ns
        window = self._window
        if now_ns >= window.end_ns:
            self._evaluate_due(now_ns)
        window.requests += 1
        second = self._second
        if now_ns >= second.end_ns:
            second.roll(now_ns)
        second.total += 1
        return self._decide(method)

    def judge(self, method: str, *, now_ns: int, sheddable: bool = True, first: Verdict | None = None) -> Verdict:
        """Count and judge on a live edge: the second rolls, no cycle is evaluated (a timer calls `advance`).

        A request that comes after the open window's end is counted in the window it belongs to (SPEC M1) and judged by
        the last evaluated cycle. sheddable=False: passed whatever the method, as an exempt URI is. first: what the law
        said of this request's first copy, now said again in any state (SPEC X3).
        """
        if now_ns > self._now_ns:
            self._now_ns = now_ns
        else:
            now_ns = self._now_ns
        window = self._window
        if now_ns >= window.end_ns:
            window.count_ahead(1, now_ns)
        else:
            window.requests += 1
        second = self._second
        if now_ns >= second.end_ns:
            second.roll(now_ns)
        second.total += 1
        if first is not None:
            return self._repeat(first)
        # No method is the empty string, so no set holds it.
        return self._decide(method if sheddable else "")

    def admit_many(self, method: str, n: int, *, now_ns: int) -> list[tuple[Verdict, int]]:
        """n requests at one instant; the run-length list of what n × `admit` would return. Raises ValueError if n < 0."""
        _check_count(n)
        if n == 0:
            return []
        self.advance_to(now_ns)
        self._window.requests += n
        self._second.roll(self._now_ns)
        self._second.total += n
        passed = self._passed_of(method, n)
        self.allowed += passed
        if self._allowance is not None and self._level.state is not _NORMAL:
            self._allowance.spend(passed)
        if passed == n:
            return [(_ALLOW, n)]
        verdict = self._shed(_REJECT if self._level.state in (_NORMAL, _AROUND) else _DROP, n - passed)
        if passed == 0 or verdict is _ALLOW:
            return [(verdict, n)]
        return [(_ALLOW, passed), (verdict, n - passed)]

    def count(self, n: int, *, now_ns: int) -> None:
        """Count n requests decided elsewhere (kernel, another worker); no verdict, no cycle evaluated.

        Into the open window; when that has ended and is not evaluated, n is what came until its end: it closes with it, or,
        when several windows have ended, n is spread evenly over them. Raises ValueError if n < 0.
        """
        _check_count(n)
        self._now_ns = now_ns = max(now_ns, self._now_ns)
        window = self._window
        ended = window.ended_by(now_ns)
        if not ended:
            window.requests += n
            self._second.count_at(n, now_ns)
            return
        window.count_late(n, ended)
        share, extra = divmod(n, ended)
        # Only windows that may lie in the last two seconds: LCPS compares with no older ones (SPEC M3).
        for k in range(max(0, ended - 2 - 2 * SECOND_NS // window.length_ns), ended):
            self._second.count_at(share + (k < extra), window.end_ns + k * window.length_ns - 1)

    # -- cycles ----------------------------------------------------------------------------------------------------

    def advance(self, *, now_ns: int) -> list[Cycle]:
        """Evaluate every window that has ended by now_ns; the cycles since the last call (at most the last 1,000).

        Of a gap over 1,000 silent cycles those that change nothing are left out, but for the last.
        """
        self.advance_to(now_ns)
        cycles = list(self._cycles)
        self._cycles.clear()
        return cycles

    def advance_to(self, now_ns: int) -> None:
        """As `advance`; the cycles stay for the next `advance`."""
        self._now_ns = max(now_ns, self._now_ns)
        if self._now_ns >= self._window.end_ns:
            self._evaluate_due(self._now_ns)

    def changes(self) -> list[Change]:
        """The changes of state since the last call (at most the last 1,000)."""
        changes = list(self._changes)
        self._changes.clear()
        return changes

    def reconfigure(self, parameters: Parameters, *, now_ns: int) -> None:
        """New parameters while running (SPEC §6)."""
        self.advance_to(now_ns)
        old, self._parameters = self._parameters, parameters
        level = self._level
        before, patience_run, relax_run = level.state, level.patience_run, level.relax_run
        level.reconfigure(old, parameters)
        if parameters.TR != old.TR:
            self._window = Window(self._now_ns, parameters.window_ns)
            if self._allowance is not None:
                self._allowance.clear()
                self._open_allowance()
        if level.state is not before:
            self._changes.append(
                Change(
                    self._now_ns, before, level.state, self.rps, parameters.LC, patience_run, relax_run, "reconfigure"
                ),
            )

    # -- inside ----------------------------------------------------------------------------------------------------

    def _evaluate_due(self, now_ns: int) -> None:
        window = self._window
        in_gap = False
        while now_ns >= window.end_ns:
            # Silence changes nothing in normal: a day's gap costs no more than a minute's (DESIGN §5). All of a long gap
            # but its last cycle is left out, else what is kept of it would push out the cycles that led into it.
            silent = window.silent_by(now_ns)
            in_gap = silent > MAX_KEPT or (in_gap and silent > 0)
            if in_gap and self._level.state is _NORMAL:
                window.skip(silent - 1)
            self._close_window()

    def _close_window(self) -> None:
        window, level, parameters = self._window, self._level, self._parameters
        time_ns, requests = window.end_ns, window.requests
        self.rps = rps = requests * parameters.scale
        before = level.state
        step = level.evaluate(rps, parameters)
        if step.state is not before:
            self._changes.append(
                Change(time_ns, before, step.state, rps, parameters.LC, step.patience_run, step.relax_run, "level"),
            )
        self._cycles.append(Cycle(time_ns, requests, rps, step.state))
        window.next()
        if self._allowance is not None:
            self._open_allowance()

    def _open_allowance(self) -> None:
        assert self._allowance is not None
        if self._level.state is _NORMAL:
            self._allowance.clear()
        else:
            self._allowance.open(self._parameters.LC, self._parameters.scale)

    def _decide(self, method: str) -> Verdict:
        """The verdict of SPEC §5 for a request already counted."""
        state = self._level.state
        if state is _NORMAL:
            second = self._second
            if second.total - second.last <= self._parameters.LCPS or method not in self._refusable:
                self.allowed += 1
                return _ALLOW
            verdict = _REJECT
        else:
            verdict = _REJECT if state is _AROUND else _DROP
            sheddable = method in (self._refusable if state is _AROUND else self._policy.drop_methods)
            allowance = self._allowance
            if not sheddable or (allowance is not None and allowance.left):
                if allowance is not None:
                    allowance.spend(1)
                self.allowed += 1
                return _ALLOW
        return self._shed(verdict, 1)

    def _repeat(self, first: Verdict) -> Verdict:
        """The first copy's verdict for a copy already counted; passed on, it uses up the allowance (SPEC X1, X3)."""
        if first is not _ALLOW:
            return self._shed(first, 1)
        if self._allowance is not None and self._level.state is not _NORMAL:
            self._allowance.spend(1)
        self.allowed += 1
        return _ALLOW

    def _passed_of(self, method: str, n: int) -> int:
        """How many of n requests, already counted, of one method at one instant are let through (the first ones)."""
        state = self._level.state
        if state is _NORMAL:
            if method not in self._refusable:
                return n
            over = self._second.total - self._second.last - self._parameters.LCPS
            return n - min(n, max(0, over))
        if method not in (self._refusable if state is _AROUND else self._policy.drop_methods):
            return n
        return 0 if self._allowance is None else min(n, self._allowance.left)

    def _shed(self, verdict: Verdict, n: int) -> Verdict:
        """Count n requests refused or dropped, and what is returned for each: in shadow mode allow (SPEC X2)."""
        if self._policy.enforce:
            if verdict is _REJECT:
                self.rejected += n
            else:
                self.dropped += n
            return verdict
        self.allowed += n
        if verdict is _REJECT:
            self.shadow_rejected += n
        else:
            self.shadow_dropped += n
        return _ALLOW


def _check_count(n: int) -> None:
    if n < 0:
        raise ValueError(f"n = {n}: allowed is 0 or more requests")
