"""SPEC §6: changing parameters while running."""

from __future__ import annotations

from typing import Any

import pytest

from sipguard import OverloadController, Policy, State, Verdict
from tests.core.windows import MS, SECOND, A, C, N, controller, in_state, states

OVER, EQUAL, BELOW = 11, 10, 9


def change(c: OverloadController, now_ns: int | None = None, **values: Any) -> None:
    now_ns = c.next_deadline_ns - c.parameters.window_ns if now_ns is None else now_ns
    c.reconfigure(c.parameters.replaced(**values), now_ns=now_ns)


def test_c1_all_windows_due_are_evaluated_first_by_the_old_parameters() -> None:
    """C1: three windows of 11 were over the old LC, and would not be over the new one."""
    c = controller(PC=2)
    for k in range(3):
        c.judge("BYE", now_ns=k * 100 * MS)
    c.count(30, now_ns=300 * MS)
    change(c, 300 * MS, LC=10000)
    assert [(cycle.rps, cycle.state) for cycle in c.advance(now_ns=0)] == [(110, A), (110, A), (110, C)]
    assert c.parameters.LC == 10000


def test_c1_a_new_tr_discards_the_open_window_and_begins_a_new_one_at_once() -> None:
    """C1: unevaluated; its requests stay in the second."""
    c = controller(LC=100, LCPS=20)
    c.admit_many("INVITE", 15, now_ns=50 * MS)
    change(c, 60 * MS, TR=250)
    assert c.next_deadline_ns == 310 * MS
    assert c.advance(now_ns=310 * MS - 1) == []
    assert c.advance(now_ns=310 * MS) == [(310 * MS, 0, 0, N)]
    # 15 of this second's 20 are gone.
    assert c.admit_many("INVITE", 6, now_ns=400 * MS) == [(Verdict.ALLOW, 5), (Verdict.REJECT, 1)]
    assert c.advance(now_ns=560 * MS) == [(560 * MS, 6, 24, N)]


def test_c1_a_request_at_the_moment_of_a_new_tr() -> None:
    """C1: before the change it goes with the discarded window, after it it is in the new one."""
    c = controller()
    c.admit_many("INVITE", 3, now_ns=50 * MS)
    change(c, 50 * MS, TR=200)
    c.admit_many("INVITE", 2, now_ns=50 * MS)
    assert c.advance(now_ns=250 * MS) == [(250 * MS, 2, 10, N)]


@pytest.mark.parametrize("values", [{"LC": 5}, {"LCPS": 5}, {"LRC": 5}, {"PC": 5}, {"LCDM": "drop_only"}])
def test_c1_any_other_change_leaves_the_open_window_and_the_second_alone(values: dict[str, Any]) -> None:
    """C1."""
    c = controller(LC=10000, LCPS=10)
    c.admit_many("INVITE", 8, now_ns=50 * MS)
    change(c, 60 * MS, **values)
    assert c.next_deadline_ns == 100 * MS
    left = c.parameters.LCPS - 8
    assert c.admit("INVITE", now_ns=60 * MS) is (Verdict.ALLOW if left > 0 else Verdict.REJECT)
    assert c.advance(now_ns=100 * MS)[0].requests == 9


@pytest.mark.parametrize("mode", ["denial_to_drop", "denial_only"])
def test_c2_setting_what_already_is_changes_nothing(mode: str) -> None:
    """C2: also in the middle of both runs."""
    c = controller(LCDM=mode, PC=3, LRC=3)
    states(c, OVER, OVER, OVER)
    same: dict[str, Any] = dict(c.parameters.as_dict())
    runs = (c.patience_run, c.relax_run)
    change(c, c.next_deadline_ns - 50 * MS, **same)
    assert (c.patience_run, c.relax_run) == runs
    assert c.next_deadline_ns == 400 * MS
    assert states(c, OVER) == [C if mode == "denial_to_drop" else A]
    states(c, BELOW, BELOW)
    change(c, **same)
    assert states(c, BELOW) == [N]


def test_c2_lc_is_effective_at_the_next_cycle_and_keeps_the_runs() -> None:
    """C2: the window open at the change is already compared with the new LC."""
    c = controller(PC=4, LRC=4)
    states(c, OVER, OVER, OVER)
    c.admit_many("INVITE", 21, now_ns=350 * MS)
    change(c, 360 * MS, LC=200)
    assert (c.patience_run, c.relax_run) == (2, 0)
    assert c.advance(now_ns=400 * MS)[-1] == (400 * MS, 21, 210, A)
    assert c.patience_run == 3
    assert states(c, BELOW, BELOW) == [A, A]
    change(c, LC=5000)
    assert c.relax_run == 2
    assert states(c, 100, 100) == [A, N]


def test_c2_lcps_is_effective_at_the_next_request() -> None:
    """C2."""
    c = controller(LC=10000, LCPS=2)
    assert c.admit_many("INVITE", 3, now_ns=0) == [(Verdict.ALLOW, 2), (Verdict.REJECT, 1)]
    change(c, 1 * MS, LCPS=5)
    assert c.admit_many("INVITE", 3, now_ns=1 * MS) == [(Verdict.ALLOW, 2), (Verdict.REJECT, 1)]
    change(c, 2 * MS, LCPS=1)
    assert c.admit("INVITE", now_ns=2 * MS) is Verdict.REJECT


@pytest.mark.parametrize(
    ("values", "after_patience", "after_relax"),
    [
        ({"LC": 99}, 2, 2),
        ({"LCPS": 9}, 2, 2),
        ({"PC": 50}, 0, 2),
        ({"PC": 1}, 0, 2),
        ({"LCDM": "denial_only"}, 0, 2),
        ({"LCDM": "drop_only"}, 0, 2),
        ({"LRC": 50}, 2, 0),
        ({"LRC": 1}, 2, 0),
        ({"TR": 200}, 0, 0),
        ({"PC": 50, "LRC": 50}, 0, 0),
    ],
)
def test_c2_which_run_starts_again(values: dict[str, Any], after_patience: int, after_relax: int) -> None:
    """C2: PC, LCDM: patience; LRC: relax; TR: both; LC, LCPS: neither. A limit below a run moves no state."""
    c = controller(PC=5, LRC=5)
    states(c, OVER, OVER, OVER)
    assert (c.patience_run, c.relax_run) == (2, 0)
    change(c, **values)
    assert (c.patience_run, c.relax_run) == (after_patience, 0)
    c = controller(PC=5, LRC=5)
    states(c, OVER, BELOW, BELOW)
    assert (c.patience_run, c.relax_run) == (0, 2)
    change(c, **values)
    assert (c.patience_run, c.relax_run) == (0, after_relax)
    assert c.state is (C if values.get("LCDM") == "drop_only" else A)


@pytest.mark.parametrize(
    ("state", "old", "new", "after"),
    [
        (N, "denial_to_drop", "drop_only", N),
        (N, "drop_only", "denial_only", N),
        (N, "denial_only", "denial_to_drop", N),
        (A, "denial_to_drop", "drop_only", C),
        (A, "denial_only", "drop_only", C),
        (A, "denial_only", "denial_to_drop", A),
        (A, "denial_to_drop", "denial_only", A),
        (C, "denial_to_drop", "denial_only", A),
        (C, "drop_only", "denial_only", A),
        (C, "drop_only", "denial_to_drop", C),
        (C, "denial_to_drop", "drop_only", C),
    ],
)
def test_c2_a_new_mode_in_every_state(state: State, old: str, new: str, after: State) -> None:
    """C2: drop_only → critical, denial_only → around, denial_to_drop keeps; normal stays. At once, and told by `changes`."""
    c = controller(LCDM=old, PC=1)
    if state is not N:
        states(c, OVER)
    if state is C and old == "denial_to_drop":
        states(c, OVER)
    assert c.state is state
    now_ns = c.next_deadline_ns - 30 * MS
    c.changes()
    change(c, now_ns, LCDM=new)
    assert c.state is after
    expected = [(now_ns, state, after, c.rps, 100, 0, 0, "reconfigure")] if after is not state else []
    assert c.changes() == expected
    shed = {N: Verdict.ALLOW, A: Verdict.REJECT, C: Verdict.DROP}[after]
    assert c.admit("INVITE", now_ns=now_ns) is shed


def test_c2_the_way_on_after_a_new_mode() -> None:
    """C2: around from critical has its full patience; critical kept under denial_to_drop relaxes to normal as ever."""
    c = in_state(C, PC=2, LRC=2)
    change(c, LCDM="denial_only")
    change(c, LCDM="denial_to_drop")
    assert states(c, OVER, OVER) == [A, C]
    change(c, LCDM="drop_only")
    assert states(c, OVER, BELOW, BELOW) == [C, C, N]


def test_c2_the_change_record_has_the_runs_before_the_change() -> None:
    """`changes`: what a new mode cut short can be read from the record."""
    c = controller(PC=9)
    states(c, OVER, OVER, 15)
    c.changes()
    change(c, LCDM="drop_only", LC=50, TR=500)
    assert c.changes() == [(300 * MS, A, C, 150, 50, 2, 0, "reconfigure")]


def test_c2_a_new_tr_starts_the_fraction_and_the_allowance_again() -> None:
    """C2, X1: the new window opens in a critical state with an allowance of its own."""
    c = in_state(A, Policy(shed="excess"), LC=15, TR=100)  # 1.5 a window: 1, 2, 1, 2, …
    assert c.admit_many("INVITE", 9, now_ns=0)[0] == (Verdict.ALLOW, 1)
    change(c, 150 * MS, TR=200)  # 3 a window, no fraction carried
    assert c.admit_many("INVITE", 9, now_ns=160 * MS)[0] == (Verdict.ALLOW, 3)
    change(c, 170 * MS, TR=125)  # 1.875 a window
    assert c.admit_many("INVITE", 9, now_ns=180 * MS)[0] == (Verdict.ALLOW, 1)
    assert c.admit_many("INVITE", 9, now_ns=295 * MS)[0] == (Verdict.ALLOW, 2)


def test_nothing_of_a_refused_change_is_applied() -> None:
    """P1: the object is refused before it reaches the controller."""
    c = controller()
    with pytest.raises(ValueError, match="TR = 5"):
        change(c, LC=7, TR=5)
    assert c.parameters.LC == 100


def test_the_seconds_go_on_over_a_change() -> None:
    """C1, M3."""
    c = controller(LC=10000, LCPS=3)
    c.admit_many("INVITE", 3, now_ns=SECOND - 1)
    change(c, SECOND, TR=1000, LRC=9, PC=9, LCDM="drop_only")
    assert c.admit_many("INVITE", 9, now_ns=SECOND) == [(Verdict.ALLOW, 6), (Verdict.REJECT, 3)]
