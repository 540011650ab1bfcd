"""SPEC X3 on the live edge: a real retransmission that crosses a change of state, in each direction."""

from __future__ import annotations

import time

from tests.edge.conftest import Start
from tests.edge.live import ThreadGuard
from tests.edge.messages import Message, request
from tests.edge.peers import PATIENCE_S, Address, UdpPeer


def start_one_verdict(start: Start, server: UdpPeer, **law: object) -> ThreadGuard:
    return start(upstream=[f"udp:{server.address.text}"], transactions="one_verdict", lc=5, tr=100, **law)


def flood_until(guard: ThreadGuard, flooder: UdpPeer, state: str) -> None:
    """New requests, without a pause longer than a window, until the level says so."""
    until = time.monotonic() + PATIENCE_S
    while guard.status()["state"] != state:
        assert time.monotonic() < until, guard.status()
        for _ in range(5):
            flooder.send(request("OPTIONS"), guard.address())
        time.sleep(0.005)


def reaches(server: UdpPeer, data: bytes) -> bool:
    """Whether this request came on to the server; what came before it is passed over."""
    wanted = Message.of(data).one("Call-ID")
    while True:
        try:
            seen, _ = server.receive()
        except TimeoutError:
            return False
        if Message.of(seen).one("Call-ID") == wanted:
            return True


def answer_to(client: UdpPeer, data: bytes, address: Address) -> Message:
    client.send(data, address)
    return Message.of(client.read())


def test_normal_to_around_what_was_let_through_goes_on(start: Start, client: UdpPeer, server: UdpPeer) -> None:
    guard = start_one_verdict(start, server, lrc=100, lcdm="denial_only")
    data = request("MESSAGE")
    client.send(data, guard.address())
    assert reaches(server, data)
    with UdpPeer() as flooder:
        flood_until(guard, flooder, "around_critical_limit")
    client.send(data, guard.address())
    assert reaches(server, data)
    assert answer_to(client, request("MESSAGE"), guard.address()).status == 503
    assert guard.status()["transactions"]["copies"] == 1


def test_around_to_critical_what_was_refused_is_refused_again(start: Start, client: UdpPeer, server: UdpPeer) -> None:
    guard = start_one_verdict(start, server, lrc=100, pc=15)
    data = request("MESSAGE")
    with UdpPeer() as flooder:
        flood_until(guard, flooder, "around_critical_limit")
        first = answer_to(client, data, guard.address())
        assert first.status == 503
        flood_until(guard, flooder, "critical_limit")
    assert answer_to(client, data, guard.address()).data == first.data
    client.send(request("MESSAGE"), guard.address())
    assert client.silent()
    assert not guard.status()["kernel"]["attached"]


def test_critical_to_normal_what_was_dropped_stays_dropped(start: Start, client: UdpPeer, server: UdpPeer) -> None:
    guard = start_one_verdict(start, server, lrc=10, lcdm="drop_only")
    data = request("MESSAGE")
    with UdpPeer() as flooder:
        flood_until(guard, flooder, "critical_limit")
    client.send(data, guard.address())
    guard.await_status("the drop", lambda status: status["requests"].get("MESSAGE") == 1)
    assert guard.status()["state"] == "critical_limit"
    guard.await_status("the way back", lambda status: status["state"] == "normal")
    dropped = guard.status()["verdicts"]["drop"]
    client.send(data, guard.address())
    later = request("MESSAGE")
    client.send(later, guard.address())
    assert reaches(server, later)
    assert client.silent()
    assert guard.status()["verdicts"]["drop"] == dropped + 1
