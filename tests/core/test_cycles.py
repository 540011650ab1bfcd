"""DESIGN §5: what `advance` returns, what it may leave out, and what a gap costs (in evaluations, never in time)."""

from __future__ import annotations

import pytest

from sipguard import Policy, State, Verdict
from sipguard.core.controller import MAX_KEPT
from tests.core.windows import MS, SECOND, A, C, N, controller, in_state, states

DAY = 86_400 * SECOND


def test_cycles_evaluated_inside_admit_are_returned_by_the_next_advance() -> None:
    """DESIGN §5: once, in order, whoever evaluated them."""
    c = controller()
    c.admit_many("INVITE", 11, now_ns=0)
    c.admit("INVITE", now_ns=150 * MS)
    c.admit_many("INVITE", 2, now_ns=250 * MS)
    c.advance_to(300 * MS)
    assert c.advance(now_ns=400 * MS) == [
        (100 * MS, 11, 110, A),
        (200 * MS, 1, 10, A),
        (300 * MS, 2, 20, A),
        (400 * MS, 0, 0, N),
    ]
    assert c.advance(now_ns=400 * MS) == []


def test_judge_evaluates_no_cycle_whatever_is_due(evaluated: list[int]) -> None:
    """DESIGN §3, §5: receiving a packet never evaluates; the verdict is by the state as it was last evaluated."""
    c = controller()
    for k in range(100):
        assert c.judge("INVITE", now_ns=k * 50 * MS) is Verdict.ALLOW
    for _ in range(50):
        c.judge("INVITE", now_ns=5 * SECOND)
    c.count(500, now_ns=6 * SECOND)
    assert evaluated == []
    assert (c.state, c.next_deadline_ns, c.changes()) == (N, 100 * MS, [])
    c.advance_to(6 * SECOND)
    assert len(evaluated) == 60
    assert c.changes() != []


def test_judge_rolls_the_second() -> None:
    """DESIGN §5: LCPS is right without any advance."""
    c = controller(LC=10000, LCPS=2)
    found = [c.judge("INVITE", now_ns=second * SECOND).value for second in (0, 0, 0, 1, 1, 1, 1, 1, 1, 3, 3, 3)]
    assert found == ["allow"] * 2 + ["reject"] + ["allow"] * 5 + ["reject"] + ["allow"] * 2 + ["reject"]


@pytest.mark.parametrize("state", [N, A, C])
@pytest.mark.parametrize("tr", [100, 333, 1000])
@pytest.mark.parametrize("shed", ["all", "excess"])
def test_a_day_of_silence_costs_no_more_than_the_calm(state: State, tr: int, shed: str, evaluated: list[int]) -> None:
    """DESIGN §5: at most LRC cycles to normal and the last one; a minute costs as much or more where TR is short."""
    c = in_state(state, Policy(shed="excess") if shed == "excess" else None, TR=tr, LRC=100)
    evaluated.clear()
    begin_ns = c.next_deadline_ns - c.parameters.window_ns
    cycles = c.advance(now_ns=begin_ns + DAY)
    assert len(evaluated) == len(cycles) == (1 if state is N else 101)
    assert c.state is N
    last_ns = begin_ns + DAY // c.parameters.window_ns * c.parameters.window_ns
    assert cycles[-1] == (last_ns, 0, 0, N)
    assert c.next_deadline_ns == last_ns + c.parameters.window_ns
    if state is not N:
        assert [cycle.state for cycle in cycles] == [state] * 99 + [N, N]


def test_a_day_behind_a_waiting_request_costs_no_more(evaluated: list[int]) -> None:
    """DESIGN §5: requests judged and not evaluated yet, a day apart and a day before the timer comes."""
    c = controller()
    for day in range(3):
        c.judge("INVITE", now_ns=day * DAY + 50 * MS)
    cycles = c.advance(now_ns=3 * DAY)
    assert sum(cycle.requests for cycle in cycles) == 3
    assert [cycle.time_ns for cycle in cycles if cycle.requests] == [day * DAY + 100 * MS for day in range(3)]
    assert len(evaluated) == len(cycles) == 6


@pytest.mark.parametrize("entry", ["admit", "admit_many", "reconfigure", "advance"])
def test_every_door_is_as_cheap_after_a_gap(entry: str, evaluated: list[int]) -> None:
    """DESIGN §5: the gap may end in any call."""
    c = in_state(C, LRC=3)
    evaluated.clear()
    if entry == "admit":
        c.admit("INVITE", now_ns=DAY)
    elif entry == "admit_many":
        c.admit_many("INVITE", 5, now_ns=DAY)
    elif entry == "reconfigure":
        c.reconfigure(c.parameters.replaced(LC=5), now_ns=DAY)
    else:
        c.advance_to(DAY)
    assert len(evaluated) == 4
    assert [(change.time_ns, change.after) for change in c.changes()] == [(400 * MS, N)]


@pytest.mark.parametrize(("gap", "kept"), [(999, 999), (1000, 1000), (1001, 1), (1002, 1)])
def test_a_gap_of_up_to_1000_silent_cycles_is_told_whole(gap: int, kept: int) -> None:
    """DESIGN §5: only over 1,000 may any be left out."""
    cycles = controller().advance(now_ns=gap * 100 * MS)
    assert len(cycles) == kept
    assert cycles[-1].time_ns == gap * 100 * MS


@pytest.mark.parametrize("gap", [1001, 1002, 1003, 1004, 1100, 1101, 5000])
@pytest.mark.parametrize("lrc", [1, 3, 100])
def test_the_cycles_that_change_the_state_are_never_left_out(gap: int, lrc: int) -> None:
    """DESIGN §5: the whole calm is told, and the cycle that led into the critical state before it."""
    c = controller(LCDM="drop_only", LRC=lrc)
    c.admit_many("INVITE", 11, now_ns=0)
    cycles = c.advance(now_ns=(1 + gap) * 100 * MS)
    assert cycles[0] == (100 * MS, 11, 110, C)
    assert [cycle.state for cycle in cycles[1 : 1 + lrc]] == [C] * (lrc - 1) + [N]
    assert cycles[lrc].time_ns == (1 + lrc) * 100 * MS
    assert cycles[-1].time_ns == (1 + gap) * 100 * MS
    assert [change.time_ns for change in c.changes()] == [100 * MS, (1 + lrc) * 100 * MS]


def test_at_most_the_last_1000_cycles_and_changes_are_kept() -> None:
    """DESIGN §5: nobody asks, and nothing grows."""
    c = controller(LRC=1)
    for _ in range(1500):
        states(c, 11, 0)
    cycles, changes = c.advance(now_ns=0), c.changes()
    assert len(cycles) == len(changes) == MAX_KEPT == 1000
    assert [cycle.time_ns for cycle in cycles] == [k * 100 * MS for k in range(2001, 3001)]
    assert [change.time_ns for change in changes] == [k * 100 * MS for k in range(2001, 3001)]


def test_lcps_after_a_long_gap_starts_from_nothing() -> None:
    """M3: the seconds of a gap have total 0, however much of it was left out."""
    c = controller(LC=10000, LCPS=2)
    c.admit_many("INVITE", 500, now_ns=0)
    assert c.admit_many("INVITE", 3, now_ns=DAY) == [(Verdict.ALLOW, 2), (Verdict.REJECT, 1)]
    assert c.admit_many("INVITE", 9, now_ns=DAY + SECOND) == [(Verdict.ALLOW, 5), (Verdict.REJECT, 4)]
