"""The harness itself, without a guard: SIPp → Kamailio → SIPp. While it fails no other result here means anything."""

from __future__ import annotations

import socket

import pytest

from tests.peers.kamailio import Role
from tests.peers.process import free_port, wait_until
from tests.peers.testbed import Testbed

pytestmark = pytest.mark.peer


@pytest.mark.parametrize("bed", ["127.0.0.1", "::1"], indirect=True)
@pytest.mark.parametrize("transport", ["udp", "tcp"])
def test_a_call_ended_by_the_caller(bed: Testbed, transport: str) -> None:
    """RFC 3261 13, 15 and 16.12: the peers make calls without us, and Kamailio's record tells what reached it."""
    kamailio = bed.kamailio(bed.callee("uas_call"))
    caller = bed.caller("uac_call", kamailio.address, calls=10, rate=20, pause_ms=100, transport=transport)
    caller.finish().require_all(10)
    seen = kamailio.seen(call_prefix="call-")
    assert [len([s for s in seen if s.method == method]) for method in ("INVITE", "ACK", "BYE")] == [10, 10, 10]
    if transport == "udp":  # a TCP caller's port is the system's choice
        assert {s.source for s in seen} == {f"udp;{bed.host};{caller.port}"}
    assert {s.guard_source for s in seen if s.method == "INVITE"} == {"192.0.2.66;5060;udp"}  # nobody strips it here


@pytest.mark.parametrize("transport", ["udp", "tcp"])
def test_a_call_ended_by_the_callee(bed: Testbed, transport: str) -> None:
    """RFC 3261 16.12.1: the callee's BYE follows the Record-Route back."""
    kamailio = bed.kamailio(bed.callee("uas_ends_call", pause_ms=100))
    caller = bed.caller("uac_ended_by_callee", kamailio.address, calls=10, rate=20, transport=transport)
    caller.finish().require_all(10)
    assert len(kamailio.seen("BYE", call_prefix="call-")) == 10


@pytest.mark.parametrize("transport", ["udp", "tcp"])
def test_a_cancelled_call(bed: Testbed, transport: str) -> None:
    """RFC 3261 9.1 and 17.1.1.3: 200 to the CANCEL, 487 to the INVITE, ACK on its branch."""
    kamailio = bed.kamailio(bed.callee("uas_rings"))
    caller = bed.caller("uac_cancel", kamailio.address, calls=10, rate=20, transport=transport)
    caller.finish().require_all(10)
    assert len(kamailio.seen("ACK", call_prefix="call-")) == 10


def test_all_three_ends_of_an_overloaded_call(bed: Testbed) -> None:
    """Answered, refused and silent are results of the overload scenario, not errors; an answer is told from silence."""
    answered = bed.caller("uac_overload", bed.kamailio(bed.callee("uas_call")).address, calls=5)
    nobody = free_port()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as deaf:
        deaf.bind(("127.0.0.1", nobody))
        silent = bed.caller("uac_overload", f"127.0.0.1:{nobody}", calls=5, rate=20)
        silence = silent.finish()
    answers = answered.finish()
    answers.require_all(5)
    silence.require_all(5)
    assert len(answers.received(200, "BYE")) == 5
    assert [m for m in silence.messages if not m.sent] == []


def test_a_refusal_of_another_server_fails_the_header_checks(bed: Testbed) -> None:
    """The checks of the overload scenario can fail: Kamailio's own 503 carries its Server, not ours."""
    caller = bed.caller("uac_overload", bed.kamailio(role=Role.REFUSE).address, calls=5)
    result = caller.finish()
    assert (result.successes, result.regexp_failures) == (0, 5)
    assert len(result.received(503, "INVITE")) == 5


@pytest.mark.parametrize("transport", ["udp", "tcp"])
def test_register_and_options_are_answered_by_kamailio(bed: Testbed, transport: str) -> None:
    """The rest of the scenarios, against the server alone."""
    kamailio = bed.kamailio()
    for scenario in ("uac_register", "uac_options_probe"):
        bed.caller(scenario, kamailio.address, calls=5, rate=50, transport=transport).finish().require_all(5)
    bed.caller("uac_options_flood", kamailio.address, calls=20, rate=200, transport=transport).finish().require_all(20)
    wait_until(lambda: len(kamailio.seen("OPTIONS", call_prefix="call-")) == 25, 3, "all of the flood at Kamailio")


def test_the_stateless_roles_forward_and_drop(bed: Testbed) -> None:
    """RFC 3261 16.11: a forwarded request carries one more Via and its answer comes back; a dropped one leaves nothing."""
    server = bed.kamailio(bed.callee("uas_call"))
    forwarder = bed.kamailio(server, role=Role.FORWARD)
    forwarded = bed.caller("uac_options_probe", forwarder.address, calls=10, rate=100).finish()
    forwarded.require_all(10)
    assert len(forwarded.received(200)) == 10
    assert {s.via_count for s in server.seen("OPTIONS", call_prefix="call-")} == {2}
    dropped = bed.caller("uac_options_probe", bed.kamailio(role=Role.DROP).address, calls=10, rate=100).finish()
    dropped.require_all(10)
    assert [m for m in dropped.messages if not m.sent] == []
