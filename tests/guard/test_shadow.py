"""SPEC X2: shadow mode end to end. Everything is measured, decided and counted as if enforced; everything is let through."""

from __future__ import annotations

from sipguard.core.policy import Policy
from sipguard.core.verdicts import Verdict
from sipguard.guard.checks import CheckChain, NamedCheck
from sipguard.guard.flows import Flow
from sipguard.guard.ports import PlaneReading
from sipguard.wire.head import Head
from tests.guard.messages import ack_of, request, response_to
from tests.guard.rig import A, C, N, Rig, judged, total


def test_the_states_are_those_of_an_enforcing_guard_and_every_request_goes_on() -> None:
    shadow, real = Rig(policy=Policy(enforce=False)), Rig()
    states = []
    for load in (11, 11, 11, 11, 11, 30, 30, 0, 0, 0, 5):
        for k in range(load):
            data = request("OPTIONS" if k % 2 else "BYE", call_id=f"{shadow.now_ns}-{k}")
            assert shadow.forwarded(data).flow == shadow.servers[0].flow
            real.receive(data)
        states.append(shadow.tick())
        assert real.tick() is states[-1]
    assert {N, A, C} <= set(states)
    assert (shadow.controller.rejected, shadow.controller.dropped) == (0, 0)
    assert shadow.controller.shadow_rejected == real.controller.rejected > 0
    assert shadow.controller.shadow_dropped == real.controller.dropped > 0
    assert shadow.controller.allowed == total(shadow.counters.requests) == judged(real.guard)


def test_lcps_in_shadow_is_counted_apart_as_well() -> None:
    rig = Rig(policy=Policy(enforce=False), law={"LC": 10000, "LCPS": 3})
    for _ in range(10):
        rig.forwarded(request())
    assert rig.controller.shadow_rejected == 7
    assert (rig.controller.rejected, rig.counters.lcps_refused) == (0, 0)


def test_no_kernel_filter_in_shadow() -> None:
    """X2: nothing may be dropped."""
    rig = Rig(policy=Policy(enforce=False), law={"LCDM": "drop_only"})
    assert rig.overload() is C
    assert not rig.guard.drops_in_kernel


def test_nothing_is_refused_on_streams_either() -> None:
    rig = Rig(policy=Policy(enforce=False), stream_drop="reject").into(C)
    client = rig.client(transport="tcp")
    assert rig.forwarded(request(transport="TCP"), client).flow == rig.servers[1].flow
    assert rig.counters.outcomes == {}


def test_no_ack_is_absorbed_since_no_final_response_is_ours() -> None:
    rig = Rig(policy=Policy(enforce=False)).into(C)
    invite = request()
    back = rig.sent(response_to(rig.forwarded(invite).data, 486), rig.server())
    rig.forwarded(ack_of(invite, back.data))
    assert rig.counters.absorbed == 0


def test_a_lost_datagram_counts_for_the_level_in_shadow_too() -> None:
    """The receive buffer overflows whatever the mode."""
    rig = Rig(policy=Policy(enforce=False))
    rig.forwarded(request())
    rig.tick(PlaneReading(rig.udp, 0, 100))
    assert rig.controller.state is A
    assert rig.counters.overflowed == 100


def test_what_is_too_complex_to_read_hides_no_later_request_from_the_checks() -> None:
    """SPEC X2, V5: what the law would have done to one request says nothing about the next."""
    asked: list[str | None] = []

    def look(head: Head, flow: Flow, now_ns: int) -> Verdict:
        asked.append(head.method)
        return Verdict.ALLOW

    rig = Rig(policy=Policy(enforce=False), checks=CheckChain((NamedCheck("adl", look),))).into(C)
    asked.clear()
    assert rig.receive(request(headers=[f"X-{k}: {',' * 40}" for k in range(200)])) is None
    assert rig.counters.outcomes == {"too-complex": 1}
    rig.forwarded(request("BYE"))
    rig.forwarded(request())
    assert asked == ["BYE"]
