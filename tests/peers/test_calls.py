"""SIPp → sipguard → Kamailio → SIPp below LC: every call succeeds, whoever ends it, on UDP and on TCP."""

from __future__ import annotations

import pytest

from tests.peers.kamailio import Kamailio, Seen
from tests.peers.process import free_port, wait_until
from tests.peers.testbed import Testbed

pytestmark = pytest.mark.peer

TRANSPORTS = pytest.mark.parametrize("transport", ["udp", "tcp"])
HOSTS = pytest.mark.parametrize("bed", ["127.0.0.1", "::1"], indirect=True)
CALM = {"lc": 1000, "lcps": 10_000}


def require_one_server_per_call(servers: list[Kamailio], calls: int) -> None:
    """Every request of a call reached one server, and no server was left out."""
    places: dict[str, set[int]] = {}
    for number, server in enumerate(servers):
        for seen in server.seen(call_prefix="call-"):
            places.setdefault(seen.call_id, set()).add(number)
    assert len(places) == calls
    assert {len(numbers) for numbers in places.values()} == {1}
    assert set.union(*places.values()) == set(range(len(servers)))


def methods_of(seen: list[Seen]) -> dict[str, list[tuple[str, int]]]:
    """Method and CSeq number of each request that reached a server, by Call-ID."""
    found: dict[str, list[tuple[str, int]]] = {}
    for record in seen:
        found.setdefault(record.call_id, []).append((record.method, record.cseq))
    return found


@HOSTS
@TRANSPORTS
def test_every_call_below_lc_succeeds(bed: Testbed, transport: str) -> None:
    """SPEC §5 (normal: everything passes), RFC 3261 16.11: 100 % of calls, and the server sees the caller as told by us."""
    kamailio = bed.kamailio(bed.callee("uas_call"))
    guard = bed.guard(kamailio, **CALM)
    caller = bed.caller("uac_call", guard.address, calls=120, rate=40, pause_ms=100, transport=transport)
    result = caller.finish()
    result.require_all(120)
    seen = kamailio.seen(call_prefix="call-")
    assert set(map(tuple, methods_of(seen).values())) == {(("INVITE", 1), ("ACK", 1), ("BYE", 2))}
    # The forged X-Guard-Source is gone, ours is there, once: the client's own address (DESIGN §3).
    assert {(s.guard_source_count, s.guard_source.split(";")[0], s.guard_source.split(";")[2]) for s in seen} == {
        (1, bed.host, transport)
    }
    if transport == "udp":
        assert {s.guard_source.split(";")[1] for s in seen} == {str(caller.port)}
    assert {(s.via_count, s.max_forwards) for s in seen} == {(2, "69")}
    assert str(guard.port) not in {s.source.split(";")[2] for s in seen}  # from the inside socket, not the outside one
    status = guard.status()
    assert status["state"] == "normal"
    assert status["requests"] == {"INVITE": 120, "ACK": 120, "BYE": 120}
    assert status["verdicts"] == {"allow": 360, "reject": 0, "drop": 0}
    assert (status["absorbed"], status["kernel_dropped"]) == (0, 0)


@HOSTS
@TRANSPORTS
def test_the_callee_ends_the_call_by_our_record_route(bed: Testbed, transport: str) -> None:
    """RFC 3261 16.6 (4), 16.12: the BYE comes in at the inside socket and goes out on the caller's own flow, uncounted."""
    kamailio = bed.kamailio(bed.callee("uas_ends_call", pause_ms=200))
    guard = bed.guard(kamailio, **CALM)
    caller = bed.caller("uac_ended_by_callee", guard.address, calls=40, rate=20, transport=transport)
    caller.finish().require_all(40)
    assert len(kamailio.seen("BYE", call_prefix="call-")) == 40
    assert guard.status()["requests"] == {"INVITE": 40, "ACK": 40}


@TRANSPORTS
def test_cancel_reaches_the_server_of_its_invite(bed: Testbed, transport: str) -> None:
    """RFC 3261 9.1, 16.11, 17.1.1.3: our branch is the same for INVITE, CANCEL and ACK, so Kamailio matches all three."""
    callee = bed.callee("uas_rings")
    servers = [bed.kamailio(callee), bed.kamailio(callee)]
    guard = bed.guard(*servers, **CALM)
    caller = bed.caller("uac_cancel", guard.address, calls=40, rate=20, transport=transport)
    result = caller.finish()
    result.require_all(40)
    assert len(result.received(487, "INVITE")) == 40

    def reached() -> list[Seen]:
        return [s for server in servers for s in server.seen(call_prefix="call-")]

    wait_until(lambda: len(reached()) >= 120, 3, "the last ACK at its server")
    assert set(map(tuple, methods_of(reached()).values())) == {(("INVITE", 1), ("CANCEL", 1), ("ACK", 1))}
    require_one_server_per_call(servers, 40)
    status = guard.status()
    assert status["requests"] == {"INVITE": 40, "CANCEL": 40, "ACK": 40}
    assert status["absorbed"] == 0  # these ACKs are to the server's 487, not to an answer of ours


@TRANSPORTS
@pytest.mark.parametrize(
    ("callee_scenario", "caller_scenario"), [("uas_call", "uac_call"), ("uas_ends_call", "uac_ended_by_callee")]
)
def test_two_servers_and_each_dialog_stays_on_its_own(
    bed: Testbed, transport: str, callee_scenario: str, caller_scenario: str
) -> None:
    """DESIGN §3: the upstream id in our Route keeps a dialog on its server, from either side."""
    callee = bed.callee(callee_scenario, pause_ms=200)
    servers = [bed.kamailio(callee), bed.kamailio(callee)]
    guard = bed.guard(*servers, **CALM)
    caller = bed.caller(caller_scenario, guard.address, calls=40, rate=20, pause_ms=200, transport=transport)
    caller.finish().require_all(40)
    require_one_server_per_call(servers, 40)


@pytest.mark.parametrize(
    ("callee_scenario", "caller_scenario"), [("uas_call", "uac_call"), ("uas_ends_call", "uac_ended_by_callee")]
)
def test_a_dialog_outlives_a_restart_with_other_weights(
    bed: Testbed, callee_scenario: str, caller_scenario: str
) -> None:
    """DESIGN §3: what the dialog's Route says comes before the hash of its Call-ID, and the key outlives the process."""
    callee = bed.callee(callee_scenario, pause_ms=3000)
    servers = [bed.kamailio(callee), bed.kamailio(callee)]
    inside = tuple(f"{transport}:127.0.0.1:{free_port()}" for transport in ("udp", "tcp"))
    guard = bed.guard(*servers, inside=inside, **CALM)
    caller = bed.caller(caller_scenario, guard.address, calls=40, rate=80, pause_ms=3000)
    caller.wait_sent(80)  # INVITE and ACK of each
    # By their Call-IDs alone nearly all would now go to the second server.
    bed.restart(guard, [f"{servers[0].address},weight=1", f"{servers[1].address},weight=1000"], inside=inside, **CALM)
    caller.finish().require_all(40)
    assert [len(server.seen("BYE")) for server in servers] == [len(server.seen("INVITE")) for server in servers]
    require_one_server_per_call(servers, 40)
    later = bed.caller("uac_options_probe", guard.address, calls=40, rate=80, call_prefix="later")
    later.finish().require_all(40)
    assert len(servers[1].seen("OPTIONS", call_prefix="later-")) >= 36


@TRANSPORTS
def test_register_and_options(bed: Testbed, transport: str) -> None:
    """RFC 3327 5.1: REGISTER carries our Path; out-of-dialog requests are answered by the server."""
    kamailio = bed.kamailio()
    guard = bed.guard(kamailio, **CALM)
    for scenario in ("uac_register", "uac_options_probe"):
        bed.caller(scenario, guard.address, calls=20, rate=50, transport=transport).finish().require_all(20)
    registers = kamailio.seen("REGISTER", call_prefix="call-")
    assert len(registers) == 20
    assert all(s.path.startswith("<sip:") and ";lr" in s.path for s in registers)
    assert len(kamailio.seen("OPTIONS", call_prefix="call-")) == 20
