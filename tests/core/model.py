"""SPEC §3–§7 once more, as plainly as it can be said: every event is kept in a list and every sum is taken over the list.

Slow on purpose, and it shares nothing with sipguard.core: parameters are a dict of plain values, states and verdicts are
strings. What it says and what core says must be the same.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NamedTuple

MS = 10**6
SECOND = 10**9
NINE = {"REGISTER", "SUBSCRIBE", "MESSAGE", "INVITE", "OPTIONS", "INFO", "UPDATE", "REFER", "PRACK"}
NORMAL, AROUND, CRITICAL = "normal", "around_critical_limit", "critical_limit"


class Event(NamedTuple):
    """n requests at time_ns."""

    time_ns: int
    n: int


class Model:
    """The law over a list of events. Times in ns on the clock of origin_ns."""

    def __init__(
        self,
        parameters: dict[str, Any],
        *,
        shed: str = "all",
        enforce: bool = True,
        refuse_methods: set[str] | None = None,
        drop_methods: set[str] | None = None,
        origin_ns: int = 0,
    ) -> None:
        self.p = dict(parameters)
        self.shed, self.enforce = shed, enforce
        self.refuse = NINE if refuse_methods is None else refuse_methods
        self.drop = NINE if drop_methods is None else drop_methods
        self.origin_ns = origin_ns
        self.now_ns = origin_ns
        self.events: list[Event] = []
        # The grid of windows: where it begins, how many of its windows are evaluated, the first event that is its own.
        self.grid_ns, self.evaluated, self.first_event = origin_ns, 0, 0
        self.state, self.patience, self.relax, self.rps = NORMAL, 0, 0, 0
        # X1: the allowance as an exact fraction, and the requests passed since the window opened.
        self.allowance, self.passed = Fraction(0), 0
        self.cycles: list[tuple[int, int, int, str]] = []
        self.changes: list[tuple[int, str, str, int, int, int, int, str]] = []
        self.counters = {"allow": 0, "reject": 0, "drop": 0, "shadow reject": 0, "shadow drop": 0}

    # M1, M3: sums over the list.

    def in_window(self, k: int) -> int:
        """Requests in window k of the grid."""
        begin, length = self.grid_ns, self.p["TR"] * MS
        return sum(e.n for e in self.events[self.first_event :] if (e.time_ns - begin) // length == k)

    def in_second(self, k: int) -> int:
        """Requests in second k from the origin."""
        return sum(e.n for e in self.events if (e.time_ns - self.origin_ns) // SECOND == k)

    def ended(self) -> int:
        """How many windows of the grid have ended."""
        length: int = self.p["TR"] * MS
        return (self.now_ns - self.grid_ns) // length

    # What happens.

    def move(self, now_ns: int) -> None:
        """M4."""
        self.now_ns = max(self.now_ns, now_ns)

    def admit(self, method: str, now_ns: int) -> str:
        self.advance(now_ns)
        return self.judge(method, now_ns)

    def judge(self, method: str, now_ns: int, sheddable: bool = True) -> str:
        self.move(now_ns)
        self.events.append(Event(self.now_ns, 1))
        verdict = self.verdict(method) if sheddable else "allow"
        if verdict == "allow":
            self.passed += 1
        if not self.enforce and verdict != "allow":
            self.counters[f"shadow {verdict}"] += 1
            verdict = "allow"
        self.counters[verdict] += 1
        return verdict

    def count(self, n: int, now_ns: int) -> None:
        """DESIGN §5: the open window; if it has ended, that one; if several have, evenly, the remainder to the first."""
        self.move(now_ns)
        late = range(self.evaluated, self.ended())
        if not late:
            self.events.append(Event(self.now_ns, n))
        for i, k in enumerate(late):
            last_ns = self.grid_ns + (k + 1) * self.p["TR"] * MS - 1
            self.events.append(Event(last_ns, n // len(late) + (1 if i < n % len(late) else 0)))

    def advance(self, now_ns: int) -> None:
        self.move(now_ns)
        while self.evaluated < self.ended():
            self.evaluate()

    def evaluate(self) -> None:
        requests = self.in_window(self.evaluated)
        self.evaluated += 1
        time_ns = self.grid_ns + self.evaluated * self.p["TR"] * MS
        self.rps = requests * (1000 // self.p["TR"])
        before = self.state
        self.level(time_ns)
        self.cycles.append((time_ns, requests, self.rps, self.state))
        carried = self.allowance - self.allowance.__floor__()
        self.open_allowance(Fraction(0) if before == NORMAL else carried)

    def open_allowance(self, carried: Fraction) -> None:
        """X1: for a window that opens in a critical state."""
        self.passed = 0
        if self.state == NORMAL:
            self.allowance = Fraction(0)
        else:
            self.allowance = carried + Fraction(self.p["LC"], 1000 // self.p["TR"])

    def level(self, time_ns: int) -> None:
        """L1–L7."""
        over, below, mode = self.rps > self.p["LC"], self.rps < self.p["LC"], self.p["LCDM"]
        if self.state == NORMAL:
            if over:
                self.go(time_ns, CRITICAL if mode == "drop_only" else AROUND, "level")
            return
        self.relax = self.relax + 1 if below else 0
        if self.state == AROUND:
            if not over:
                self.patience = 0
            elif mode == "denial_to_drop":
                self.patience += 1
                if self.patience == self.p["PC"]:
                    self.go(time_ns, CRITICAL, "level")
                    return
        if self.relax == self.p["LRC"]:
            self.go(time_ns, NORMAL, "level")

    def go(self, time_ns: int, state: str, cause: str) -> None:
        self.changes.append((time_ns, self.state, state, self.rps, self.p["LC"], self.patience, self.relax, cause))
        self.state = state
        if cause == "level":
            self.patience = self.relax = 0

    def verdict(self, method: str) -> str:
        """V1–V4, X1, for the request that is the last of the list."""
        if self.state == NORMAL:
            second = (self.now_ns - self.origin_ns) // SECOND
            growth = self.in_second(second) - self.in_second(second - 1)
            return "reject" if growth > self.p["LCPS"] and method in self.refuse and method != "ACK" else "allow"
        if self.state == AROUND:
            shed, sheddable = "reject", method in self.refuse and method != "ACK"
        else:
            shed, sheddable = "drop", method in self.drop
        if not sheddable or (self.shed == "excess" and self.passed < self.allowance.__floor__()):
            return "allow"
        return shed

    def reconfigure(self, parameters: dict[str, Any], now_ns: int) -> None:
        """C1, C2."""
        self.advance(now_ns)
        old, new = self.p, dict(parameters)
        changed = {name for name in new if new[name] != old[name]}
        self.p = new
        if "LCDM" in changed and self.state != NORMAL:
            forced = {"drop_only": CRITICAL, "denial_only": AROUND}.get(new["LCDM"], self.state)
            if forced != self.state:
                self.go(self.now_ns, forced, "reconfigure")
        if changed & {"PC", "LCDM", "TR"}:
            self.patience = 0
        if changed & {"LRC", "TR"}:
            self.relax = 0
        if "TR" in changed:
            self.grid_ns, self.evaluated, self.first_event = self.now_ns, 0, len(self.events)
            self.open_allowance(Fraction(0))
