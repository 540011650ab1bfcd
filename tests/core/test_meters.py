"""SPEC §3: the window, the second and the clock."""

from __future__ import annotations

import pytest

from sipguard import OverloadController, Parameters, Verdict
from sipguard.core import meters
from sipguard.core.meters import Second, Window
from tests.core.windows import MS, SECOND, A, N, controller, states


def rows(c: OverloadController, now_ns: int) -> list[tuple[int, int, int]]:
    return [(cycle.time_ns // MS, cycle.requests, cycle.rps) for cycle in c.advance(now_ns=now_ns)]


@pytest.mark.parametrize("origin_ns", [0, 7, -3 * SECOND, 10**18 + 1])
def test_m1_a_request_at_the_end_of_a_window_belongs_to_the_next(origin_ns: int) -> None:
    """M1: window k is [k·TR, (k+1)·TR), from the origin."""
    c = controller(origin_ns=origin_ns)
    for at_ns in (0, 100 * MS - 1, 100 * MS, 200 * MS - 1, 200 * MS):
        c.admit("INVITE", now_ns=origin_ns + at_ns)
    assert rows(c, origin_ns + 300 * MS) == [
        ((origin_ns + 100 * MS) // MS, 2, 20),
        ((origin_ns + 200 * MS) // MS, 2, 20),
        ((origin_ns + 300 * MS) // MS, 1, 10),
    ]


def test_m1_a_cycle_is_evaluated_at_the_very_end_of_its_window() -> None:
    """M1: not a nanosecond before."""
    c = controller()
    assert c.next_deadline_ns == 100 * MS
    assert c.advance(now_ns=100 * MS - 1) == []
    assert len(c.advance(now_ns=100 * MS)) == 1
    assert c.next_deadline_ns == 200 * MS


@pytest.mark.parametrize(("tr", "rps"), [(100, 70), (150, 42), (200, 35), (333, 21), (600, 7), (999, 7), (1000, 7)])
def test_m1_rps_is_scaled_by_1000_div_tr(tr: int, rps: int) -> None:
    """M1, P3: 7 requests; the division comes first (TR 600: 7, not 11)."""
    c = controller(TR=tr)
    c.admit_many("INVITE", 7, now_ns=0)
    assert rows(c, tr * MS) == [(tr, 7, rps)]
    assert c.rps == rps


def test_m2_every_request_counts_whatever_its_method_and_whatever_becomes_of_it() -> None:
    """M2: admitted, refused, dropped, unknown, the same one again: RPS is offered load."""
    c = controller(LCDM="drop_only", LCPS=1)
    methods = ("INVITE", "INVITE", "ACK", "BYE", "FOO", "invite", "REGISTER", "PUBLISH", "CANCEL", "OPTIONS", "INVITE")
    for _ in range(3):
        for method in methods:
            c.admit(method, now_ns=c.next_deadline_ns - 1)
        c.advance_to(c.next_deadline_ns)
    assert [cycle.requests for cycle in c.advance(now_ns=0)] == [11, 11, 11]
    assert c.rejected
    assert c.dropped
    assert c.allowed + c.rejected + c.dropped == 33


def test_m3_lcps_compares_this_second_with_the_whole_one_before() -> None:
    """M3, V3: LCPS 5; 5 in the first second, then 10 and not one more; each second from the origin."""
    c = controller(LC=10000, LCPS=5, TR=1000)
    assert c.admit_many("INVITE", 7, now_ns=0) == [(Verdict.ALLOW, 5), (Verdict.REJECT, 2)]
    # 7 came, refused ones included: 12 are let through now.
    assert c.admit_many("INVITE", 20, now_ns=SECOND) == [(Verdict.ALLOW, 12), (Verdict.REJECT, 8)]
    assert c.admit_many("INVITE", 26, now_ns=3 * SECOND - 1) == [(Verdict.ALLOW, 25), (Verdict.REJECT, 1)]


def test_m3_a_second_with_no_requests_has_total_0() -> None:
    """M3: and so has the one before the first."""
    c = controller(LC=10000, LCPS=5)
    c.admit_many("INVITE", 50, now_ns=0)
    assert c.admit_many("INVITE", 6, now_ns=2 * SECOND) == [(Verdict.ALLOW, 5), (Verdict.REJECT, 1)]
    assert c.admit_many("INVITE", 6, now_ns=9 * SECOND) == [(Verdict.ALLOW, 5), (Verdict.REJECT, 1)]


def test_m3_seconds_begin_at_the_origin_not_on_the_clock() -> None:
    """M3."""
    origin_ns = 300 * MS
    c = controller(LC=10000, LCPS=5, origin_ns=origin_ns)
    c.admit_many("INVITE", 5, now_ns=origin_ns)
    assert c.admit("INVITE", now_ns=origin_ns + SECOND - 1) is Verdict.REJECT
    assert c.admit("INVITE", now_ns=origin_ns + SECOND) is Verdict.ALLOW


def test_m3_the_second_is_not_the_window() -> None:
    """M3: LCPS is read over exactly a second also where TR does not divide 1000 and under a new TR (C1)."""
    c = controller(LC=10000, LCPS=10, TR=600)
    c.admit_many("INVITE", 6, now_ns=0)
    c.admit_many("INVITE", 4, now_ns=700 * MS)
    c.reconfigure(c.parameters.replaced(TR=333), now_ns=900 * MS)
    assert c.admit("INVITE", now_ns=999 * MS) is Verdict.REJECT
    assert c.admit_many("INVITE", 30, now_ns=SECOND) == [(Verdict.ALLOW, 21), (Verdict.REJECT, 9)]


def test_m4_a_time_that_goes_back_is_the_latest_seen() -> None:
    """M4: for a request, a count, an evaluation and a change alike."""
    c = controller()
    c.admit("INVITE", now_ns=250 * MS)
    c.admit("INVITE", now_ns=50 * MS)
    c.judge("INVITE", now_ns=-SECOND)
    c.count(2, now_ns=0)
    assert c.admit_many("INVITE", 1, now_ns=249 * MS) == [(Verdict.ALLOW, 1)]
    assert rows(c, 10 * MS) == [(100, 0, 0), (200, 0, 0)]
    c.reconfigure(c.parameters.replaced(TR=200), now_ns=0)
    assert c.next_deadline_ns == 450 * MS
    c = controller()
    c.admit_many("INVITE", 4, now_ns=250 * MS)
    assert rows(c, 300 * MS)[-1] == (300, 4, 40)
    c.admit_many("INVITE", 3, now_ns=299 * MS)
    assert rows(c, 400 * MS) == [(400, 3, 30)]


def test_m4_every_door_sees_the_time() -> None:
    """M4: what came to any of them is the earliest that the next may be."""
    for door in ("admit", "judge", "count", "admit_many", "advance", "reconfigure"):
        c = controller()
        calls = {
            "admit": lambda c=c: c.admit("BYE", now_ns=250 * MS),
            "judge": lambda c=c: c.judge("BYE", now_ns=250 * MS),
            "count": lambda c=c: c.count(0, now_ns=250 * MS),
            "admit_many": lambda c=c: c.admit_many("BYE", 1, now_ns=250 * MS),
            "advance": lambda c=c: c.advance(now_ns=250 * MS),
            "reconfigure": lambda c=c: c.reconfigure(c.parameters, now_ns=250 * MS),
        }
        calls[door]()
        c.admit_many("INVITE", 5, now_ns=50 * MS)
        assert c.advance(now_ns=300 * MS)[-1].requests >= 5, door


def test_m4_before_the_origin_is_the_origin() -> None:
    """M4."""
    c = controller(origin_ns=SECOND)
    c.admit("INVITE", now_ns=0)
    assert rows(c, SECOND + 100 * MS) == [(1100, 1, 10)]


def test_a_judged_request_waits_for_its_own_window() -> None:
    """M1 on a live edge: the timer is late, the request comes after the end; it is in the window it came in."""
    c = controller()
    for at_ms in (50, 100, 130, 310):
        c.judge("INVITE", now_ns=at_ms * MS)
    assert c.advance(now_ns=0)[:3] == [(100 * MS, 1, 10, N), (200 * MS, 2, 20, N), (300 * MS, 0, 0, N)]
    assert rows(c, 400 * MS) == [(400, 1, 10)]


def test_count_goes_into_the_open_window_and_second() -> None:
    """DESIGN §5."""
    c = controller(LC=10000, LCPS=10)
    c.count(10, now_ns=50 * MS)
    assert c.admit("INVITE", now_ns=60 * MS) is Verdict.REJECT
    assert rows(c, 100 * MS) == [(100, 11, 110)]
    assert (c.allowed, c.rejected, c.dropped) == (0, 1, 0)


def test_count_after_the_end_goes_into_the_closing_window() -> None:
    """DESIGN §3: at a window's end the counter is read, counted, then the timer evaluates: it is what came until the end."""
    c = controller()
    c.judge("INVITE", now_ns=101 * MS)
    c.count(10, now_ns=102 * MS)
    assert rows(c, 102 * MS) == [(100, 10, 100)]
    assert rows(c, 200 * MS) == [(200, 1, 10)]


def test_a_late_count_is_spread_evenly_over_the_cycles_it_covers() -> None:
    """DESIGN §3: 11 over 4 ended windows: 3, 3, 3, 2, and nothing in the open one."""
    c = controller()
    c.judge("INVITE", now_ns=250 * MS)
    c.count(11, now_ns=430 * MS)
    assert rows(c, 500 * MS) == [(100, 3, 30), (200, 3, 30), (300, 4, 40), (400, 2, 20), (500, 0, 0)]


def test_two_late_counts_add_up() -> None:
    """DESIGN §3: two workers read late, one later than the other."""
    c = controller()
    c.count(5, now_ns=230 * MS)
    c.count(4, now_ns=410 * MS)
    assert rows(c, 500 * MS) == [(100, 4, 40), (200, 3, 30), (300, 1, 10), (400, 1, 10), (500, 0, 0)]


def test_a_late_count_is_in_the_seconds_its_windows_ended_in() -> None:
    """M3: 20 over 20 windows, read at 2.05 s: 10 in the second before, 10 in the one before that."""
    c = controller(LC=10000, LCPS=5)
    c.count(20, now_ns=2 * SECOND + 50 * MS)
    c.advance_to(2 * SECOND + 50 * MS)
    # Second 1 had 10 of them, so this one may have 15.
    assert c.admit_many("INVITE", 20, now_ns=2 * SECOND + 60 * MS) == [(Verdict.ALLOW, 15), (Verdict.REJECT, 5)]


def test_a_late_count_reaches_the_second_before_and_no_older_one() -> None:
    """M3: a request was judged in the new second before the report about the old one came."""
    c = controller(LC=10000, LCPS=5, TR=1000)
    c.judge("INVITE", now_ns=SECOND + 20 * MS)
    c.count(10, now_ns=SECOND + 30 * MS)
    # 10 in the second before: 15 may pass in this one.
    found = [c.judge("INVITE", now_ns=SECOND + 40 * MS) for _ in range(15)]
    assert found == [Verdict.ALLOW] * 14 + [Verdict.REJECT]
    c = controller(LC=10000, LCPS=5, TR=1000)
    c.judge("INVITE", now_ns=2 * SECOND + 20 * MS)
    c.count(20, now_ns=2 * SECOND + 30 * MS)
    found = [c.judge("INVITE", now_ns=2 * SECOND + 40 * MS) for _ in range(15)]
    assert found == [Verdict.ALLOW] * 14 + [Verdict.REJECT]


def test_a_count_an_hour_late_is_spread_all_the_same() -> None:
    """DESIGN §3: also past what a table may hold: 36,000 windows with 11 each, and the level is what it was all along."""
    c = controller(LCDM="drop_only")
    c.count(36_000 * 11, now_ns=3600 * SECOND)
    cycles = c.advance(now_ns=3600 * SECOND)
    assert {cycle.requests for cycle in cycles} == {11}
    assert len(c.changes()) == 1
    assert rows(c, 3600 * SECOND + 100 * MS) == [(3_600_100, 0, 0)]


@pytest.mark.parametrize("n", [-1, -(10**30)])
def test_a_negative_count_is_refused(n: int) -> None:
    """DESIGN §5: n is named; nothing has moved."""
    c = controller()
    for call in (lambda: c.count(n, now_ns=150 * MS), lambda: c.admit_many("INVITE", n, now_ns=150 * MS)):
        with pytest.raises(ValueError, match=f"n = {n}"):
            call()
    assert c.next_deadline_ns == 100 * MS


def test_what_waits_for_its_window_is_bounded(evaluated: list[int]) -> None:
    """Every table has a cap: a timer that never comes costs no memory, and no request is lost."""
    c = controller(LC=10000)
    windows = 3 * meters.MAX_AHEAD
    for k in range(windows):
        c.judge("INVITE", now_ns=k * 100 * MS)
        c.count(k, now_ns=k * 100 * MS)
    window = c._window
    assert len(window._ahead) <= meters.MAX_AHEAD
    assert len(window._late_ends) <= meters.MAX_AHEAD
    assert not evaluated
    c.advance(now_ns=windows * 100 * MS)
    assert sum(evaluated) == (windows + sum(range(windows))) * c.parameters.scale
    assert (window._ahead, window._late_ends, window._late) == ({}, {}, 0)


def test_the_meters_say_where_they_stand() -> None:
    """A repr made to be asserted on (DESIGN §2)."""
    window, second = Window(0, 100), Second(0)
    window.count_ahead(2, 50)
    window.count_ahead(1, 120)
    second.count_at(4, SECOND)
    assert repr(window) == "<window to 100 ns, 2 requests, 1 ahead>"
    assert repr(second) == f"<second to {2 * SECOND} ns, 4 after 0>"
    c = OverloadController(Parameters(LC=100, TR=100))
    states(c, 11)
    assert c.state is A
    assert repr(c).startswith("<OverloadController around_critical_limit rps=110 <window to 200000000 ns, 0 requests")
