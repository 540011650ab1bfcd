"""The law through the guard: levels and LCPS by what comes in, evaluated by `tick` alone (SPEC M1–M3, L1–L7, V1–V4)."""

from __future__ import annotations

import pytest

from sipguard.core.policy import SHEDDABLE_METHODS, Policy
from sipguard.core.verdicts import Change
from tests.guard.messages import request, start_line, status_of
from tests.guard.rig import MS, SECOND, A, C, N, Rig, judged, total

PASSING = ("ACK", "BYE", "CANCEL", "NOTIFY", "PUBLISH", "FOO", "invite")


def fate(rig: Rig, data: bytes, transport: str = "udp") -> str:
    """What a client sees: `passed`, `503`, or `nothing`."""
    action = rig.receive(data, rig.client(transport=transport))
    if action is None:
        return "nothing"
    return str(status_of(action.data)) if status_of(action.data) else "passed"


@pytest.mark.parametrize("transport", ["udp", "tcp"])
def test_normal_around_critical_and_back_by_the_customers_numbers(transport: str) -> None:
    """L1, L2, L5, L7 end to end: PC = 4 cycles of 503 after entry, then silence, then LRC = 3 calm cycles to normal."""
    rig = Rig()
    seen = []
    for load in (10, 11, 11, 11, 11, 11, 11, 0, 0, 0):
        fates = {fate(rig, request("OPTIONS", call_id=f"{rig.now_ns}-{k}"), transport) for k in range(load)}
        seen.append((rig.controller.state, fates))
        rig.tick()
    assert seen == [
        (N, {"passed"}),
        (N, {"passed"}),
        (A, {"503"}),
        (A, {"503"}),
        (A, {"503"}),
        (A, {"503"}),
        (C, {"nothing"}),
        (C, set()),
        (C, set()),
        (C, set()),
    ]
    assert rig.controller.state is N
    assert fate(rig, request("OPTIONS")) == "passed"


def test_the_modes() -> None:
    """L1 drop_only: straight to silence. L3 denial_only: never."""
    assert Rig(law={"LCDM": "drop_only"}).overload() is C
    rig = Rig(law={"LCDM": "denial_only"})
    assert {rig.overload() for _ in range(20)} == {A}


@pytest.mark.parametrize("method", sorted(SHEDDABLE_METHODS))
def test_the_nine_methods_are_shed(method: str) -> None:
    """V1, V2."""
    rig = Rig()
    assert fate(rig, request(method)) == "passed"
    assert fate(rig.into(A), request(method)) == "503"
    assert fate(rig.into(C), request(method)) == "nothing"


@pytest.mark.parametrize("method", PASSING)
def test_all_others_count_and_pass_in_every_state(method: str) -> None:
    """V1, case-sensitive; M2: they count."""
    rig = Rig()
    for number, state in enumerate((N, A, C)):
        rig.into(state)
        assert fate(rig, request(method, to_tag="x")) == "passed"
        assert rig.counters.requests[method] == number + 1


def test_the_method_sets_are_settings() -> None:
    """V1: refuse_methods, drop_methods."""
    rig = Rig(policy=Policy(refuse_methods=["FOO"], drop_methods=["BYE"]))
    rig.into(A)
    assert [fate(rig, request(method)) for method in ("FOO", "BYE", "INVITE")] == ["503", "passed", "passed"]
    rig.into(C)
    assert [fate(rig, request(method)) for method in ("FOO", "BYE", "INVITE")] == ["passed", "nothing", "passed"]


def test_receiving_never_evaluates_a_cycle() -> None:
    """DESIGN §3: a timer does. What comes after the window's end is judged by the last cycle and counted in its own (M1)."""
    rig = Rig()
    for _ in range(11):
        fate(rig, request("OPTIONS"))
    rig.now_ns = 150 * MS
    for _ in range(5):
        assert fate(rig, request("OPTIONS")) == "passed"
    assert rig.controller.state is N
    rig.guard.tick(150 * MS)
    rig.guard.tick(200 * MS)
    cycles = rig.controller.advance(now_ns=200 * MS)
    assert [(cycle.time_ns // MS, cycle.requests) for cycle in cycles] == [(100, 11), (200, 5)]
    assert [cycle.state for cycle in cycles] == [A, A]


def test_the_deadline_stands_on_the_grid_whenever_tick_comes() -> None:
    """M1: windows are cut from the origin."""
    rig = Rig()
    deadlines = []
    for late_ms in (100, 207, 399, 400, 512):
        rig.guard.tick(late_ms * MS)
        deadlines.append(rig.guard.next_deadline() // MS)
    assert deadlines == [200, 300, 400, 500, 600]


def test_tick_returns_each_change_once_with_its_figures() -> None:
    """DESIGN §5: the log line's numbers; time is the window's end, not the tick's."""
    rig = Rig()
    for _ in range(11):
        fate(rig, request("OPTIONS"))
    assert rig.guard.tick(103 * MS) == [Change(100 * MS, N, A, 110, 100, 0, 0, "level")]
    assert rig.guard.tick(200 * MS) == []
    assert rig.guard.tick(500 * MS) == [Change(400 * MS, A, N, 0, 100, 0, 3, "level")]


def test_every_request_counts_whatever_becomes_of_it() -> None:
    """M2: admitted, refused, dropped, retransmitted, broken, unanswerable: RPS is offered load."""
    rig = Rig(servers=())
    offered = [
        request(),
        request(),
        request("BYE"),
        request("FOO"),
        request(max_forwards=0),
        request("OPTIONS", "sip:192.0.2.1"),
        b"INVITE sip:b@example.com SIP/2.0\r\n\r\n",
        b"REGISTER sip:example.com SIP/2.0",
        request().replace(b" SIP/2.0\r\n", b" SIP/3.0\r\n", 1),
        request("ACK", to_tag="x"),
    ]
    for state in (N, A, C):
        rig.into(state)
        for data in offered:
            rig.receive(data)
        rig.tick()
        assert rig.controller.rps == len(offered) * 10
    assert total(rig.counters.requests) == judged(rig.guard)


# -- LCPS --------------------------------------------------------------------------------------------------------------


def test_lcps_refuses_in_normal_what_grows_too_fast_and_the_state_stays() -> None:
    """V3: 503 when (this second) − (last second) > LCPS; M3: the second before the first has total 0."""
    rig = Rig(law={"LC": 10000, "LCPS": 50})
    fates = [fate(rig, request(call_id=f"a{k}")) for k in range(120)]
    assert fates == ["passed"] * 50 + ["503"] * 70
    assert rig.counters.lcps_refused == 70
    # The offered total of 120 is what the next second compares with (M2, M3): 170 pass.
    rig.now_ns = SECOND
    rig.guard.tick(SECOND)
    fates = [fate(rig, request(call_id=f"b{k}")) for k in range(200)]
    assert fates == ["passed"] * 170 + ["503"] * 30
    assert rig.controller.state is N
    assert (rig.controller.allowed, rig.controller.rejected, rig.counters.lcps_refused) == (220, 100, 100)


def test_what_cannot_be_shed_passes_lcps_and_counts_in_its_second() -> None:
    """V1 bounds LCPS too."""
    rig = Rig(law={"LC": 10000, "LCPS": 5})
    for _ in range(10):
        assert fate(rig, request("BYE")) == "passed"
    assert fate(rig, request("INVITE")) == "503"
    assert fate(rig, request("BYE")) == "passed"


def test_in_a_critical_state_lcps_is_not_checked() -> None:
    """V4: the 503 of around_critical_limit is not LCPS's."""
    rig = Rig(law={"LCPS": 20, "LCDM": "denial_only"})
    assert rig.overload() is A
    for _ in range(50):
        assert fate(rig, request("OPTIONS")) == "503"
        assert fate(rig, request("BYE")) == "passed"
    assert rig.counters.lcps_refused == 0


def test_the_lcps_503_is_an_answer_like_any_other() -> None:
    rig = Rig(law={"LC": 10000, "LCPS": 1})
    rig.forwarded(request())
    assert start_line(rig.answered(request()).data) == b"SIP/2.0 503 Service Unavailable"


# -- excess ------------------------------------------------------------------------------------------------------------


def test_excess_keeps_serving_lc_in_critical_limit() -> None:
    """X1: LC / (1000 div TR) = 10 a window pass, what cannot be shed among them; the rest is dropped."""
    rig = Rig(policy=Policy(shed="excess")).into(C)
    for _ in range(5):
        fates = [fate(rig, request("BYE")) for _ in range(4)]
        fates += [fate(rig, request(call_id=f"{rig.now_ns}-{k}")) for k in range(30)]
        assert fates == ["passed"] * 10 + ["nothing"] * 24
        assert fate(rig, request("BYE")) == "passed"
        assert rig.tick() is C
