"""SPEC X1: shed = excess. LC 100 at TR 100 is 10 requests a window."""

from __future__ import annotations

import pytest

from sipguard import OverloadController, Policy, State, Verdict
from tests.core.windows import MS, SECOND, A, C, N, controller, in_state, states

EXCESS = Policy(shed="excess")
SHED = {A: Verdict.REJECT, C: Verdict.DROP}


def passed(c: OverloadController, *bursts: tuple[str, int]) -> list[int]:
    """How many of each burst are let through in the window that begins now; then its end is evaluated."""
    now_ns = c.next_deadline_ns - c.parameters.window_ns
    found = [
        sum(n for verdict, n in c.admit_many(method, n, now_ns=now_ns) if verdict is Verdict.ALLOW)
        for method, n in bursts
    ]
    c.advance_to(c.next_deadline_ns)
    return found


@pytest.mark.parametrize("state", [A, C])
def test_x1_all_is_the_source_and_the_default(state: State) -> None:
    """X1: every sheddable request is refused or dropped."""
    for c in (in_state(state), in_state(state, Policy(shed="all"))):
        assert c.admit_many("INVITE", 50, now_ns=0) == [(SHED[state], 50)]


@pytest.mark.parametrize("state", [A, C])
def test_x1_a_steady_overload_is_served_at_lc(state: State) -> None:
    """X1: 10 of each window's 50, and the state stays as it would be."""
    c = in_state(state, EXCESS)
    for _ in range(20):
        now_ns = c.next_deadline_ns - 1
        assert c.admit_many("INVITE", 50, now_ns=now_ns) == [(Verdict.ALLOW, 10), (SHED[state], 40)]
        c.advance_to(now_ns + 1)
        assert c.state is state
    assert c.allowed == 11 + 20 * 10


def test_x1_the_measure_is_the_sources_own() -> None:
    """X1, P3: LC / (1000 div TR): TR 600 has scale 1, so a window may pass LC."""
    assert passed(in_state(A, EXCESS, LC=7, TR=600), ("INVITE", 50)) == [7]
    assert passed(in_state(A, EXCESS, LC=7, TR=500), ("INVITE", 50)) == [3]
    assert passed(in_state(A, EXCESS, LC=10000, TR=100), ("INVITE", 5000)) == [1000]


@pytest.mark.parametrize(
    ("lc", "tr", "expected"),
    [
        (15, 100, [1, 2, 1, 2, 1, 2]),
        (1, 100, [0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0]),
        (7, 200, [1, 1, 2, 1, 2, 1, 1]),
        (10, 333, [3, 3, 4, 3, 3, 4]),
        (8, 125, [1, 1, 1]),
    ],
)
def test_x1_the_fraction_is_carried_from_window_to_window(lc: int, tr: int, expected: list[int]) -> None:
    """X1: starting at 0."""
    c = in_state(A, EXCESS, LC=lc, TR=tr)
    assert [passed(c, ("INVITE", 50))[0] for _ in expected] == expected


def test_x1_unused_allowance_is_not_carried() -> None:
    """X1: a silent window buys nothing; its fraction is carried all the same."""
    c = in_state(A, EXCESS, LC=15, LRC=100)
    assert [passed(c, ("INVITE", n))[0] for n in (0, 0, 50, 50)] == [0, 0, 1, 2]


def test_x1_debt_is_not_carried() -> None:
    """X1: what cannot be shed may overdraw a window; the next has its full allowance."""
    c = in_state(A, EXCESS)
    assert passed(c, ("BYE", 35), ("INVITE", 5)) == [35, 0]
    assert passed(c, ("INVITE", 50)) == [10]


def test_x1_what_cannot_be_shed_uses_the_allowance_up() -> None:
    """X1: every request passed on, those included; what was shed does not."""
    c = in_state(A, EXCESS)
    bursts = (("ACK", 3), ("INVITE", 4), ("BYE", 2), ("INVITE", 50), ("NOTIFY", 7), ("INVITE", 1))
    assert passed(c, *bursts) == [3, 4, 2, 1, 7, 0]


def test_x1_one_by_one_as_in_bursts() -> None:
    """X1, DESIGN §5."""
    c = in_state(C, EXCESS, LC=40)
    found = [c.admit(method, now_ns=0).value for method in ("BYE", "INVITE", "OPTIONS", "ACK", "INVITE", "FOO")]
    assert found == ["allow", "allow", "allow", "allow", "drop", "allow"]


def test_x1_exempt_requests_use_the_allowance_up() -> None:
    """X1, DESIGN §3: an exempt URI is passed on as what cannot be shed is."""
    c = in_state(C, EXCESS, LC=20)
    assert [c.judge("INVITE", now_ns=0, sheddable=False).value for _ in range(2)] == ["allow"] * 2
    assert c.judge("INVITE", now_ns=0) is Verdict.DROP


def test_x1_the_window_that_was_open_when_the_level_rose_has_no_allowance() -> None:
    """X1: only a window that *opens* in a critical state: the entering window passes whole."""
    c = controller(EXCESS, LCDM="denial_only")
    assert passed(c, ("INVITE", 300)) == [300]
    assert passed(c, ("INVITE", 300)) == [10]


def test_x1_the_fraction_starts_again_after_a_return_to_normal() -> None:
    """X1: 1.5 a window; the half that was carried is gone."""
    c = in_state(A, EXCESS, LC=15, LRC=1)
    assert passed(c, ("INVITE", 9)) == [1]
    assert states(c, 0) == [N]
    assert states(c, 9) == [A]
    assert [passed(c, ("INVITE", 9))[0] for _ in range(2)] == [1, 2]


def test_x1_the_fraction_goes_on_from_around_to_critical() -> None:
    """X1: reset only by a new TR or a return to normal."""
    c = in_state(A, EXCESS, LC=15, LCDM="denial_to_drop", PC=1)
    assert passed(c, ("INVITE", 9)) == [1]
    assert c.state is C
    assert passed(c, ("INVITE", 9)) == [2]


def test_x1_a_new_lc_is_the_allowance_of_the_next_window() -> None:
    """X1, C1: the open window is left alone."""
    c = in_state(A, EXCESS)
    c.reconfigure(c.parameters.replaced(LC=200), now_ns=110 * MS)
    assert passed(c, ("INVITE", 50)) == [10]
    assert passed(c, ("INVITE", 50)) == [20]


@pytest.mark.parametrize("mode", ["denial_to_drop", "denial_only", "drop_only"])
def test_x1_level_and_escalation_stay_as_they_are(mode: str) -> None:
    """X1: the same cycles and changes as under all, for the same offered load."""
    loads = (11, 50, 50, 50, 50, 50, 9, 9, 10, 9, 9, 9, 200, 0, 0, 0, 0)
    told = []
    for policy in (Policy(), EXCESS):
        c = controller(policy, LCDM=mode)
        states(c, *loads)
        told.append((c.advance(now_ns=0), c.changes()))
    assert told[0] == told[1]


def test_x1_lcps_in_normal_is_as_ever() -> None:
    """X1, V3: the allowance is of critical states only."""
    c = controller(EXCESS, LC=10000, LCPS=3)
    assert c.admit_many("INVITE", 5, now_ns=0) == [(Verdict.ALLOW, 3), (Verdict.REJECT, 2)]
    assert c.admit_many("INVITE", 9, now_ns=SECOND) == [(Verdict.ALLOW, 8), (Verdict.REJECT, 1)]
