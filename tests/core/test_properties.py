"""What holds for every script of requests, clocks and reconfigurations (SPEC §3–§7, DESIGN §5)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sipguard import Change, OverloadController, Parameters, Policy, State
from sipguard.core.policy import SHEDDABLE_METHODS
from tests.core.model import Model
from tests.core.scripts import (
    MS,
    TRS,
    Step,
    calms,
    counts,
    loads,
    parameters,
    policies,
    requests,
    scripts,
    sets,
    settled,
    ticked_loads,
    ticks,
    turns,
    waits,
)

ORIGINS = st.sampled_from((0, 0, 1, 123_456_789_012_345, -5_000_000_000))
SHEDDABLE = sorted(SHEDDABLE_METHODS)


class Player:
    """Feeds a script to a controller in one of several ways and writes down what comes out."""

    def __init__(self, values: dict[str, Any], policy: dict[str, Any], origin_ns: int = 0) -> None:
        self.controller = OverloadController(Parameters(**values), Policy(**policy), origin_ns=origin_ns)
        self.latest_ns = origin_ns
        self.verdicts: list[list[tuple[str, int]]] = []
        self.cycles: list[tuple[int, int, int, str]] = []
        self.changes: list[tuple[int, str, str, int, int, int, int, str]] = []
        self.offered = 0

    def play(self, script: list[Step], feed: str, between: Sequence[int] = ()) -> Player:
        for step in script:
            self.play_step(step, feed, between)
        return self

    def play_step(self, step: Step, feed: str, between: Sequence[int] = ()) -> None:
        controller, begin_ns = self.controller, self.latest_ns
        now_ns = step.now_ns(begin_ns, controller.parameters.window_ns)
        self.latest_ns = max(begin_ns, now_ns)
        if feed == "extra":
            for per_mille in between:
                self.collect(begin_ns + max(0, now_ns - begin_ns) * per_mille // 1000)
                controller.reconfigure(controller.parameters, now_ns=begin_ns)
        elif feed == "judge" or step.kind in ("tick", "count"):
            self.collect(now_ns)
        if step.kind == "requests":
            self.verdicts.append(self.request(step, feed, now_ns))
            self.offered += step.n
        elif step.kind == "count":
            controller.count(step.n, now_ns=now_ns)
        elif step.kind == "set":
            controller.reconfigure(controller.parameters.replaced(**dict(step.changes)), now_ns=now_ns)

    def request(self, step: Step, feed: str, now_ns: int) -> list[tuple[str, int]]:
        controller = self.controller
        if feed == "many":
            return [(verdict.value, n) for verdict, n in controller.admit_many(step.method, step.n, now_ns=now_ns)]
        one = controller.judge if feed == "judge" else controller.admit
        single = [one(step.method, now_ns=now_ns).value for _ in range(step.n)]
        return [(verdict, len(list(run))) for verdict, run in groupby(single)]

    def collect(self, now_ns: int) -> None:
        self.cycles += [(c.time_ns, c.requests, c.rps, c.state.value) for c in self.controller.advance(now_ns=now_ns)]
        self.changes += [plain(change) for change in self.controller.changes()]

    def trace(self, end_ns: int = 2_000 * MS) -> dict[str, Any]:
        """All that can be seen from outside, after end_ns of calm."""
        self.collect(self.latest_ns + end_ns)
        c = self.controller
        return {
            "verdicts": self.verdicts,
            "cycles": self.cycles[-1000:],
            "changes": self.changes[-1000:],
            "counters": {
                "allow": c.allowed,
                "reject": c.rejected,
                "drop": c.dropped,
                "shadow reject": c.shadow_rejected,
                "shadow drop": c.shadow_dropped,
            },
            "level": (c.state.value, c.rps, c.patience_run, c.relax_run),
        }


def plain(change: Change) -> tuple[int, str, str, int, int, int, int, str]:
    return (change.time_ns, change.before.value, change.after.value, *change[3:])


def model_trace(model: Model, verdicts: list[list[tuple[str, int]]]) -> dict[str, Any]:
    return {
        "verdicts": verdicts,
        "cycles": model.cycles[-1000:],
        "changes": model.changes[-1000:],
        "counters": model.counters,
        "level": (model.state, model.rps, model.patience, model.relax),
    }


@settled
@given(parameters(), policies(), scripts(requests(), requests(), loads(), calms(), counts(), sets(), turns()), ORIGINS)
def test_core_is_the_naive_model(
    values: dict[str, Any], policy: dict[str, Any], script: list[Step], origin_ns: int
) -> None:
    """M1–M4, L1–L7, V1–V4, C1–C2, X1, X2 against a model that keeps every event."""
    player = Player(values, policy, origin_ns).play(script, "single")
    model = Model(values, **policy, origin_ns=origin_ns)
    verdicts: list[list[tuple[str, int]]] = []
    latest_ns = origin_ns
    for step in script:
        now_ns = step.now_ns(latest_ns, model.p["TR"] * MS)
        latest_ns = max(latest_ns, now_ns)
        if step.kind == "requests":
            single = [model.admit(step.method, now_ns) for _ in range(step.n)]
            verdicts.append([(verdict, len(list(run))) for verdict, run in groupby(single)])
        elif step.kind == "count":
            model.advance(now_ns)
            model.count(step.n, now_ns)
        else:
            model.reconfigure({**model.p, **dict(step.changes)}, now_ns)
    model.advance(latest_ns + 2_000 * MS)
    assert player.trace() == model_trace(model, verdicts)


@settled
@given(
    parameters(),
    policies(),
    scripts(requests(), ticked_loads(), ticked_loads(), counts(), ticks(), sets()),
    st.booleans(),
)
def test_a_live_edge_is_the_naive_model(
    values: dict[str, Any], policy: dict[str, Any], script: list[Step], sheddable: bool
) -> None:
    """DESIGN §3, §5: judge and count evaluate no cycle, whatever is due; a late tick finds each request in its window (M1)."""
    controller = OverloadController(Parameters(**values), Policy(**policy))
    model = Model(values, **policy)
    latest_ns = 0
    for step in script:
        now_ns = step.now_ns(latest_ns, model.p["TR"] * MS)
        latest_ns = max(latest_ns, now_ns)
        if step.kind == "requests":
            for _ in range(step.n):
                verdict = controller.judge(step.method, now_ns=now_ns, sheddable=sheddable)
                assert verdict.value == model.judge(step.method, now_ns, sheddable)
        elif step.kind == "count":
            controller.count(step.n, now_ns=now_ns)
            model.count(step.n, now_ns)
        elif step.kind == "tick":
            found = [(c.time_ns, c.requests, c.rps, c.state.value) for c in controller.advance(now_ns=now_ns)]
            model.advance(now_ns)
            assert found == model.cycles[-1000:]
            model.cycles.clear()
        else:
            controller.reconfigure(controller.parameters.replaced(**dict(step.changes)), now_ns=now_ns)
            model.reconfigure({**model.p, **dict(step.changes)}, now_ns)
    assert [plain(change) for change in controller.changes()] == model.changes
    assert (controller.state.value, controller.patience_run, controller.relax_run) == (
        model.state,
        model.patience,
        model.relax,
    )


@settled
@given(parameters(), policies(), scripts(), st.lists(st.integers(-200, 1000), max_size=4))
def test_the_feed_does_not_matter(
    values: dict[str, Any], policy: dict[str, Any], script: list[Step], between: list[int]
) -> None:
    """DESIGN §5: one by one, admit_many, judge + advance at the same instants, extra advances (and empty changes, C2)."""
    expected = Player(values, policy).play(script, "single").trace()
    for feed in ("many", "judge", "extra"):
        assert Player(values, policy).play(script, feed, between).trace() == expected, feed


#: SPEC §4: (from, to) by LCDM; SPEC C2: (from, to) by the new LCDM.
LEVEL_EDGES = {
    "denial_to_drop": {("normal", "around"), ("around", "critical"), ("around", "normal"), ("critical", "normal")},
    "denial_only": {("normal", "around"), ("around", "normal")},
    "drop_only": {("normal", "critical"), ("critical", "normal")},
}
MODE_EDGES = {"drop_only": {("around", "critical")}, "denial_only": {("critical", "around")}, "denial_to_drop": set()}


@settled
@given(parameters(), policies(), scripts())
def test_the_state_moves_only_along_the_edges_of_the_specification(
    values: dict[str, Any], policy: dict[str, Any], script: list[Step]
) -> None:
    """L1–L7 and C2; and `changes` is the whole story: each begins where the one before ended, none is missing."""
    player = Player(values, policy)
    controller = player.controller
    state = State.NORMAL
    for step in script:
        mode = controller.parameters.LCDM.value
        player.play_step(step, "single")
        for change in controller.changes():
            edge = (change.before.name.lower(), change.after.name.lower())
            if change.cause == "level":
                assert edge in LEVEL_EDGES[mode]
            else:
                assert change.cause == "reconfigure"
                assert edge in MODE_EDGES[controller.parameters.LCDM.value]
            assert change.before is state
            state = change.after
        assert controller.state is state


@settled
@given(parameters(), policies(), scripts(), st.sampled_from(("single", "many", "judge")))
def test_counters_add_up(values: dict[str, Any], policy: dict[str, Any], script: list[Step], feed: str) -> None:
    """Never negative, never falling; allowed + rejected + dropped is what was offered, shadow counts are allowed ones (X2)."""
    player = Player(values, policy)
    c = player.controller
    before = (0, 0, 0, 0, 0)
    for step in script:
        player.play_step(step, feed)
        now = (c.allowed, c.rejected, c.dropped, c.shadow_rejected, c.shadow_dropped)
        assert all(old <= new for old, new in zip(before, now, strict=True))
        assert c.allowed + c.rejected + c.dropped == player.offered
        assert c.shadow_rejected + c.shadow_dropped <= c.allowed
        assert not (c.rejected or c.dropped) if not policy["enforce"] else not (c.shadow_rejected or c.shadow_dropped)
        before = now
    returned = [run for runs in player.verdicts for run in runs]
    totals = tuple(sum(n for verdict, n in returned if verdict == name) for name in ("allow", "reject", "drop"))
    assert totals == before[:3]


@settled
@given(parameters(), policies(), scripts())
def test_shadow_decides_as_if_enforced(values: dict[str, Any], policy: dict[str, Any], script: list[Step]) -> None:
    """X2: the same cycles, level and figures; every verdict is allow."""
    enforced = Player(values, {**policy, "enforce": True}).play(script, "single").trace()
    shadow = Player(values, {**policy, "enforce": False}).play(script, "single").trace()
    assert (shadow["cycles"], shadow["changes"], shadow["level"]) == (
        enforced["cycles"],
        enforced["changes"],
        enforced["level"],
    )
    assert {verdict for runs in shadow["verdicts"] for verdict, _ in runs} <= {"allow"}
    would_be = enforced["counters"]
    assert shadow["counters"] == {
        "allow": would_be["allow"] + would_be["reject"] + would_be["drop"],
        "reject": 0,
        "drop": 0,
        "shadow reject": would_be["reject"],
        "shadow drop": would_be["drop"],
    }


def overloaded(lc: int, tr: int, mode: str) -> OverloadController:
    """A controller in a critical state at the beginning of a window; LRC is so long that it stays in one."""
    controller = OverloadController(
        Parameters(LC=lc, LCDM=mode, LCPS=10000, LRC=100, PC=3, TR=tr), Policy(shed="excess"), origin_ns=0
    )
    controller.admit_many("INVITE", lc + 1, now_ns=0)
    controller.advance(now_ns=tr * MS)
    assert controller.state is not State.NORMAL
    return controller


BURSTS = st.lists(st.tuples(st.sampled_from(("INVITE", "OPTIONS", "BYE", "ACK")), st.integers(0, 12)), max_size=5)


@settled
@given(
    st.integers(1, 60),
    st.sampled_from(TRS),
    st.sampled_from(("denial_to_drop", "denial_only", "drop_only")),
    st.lists(BURSTS, min_size=1, max_size=20),
)
def test_excess_admits_what_the_allowance_leaves(
    lc: int, tr: int, mode: str, windows: list[list[tuple[str, int]]]
) -> None:
    """X1: of each burst of sheddable requests exactly min(n, max(0, allowance − already passed)); the others all pass."""
    controller = overloaded(lc, tr, mode)
    scale = 1000 // tr
    for k, bursts in enumerate(windows):
        now_ns = (k + 1) * tr * MS
        # The fraction is carried: k windows have had floor(k · LC / scale) together.
        allowance = (k + 1) * lc // scale - k * lc // scale
        passed = sheddable_passed = offered = 0
        for method, n in bursts:
            runs = controller.admit_many(method, n, now_ns=now_ns)
            admitted = sum(count for verdict, count in runs if verdict.value == "allow")
            if method in SHEDDABLE_METHODS:
                assert admitted == min(n, max(0, allowance - passed))
                sheddable_passed += admitted
                offered += n
            else:
                assert admitted == n
            passed += admitted
        if all(method in SHEDDABLE_METHODS for method, _ in bursts):
            assert sheddable_passed == min(offered, allowance)
        assert sheddable_passed <= allowance
        assert controller.state is not State.NORMAL


@settings(settled, max_examples=60)
@given(
    parameters(),
    scripts(requests(), loads(), least=1),
    st.integers(1_002, 1_600),
    scripts(requests(), loads(), least=1),
)
def test_a_long_gap_leaves_out_only_what_changes_nothing(
    values: dict[str, Any], before: list[Step], gap: int, after: list[Step]
) -> None:
    """DESIGN §5: left-out cycles are silent, in normal, and everything after the gap is as if none had been left out."""
    jumps, steps = Player(values, {}), Player(values, {})
    for player in (jumps, steps):
        player.play(before, "judge")
    end_ns = jumps.latest_ns + gap * values["TR"] * MS
    while steps.controller.next_deadline_ns <= end_ns:
        steps.collect(steps.controller.next_deadline_ns)
    for player in (jumps, steps):
        player.collect(end_ns)
        player.latest_ns = end_ns
    all_cycles, kept = steps.cycles, set(jumps.cycles)
    assert kept <= set(all_cycles)
    assert all_cycles[-1] in kept
    for previous, cycle in pairwise([(0, 0, 0, "normal"), *all_cycles]):
        if cycle not in kept:
            assert cycle[1] == 0
            assert cycle[3] == previous[3] == "normal"
    # Both go on from the same point.
    jumps.cycles, steps.cycles = [], []
    assert jumps.play(after, "single").trace() == steps.play(after, "single").trace()


@settled
@given(parameters(), st.lists(st.tuples(waits(), st.integers(0, 5000)), max_size=6), st.integers(0, 4_000))
def test_no_counted_request_is_lost(values: dict[str, Any], reports: list[tuple[int, int]], calm_ms: int) -> None:
    """DESIGN §5 count: however late and however uneven, the cycles together hold what was counted."""
    controller = OverloadController(Parameters(**values))
    latest_ns = 0
    for wait_ns, n in reports:
        latest_ns = max(latest_ns, latest_ns + wait_ns)
        controller.count(n, now_ns=latest_ns)
    latest_ns += calm_ms * MS
    cycles = controller.advance(now_ns=latest_ns)
    cycles += controller.advance(now_ns=controller.next_deadline_ns)
    assert sum(cycle.requests for cycle in cycles) == sum(n for _, n in reports)
