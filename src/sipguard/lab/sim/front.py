"""The guard before one server: the controller itself, fed slot by slot, with the result of one request at a time."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from sipguard.core.controller import OverloadController
from sipguard.core.levels import State
from sipguard.core.meters import SECOND_NS
from sipguard.core.verdicts import Change, Verdict
from sipguard.lab.sim.arrays import Codes, Ints
from sipguard.lab.sim.methods import METHODS
from sipguard.lab.sim.scenario import Guard

ALLOW, REJECT, DROP = 0, 1, 2
_CODE = {Verdict.ALLOW: ALLOW, Verdict.REJECT: REJECT, Verdict.DROP: DROP}


class Front:
    """Judges requests in order of time, exactly as `admit` one by one would, by `admit_many` on as many as possible.

    Within one window and one second the time of a request does not matter, only the order. Where not even that matters
    (no request can cross the LCPS bound, or the state alone decides) all requests of one method are one `admit_many`.
    """

    def __init__(self, guard: Guard, *, origin_ns: int = 0) -> None:
        self._guard = guard
        self._changes: list[Change] = []
        self._begin(origin_ns)

    def __repr__(self) -> str:
        return f"<Front {self.controller!r}>"

    def judge(self, times_ns: Ints, methods: Codes) -> Codes:
        """A verdict (ALLOW, REJECT, DROP) for each; times_ns in order."""
        verdicts: Codes = np.empty(len(times_ns), np.int8)
        start, n = 0, len(times_ns)
        last_ns = int(times_ns[-1])
        while start < n:
            now_ns = int(times_ns[start])
            self.controller.advance_to(now_ns)
            self._roll(now_ns)
            end_ns = min(self.controller.next_deadline_ns, self._second_end_ns)
            end = n if last_ns < end_ns else int(np.searchsorted(times_ns, end_ns))
            self._judge_part(verdicts[start:end], methods[start:end], now_ns)
            start = end
        return verdicts

    def changes(self, now_ns: int) -> list[Change]:
        """All changes of state until now; call it at least once in a hundred seconds (the controller keeps 1,000)."""
        self.controller.advance_to(now_ns)
        self._changes += self.controller.changes()
        return self._changes

    def restart(self, now_ns: int) -> None:
        """A new process: normal, nothing counted, windows from now on."""
        changes = self.changes(now_ns)
        before = self.controller
        if before.state is not State.NORMAL:
            lc = before.parameters.LC
            runs = (before.patience_run, before.relax_run)
            changes.append(Change(now_ns, before.state, State.NORMAL, before.rps, lc, *runs, "restart"))
        self._begin(now_ns)

    def _begin(self, origin_ns: int) -> None:
        self.controller = OverloadController(self._guard.parameters, self._guard.policy, origin_ns=origin_ns)
        # This second's total and the one before, as SPEC M3 has them, to know when LCPS cannot bite.
        self._second_end_ns = origin_ns + SECOND_NS
        self._total = self._last = 0
        # Under excess: the end of the window in which something was shed already, so the allowance is spent.
        self._spent_ns = -1

    def _roll(self, now_ns: int) -> None:
        passed = (now_ns - self._second_end_ns) // SECOND_NS + 1
        if passed > 0:
            self._last = self._total if passed == 1 else 0
            self._total = 0
            self._second_end_ns += passed * SECOND_NS

    def _judge_part(self, verdicts: Codes, methods: Codes, now_ns: int) -> None:
        """Requests of one window and one second."""
        if self._order_is_free(len(methods)):
            for code in np.flatnonzero(np.bincount(methods)).tolist():
                places = methods == code
                verdicts[places] = self._runs(code, int(np.count_nonzero(places)), now_ns)
            return
        edges = [0, *(np.flatnonzero(np.diff(methods)) + 1).tolist(), len(methods)]
        for start, end in pairwise(edges):
            verdicts[start:end] = self._runs(int(methods[start]), end - start, now_ns)
            if end < len(methods) and self._order_is_free(len(methods) - end):
                self._judge_part(verdicts[end:], methods[end:], now_ns)
                return

    def _order_is_free(self, n: int) -> bool:
        controller = self.controller
        if controller.state is State.NORMAL:
            growth, lcps = self._total - self._last, controller.parameters.LCPS
            return growth + n <= lcps or growth >= lcps
        return controller.policy.shed == "all" or self._spent_ns == controller.next_deadline_ns

    def _runs(self, code: int, n: int, now_ns: int) -> Codes | int:
        """The verdicts of n requests of one method in a row; one number where all are the same."""
        runs = self.controller.admit_many(METHODS[code], n, now_ns=now_ns)
        self._total += n
        if runs[-1][0] is not Verdict.ALLOW and self.controller.state is not State.NORMAL:
            self._spent_ns = self.controller.next_deadline_ns
        if len(runs) == 1:
            return _CODE[runs[0][0]]
        made: Codes = np.repeat(np.array([_CODE[v] for v, _ in runs], np.int8), [count for _, count in runs])
        return made
