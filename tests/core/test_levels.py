"""SPEC §4: the level, cycle by cycle. LC 100 at TR 100: 11 requests are over, 10 equal, 9 below; LRC 3, PC 4."""

from __future__ import annotations

from itertools import product

import pytest

from sipguard import Lcdm, Parameters, Policy, State
from sipguard.core.levels import TABLE, LevelMachine, Load
from tests.core.windows import MS, A, C, N, controller, in_state, states

OVER, EQUAL, BELOW = 11, 10, 9
MODES = ("denial_to_drop", "denial_only", "drop_only")


def test_a_new_controller_is_normal_and_has_seen_nothing() -> None:
    """SPEC §2, DESIGN §5: all that can be read before the first cycle."""
    c = controller(origin_ns=7)
    assert (c.state, c.rps, c.patience_run, c.relax_run) == (N, 0, 0, 0)
    assert (c.allowed, c.rejected, c.dropped, c.shadow_rejected, c.shadow_dropped) == (0, 0, 0, 0, 0)
    assert (c.origin_ns, c.next_deadline_ns) == (7, 7 + 100 * MS)
    assert (c.parameters.LC, c.policy) == (100, Policy())
    assert (c.advance(now_ns=7), c.changes()) == ([], [])


@pytest.mark.parametrize(("mode", "entered"), [("denial_to_drop", A), ("denial_only", A), ("drop_only", C)])
def test_l1_over_leaves_normal_by_the_mode(mode: str, entered: State) -> None:
    """L1: to critical_limit under drop_only, else to around; both runs start at 0."""
    c = controller(LCDM=mode)
    assert states(c, BELOW, EQUAL, EQUAL, OVER) == [N, N, N, entered]
    assert (c.patience_run, c.relax_run) == (0, 0)


@pytest.mark.parametrize("mode", MODES)
def test_l1_equal_is_neither(mode: str) -> None:
    """SPEC §4: RPS = LC is neither over nor below: it leaves normal never, and proves no calm."""
    assert set(states(controller(LCDM=mode), *[EQUAL] * 20)) == {N}
    entered = A if mode != "drop_only" else C
    assert set(states(controller(LCDM=mode), OVER, *[EQUAL] * 20)) == {entered}


def test_l2_503_lasts_exactly_pc_cycles_after_entry() -> None:
    """L2: the entering cycle is not counted; with PC 4 the fourth over after it drops."""
    c = controller(PC=4)
    assert states(c, OVER, OVER, OVER, OVER, OVER) == [A, A, A, A, C]
    entry, drop = c.changes()
    assert (entry.time_ns, drop.time_ns) == (100 * MS, 500 * MS)
    assert drop.time_ns - entry.time_ns == c.parameters.patience_ms * MS == 400 * MS
    assert states(controller(PC=1), OVER, OVER) == [A, C]


def test_l2_the_widest_patience_is_counted_out() -> None:
    """L2, SPEC §1: PC 10000."""
    c = controller(PC=10000)
    found = states(c, *[OVER] * 10_001)
    assert found == [A] * 10_000 + [C]


def test_l3_denial_only_never_drops() -> None:
    """L3: PC is not used."""
    c = controller(LCDM="denial_only", PC=1)
    assert set(states(c, *[OVER] * 50)) == {A}
    assert c.patience_run == 0


@pytest.mark.parametrize("pause", [EQUAL, BELOW])
def test_l4_the_excess_must_be_continuous(pause: int) -> None:
    """L4: one cycle that is not over, and patience starts again."""
    c = controller(PC=3, LRC=3)
    assert states(c, OVER, OVER, OVER) == [A, A, A]
    assert c.patience_run == 2
    assert states(c, pause) == [A]
    assert c.patience_run == 0
    assert states(c, OVER, OVER, OVER) == [A, A, C]


@pytest.mark.parametrize("state", [A, C])
def test_l5_the_first_cycle_below_counts_as_one(state: State) -> None:
    """L5: the calm lasts LRC·TR in all."""
    c = in_state(state, LRC=3)
    assert states(c, BELOW, BELOW, BELOW) == [state, state, N]
    (change,) = c.changes()
    assert change.time_ns - 100 * MS == c.parameters.relax_ms * MS == 300 * MS
    assert states(in_state(state, LRC=1), BELOW) == [N]
    assert states(in_state(state, LRC=100), *[0] * 100) == [state] * 99 + [N]


@pytest.mark.parametrize("state", [A, C])
@pytest.mark.parametrize("breach", [EQUAL, OVER])
def test_l5_any_cycle_that_is_not_below_starts_the_calm_again(state: State, breach: int) -> None:
    """L5: RPS = LC is not below."""
    c = in_state(state, LRC=3)
    assert states(c, BELOW, BELOW, breach) == [state] * 3
    assert c.relax_run == 0
    assert states(c, BELOW, BELOW, BELOW) == [state, state, N]


@pytest.mark.parametrize("mode", ["denial_to_drop", "drop_only"])
def test_l6_critical_over_stays_critical(mode: str) -> None:
    """L6: never back through around."""
    c = controller(LCDM=mode, PC=1)
    states(c, OVER, OVER)
    assert set(states(c, *[OVER, EQUAL, BELOW] * 20)) == {C}


@pytest.mark.parametrize("mode", MODES)
def test_l7_the_way_back_is_straight_to_normal(mode: str) -> None:
    """L7; and what follows begins afresh (L1): full patience, full calm."""
    c = controller(LCDM=mode, PC=2, LRC=2)
    states(c, OVER, OVER, OVER, OVER)
    assert c.state is (A if mode == "denial_only" else C)
    assert states(c, BELOW, BELOW) == [A if mode == "denial_only" else C, N]
    assert (c.patience_run, c.relax_run) == (0, 0)
    first = C if mode == "drop_only" else A
    assert states(c, OVER, BELOW, BELOW) == [first, first, N]


def test_runs_of_the_two_kinds_never_stand_together() -> None:
    """L2, L4, L5: a cycle that raises one run sets the other to 0."""
    c = controller(PC=9, LRC=9)
    runs = []
    for n in (OVER, OVER, OVER, BELOW, BELOW, OVER, EQUAL, BELOW):
        states(c, n)
        runs.append((c.patience_run, c.relax_run))
    assert runs == [(0, 0), (1, 0), (2, 0), (0, 1), (0, 2), (1, 0), (0, 0), (0, 1)]


def test_a_change_carries_the_figures_that_made_it() -> None:
    """The Change records of one whole way: entry, patience over, calm proven."""
    c = controller(PC=2, LRC=3)
    states(c, OVER, 20, OVER, 5, BELOW, 0)
    assert [tuple(change) for change in c.changes()] == [
        (100 * MS, N, A, 110, 100, 0, 0, "level"),
        (300 * MS, A, C, 110, 100, 2, 0, "level"),
        (600 * MS, C, N, 0, 100, 0, 3, "level"),
    ]
    assert c.changes() == []


def test_the_table_has_one_row_for_each_case_that_can_occur() -> None:
    """SPEC §4: every state under every load and mode once, but for the two pairs that L1 and C2 make impossible."""
    cases = [(row.state, load, mode) for row in TABLE for load in row.loads for mode in row.modes]
    assert len(cases) == len(set(cases))
    impossible = {(A, Lcdm.DROP_ONLY), (C, Lcdm.DENIAL_ONLY)}
    assert set(cases) == {
        (state, load, mode) for state, load, mode in product(State, Load, Lcdm) if (state, mode) not in impossible
    }
    assert {rule for row in TABLE for rule in row.rules.split()} == {f"L{k}" for k in range(1, 8)}


def test_the_machine_says_where_it_stands() -> None:
    """A repr made to be asserted on (DESIGN §2)."""
    level = LevelMachine()
    parameters = Parameters(LC=100, PC=4)
    for rps in (101, 101, 101):
        level.evaluate(rps, parameters)
    assert repr(level) == "<level around_critical_limit patience=2 relax=0>"
