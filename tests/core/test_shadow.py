"""SPEC X2: enforce = false (shadow mode): measured, decided and counted as if enforced, and every request let through."""

from __future__ import annotations

from itertools import pairwise

import pytest

from sipguard import OverloadController, Policy, State, Verdict
from tests.core.windows import MS, SECOND, A, C, N, controller, in_state, states

SHADOW = Policy(enforce=False)


def counters(c: OverloadController) -> tuple[int, int, int, int, int]:
    return c.allowed, c.rejected, c.dropped, c.shadow_rejected, c.shadow_dropped


@pytest.mark.parametrize(("state", "shadow"), [(A, (5, 0)), (C, (0, 5))])
def test_x2_admit_returns_allow_and_what_it_would_have_been_is_counted_apart(
    state: State, shadow: tuple[int, int]
) -> None:
    """X2: by all three doors, one run and not two."""
    c = in_state(state, SHADOW)
    assert c.admit("INVITE", now_ns=0) is Verdict.ALLOW
    assert c.judge("INVITE", now_ns=0) is Verdict.ALLOW
    assert c.admit_many("INVITE", 3, now_ns=0) == [(Verdict.ALLOW, 3)]
    assert c.admit_many("BYE", 2, now_ns=0) == [(Verdict.ALLOW, 2)]
    assert counters(c) == (11 + 7, 0, 0, *shadow)


def test_x2_lcps_too() -> None:
    """X2, V3."""
    c = controller(SHADOW, LC=10000, LCPS=3)
    assert c.admit_many("INVITE", 5, now_ns=0) == [(Verdict.ALLOW, 5)]
    assert c.admit("INVITE", now_ns=0) is Verdict.ALLOW
    assert counters(c) == (6, 0, 0, 3, 0)


def test_x2_the_level_goes_its_whole_way() -> None:
    """X2: measured and decided as if enforced."""
    told = []
    for policy in (SHADOW, Policy()):
        c = controller(policy)
        found = states(c, 11, 11, 11, 11, 11, 9, 9, 9)
        told.append((found, c.advance(now_ns=0), c.changes()))
    assert told[0] == told[1]
    assert [before for before, after in pairwise(told[0][0]) if before is not after] == [A, C]
    assert told[0][0][-1] is N


def test_x2_under_excess_the_allowance_is_spent_by_what_would_have_passed() -> None:
    """X1, X2: what would have been refused does not use it up, though it is let through."""
    c = in_state(A, Policy(shed="excess", enforce=False), LC=40)
    before = c.allowed
    for method, n in (("INVITE", 3), ("INVITE", 3), ("BYE", 1), ("INVITE", 1)):
        assert c.admit_many(method, n, now_ns=0) == [(Verdict.ALLOW, n)]
    assert c.allowed - before == 8
    assert (c.shadow_rejected, c.shadow_dropped) == (3, 0)
    c.advance_to(c.next_deadline_ns)
    assert c.admit_many("INVITE", 9, now_ns=0) == [(Verdict.ALLOW, 9)]
    assert c.shadow_rejected == 3 + 5


def test_x2_enforced_nothing_is_counted_as_shadow() -> None:
    """X2: on by default."""
    c = controller(LCPS=3)
    states(c, 11, 11, 11, 11, 11, 11, 0, 0, 0)
    c.admit_many("INVITE", 100, now_ns=9 * SECOND)
    assert counters(c)[3:] == (0, 0)
    assert c.rejected > 0
    assert c.dropped > 0
    assert c.allowed + c.rejected + c.dropped == 6 * 11 + 100
    assert c.advance(now_ns=100 * MS)[-1].state is N
