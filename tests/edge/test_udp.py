"""UDP on the live edge: the right addresses both ways, dead upstreams, and what is not SIP (DESIGN §3, issue 2 §4)."""

from __future__ import annotations

import contextlib
import ipaddress
import random
import socket
import time
from typing import Any

import pytest

from tests.edge.conftest import Start
from tests.edge.live import ThreadGuard
from tests.edge.messages import Message, dialog_request, request, response, unique
from tests.edge.peers import Address, UdpPeer, dead_port
from tests.peers.process import wait_until

STUN = bytes.fromhex("000100002112a442") + bytes(12)


def through(guard: ThreadGuard, client: UdpPeer, server: UdpPeer, to: Address | None = None) -> Message:
    """One MESSAGE through the guard and its 200 back: the service goes on. The request as the server saw it."""
    sent = request()
    client.send(sent, to or guard.address())
    while True:
        seen, source = server.receive()
        if Message.of(seen).one("Call-ID") == Message.of(sent).one("Call-ID"):
            break
    server.send(response(seen), source)
    answer, _ = client.receive()
    assert Message.of(answer).status == 200
    assert Message.of(answer).one("Call-ID") == Message.of(sent).one("Call-ID")
    return Message.of(seen)


# Addresses


def test_forwards_in_and_answers_out_from_the_listeners_address(start: Start, client: UdpPeer, server: UdpPeer) -> None:
    """RFC 3261 16.6, 16.7, 18.2.2; RFC 3581 4: out by the inside socket, back from the one that was asked."""
    guard = start(upstream=[f"udp:{server.address.text}"])
    client.send(request("INVITE"), guard.address())
    seen, source = server.receive()
    assert source == guard.inside()
    vias = Message.of(seen).all("Via")
    assert len(vias) == 2
    assert vias[0].startswith(f"SIP/2.0/UDP {guard.inside().text};")
    assert "received=127.0.0.1" in vias[1]
    assert f"rport={client.address.port}" in vias[1]
    assert Message.of(seen).one("X-Guard-Source") == f"127.0.0.1;{client.address.port};udp"
    server.send(response(seen), source)
    answer, answered_from = client.receive()
    assert answered_from == guard.address()
    assert Message.of(answer).status == 200
    assert len(Message.of(answer).all("Via")) == 1


@pytest.mark.parametrize("asked", ["127.0.0.1", "127.0.0.2", "127.77.0.9"])
def test_a_wildcard_bind_answers_from_the_address_that_was_asked(
    start: Start, client: UdpPeer, server: UdpPeer, asked: str
) -> None:
    """DESIGN §3: forwarded responses, own answers and requests from inside leave from it; Record-Route names it."""
    guard = start(listen=["udp:0.0.0.0:0"], upstream=[f"udp:{server.address.text}"])
    there = guard.address().at(asked)
    client.send(request("INVITE"), there)
    seen, inside = server.receive()
    assert [f"<sip:{there.text};lr>" in route for route in Message.of(seen).all("Record-Route")] == [False, True]
    server.send(response(seen), inside)
    assert client.receive()[1] == there
    client.send(request(max_forwards=0), there)
    answer, answered_from = client.receive()
    assert Message.of(answer).status == 483
    assert answered_from == there
    server.send(dialog_request("BYE", seen, route_reversed=False, swap=True), inside)
    bye, bye_from = client.receive()
    assert Message.of(bye).method == "BYE"
    assert bye_from == there
    assert Message.of(bye).all("Via")[0].startswith(f"SIP/2.0/UDP {there.text};")
    client.send(response(bye), bye_from)
    assert Message.of(server.read()).status == 200


def _second_ipv6() -> str | None:
    """A local IPv6 address besides ::1, not link-local."""
    with contextlib.suppress(OSError), open("/proc/net/if_inet6") as file:
        for line in file:
            address = ipaddress.IPv6Address(bytes.fromhex(line.split()[0]))
            if not (address.is_loopback or address.is_link_local):
                return str(address)
    return None


def test_a_wildcard_bind_of_ipv6_answers_from_the_address_that_was_asked(start: Start, server: UdpPeer) -> None:
    """RFC 3542 6.1, 6.2: from ::1 alone the kernel would answer ::1's clients, whatever they asked."""
    guard = start(listen=["udp:[::]:0"], upstream=[f"udp:{server.address.text}"])
    asked = guard.address().at(_second_ipv6() or "::1")
    with UdpPeer("::1") as client:
        client.send(request("INVITE"), asked)
        seen, inside = server.receive()
        assert f"<sip:{asked.text};lr>" in Message.of(seen).all("Record-Route")[1]
        assert "received=::1" in Message.of(seen).all("Via")[1]
        server.send(response(seen), inside)
        assert client.receive()[1] == asked
        client.send(request(max_forwards=0), asked)
        assert client.receive()[1] == asked


def test_ipv6_on_both_sides(start: Start) -> None:
    """IPv6 listener, IPv6 upstream: brackets in Via and Record-Route (RFC 3261 25.1)."""
    with UdpPeer("::1") as server, UdpPeer("::1") as client:
        guard = start(listen=["udp:[::1]:0"], upstream=[f"udp:{server.address.text}"])
        client.send(request("INVITE"), guard.address())
        seen, inside = server.receive()
        assert inside == guard.inside()
        assert Message.of(seen).all("Via")[0].startswith(f"SIP/2.0/UDP [::1]:{inside.port};")
        assert Message.of(seen).one("X-Guard-Source") == f"::1;{client.address.port};udp"
        server.send(response(seen), inside)
        assert client.receive()[1] == guard.address()
        server.send(dialog_request("BYE", seen, route_reversed=False, swap=True), inside)
        assert Message.of(client.read()).method == "BYE"


def test_the_advertised_address_is_written_and_recognised(start: Start, client: UdpPeer, server: UdpPeer) -> None:
    """DESIGN §3: `advertise` stands in Record-Route and toward the outside in Via; a Route with it is our own."""
    guard = start(listen=["udp:127.0.0.1:0,advertise=203.0.113.7:5099"], upstream=[f"udp:{server.address.text}"])
    client.send(request("INVITE"), guard.address())
    seen, inside = server.receive()
    assert "<sip:203.0.113.7:5099;lr>" in Message.of(seen).all("Record-Route")[1]
    answer = response(seen)
    server.send(answer, inside)
    client.read()
    client.send(dialog_request("BYE", answer), guard.address())
    bye = Message.of(server.read())
    assert bye.method == "BYE"
    assert bye.all("Route") == []
    server.send(dialog_request("BYE", seen, route_reversed=False, swap=True), inside)
    assert Message.of(client.read()).all("Via")[0].startswith("SIP/2.0/UDP 203.0.113.7:5099;")


def test_two_listeners_each_answer_for_themselves(start: Start, client: UdpPeer, server: UdpPeer) -> None:
    """DESIGN §3: a response goes back on the flow named in our Via, whichever listener that was."""
    guard = start(listen=["udp:127.0.0.1:0", "udp:127.0.0.3:0"], upstream=[f"udp:{server.address.text}"])
    ports = {guard.address(number=0).port, guard.address(number=1).port}
    assert len(ports) == 2
    for number in (0, 1):
        client.send(request(), guard.address(number=number))
        seen, inside = server.receive()
        server.send(response(seen), inside)
        assert client.receive()[1] == guard.address(number=number)


def test_inside_sockets_belong_to_no_source_address(start: Start, client: UdpPeer, server: UdpPeer) -> None:
    """DESIGN §3: inside is a socket. An upstream's request at the outside listener is a client's; a stranger's at the
    inside one goes nowhere."""
    guard = start(upstream=[f"udp:{server.address.text}"])
    server.send(request(), guard.address())
    assert Message.of(server.read()).one("X-Guard-Source") == f"127.0.0.1;{server.address.port};udp"
    assert guard.status()["requests"] == {"MESSAGE": 1}
    with UdpPeer("127.0.0.9") as stranger:
        stranger.send(request(uri=f"sip:{client.address.text}"), guard.inside())
        guard.await_status("the stranger's discard", lambda status: status["discards"] == {"inside-stranger": 1})
    assert client.silent()
    assert guard.status()["requests"] == {"MESSAGE": 1}


# A dead upstream


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_refusals_of_a_dead_upstream_are_counted_once_each_and_end_nothing(start: Start, host: str) -> None:
    """Issue 2 §4: ICMP refusals; no spin after them, and the upstream is served again when it is back."""
    gone = dead_port(host)
    with UdpPeer(host) as client:
        guard = start(listen=[f"udp:{client.address.at(host)._replace(port=0).text}"], upstream=[f"udp:{gone.text}"])
        for n in range(1, 6):
            client.send(request(), guard.address())
            guard.await_counter("udp-refused", n)
        for _ in range(40):
            client.send(request(), guard.address())
        guard.await_counter("udp-refused", 45)
        assert guard.status()["edge"] == {"udp-refused": 45}
        assert guard.sleeps()
        with UdpPeer(host, gone.port) as server:
            for _ in range(3):
                through(guard, client, server)


def test_a_dead_upstream_does_not_silence_the_living_one(start: Start, client: UdpPeer, server: UdpPeer) -> None:
    """They share one inside socket: the dead one's refusals stand between the living one's responses."""
    gone = dead_port()
    guard = start(upstream=[f"udp:{gone.text}", f"udp:{server.address.text}"])
    answered = 0
    for round_number in range(1, 11):
        for n in range(20):
            client.send(request(call_id=f"both-{round_number}-{n}"), guard.address())
        for _ in range(200):
            for seen in server.drain():
                server.send(response(seen), guard.inside())
            answered += len(client.drain())
            if answered + guard.counter("udp-refused") == 20 * round_number:
                break
            time.sleep(0.02)
        assert answered + guard.counter("udp-refused") == 20 * round_number
    assert 40 < answered < 160
    assert guard.sleeps()


def test_a_client_that_is_gone_is_no_error(start: Start, server: UdpPeer) -> None:
    """Answers to a closed port: the outside socket learns of no refusal, and goes on."""
    guard = start(upstream=[f"udp:{server.address.text}"])
    for _ in range(20):
        with UdpPeer() as client:
            client.send(request(), guard.address())
        seen, inside = server.receive()
        server.send(response(seen), inside)
    with UdpPeer() as client:
        through(guard, client, server)
    assert guard.status()["edge"] == {}


# What is not SIP


NOT_SIP = {
    "empty": b"",
    "keep-alive": b"\r\n\r\n",
    "stun": STUN,
    "not-sip": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
}


@pytest.mark.parametrize("kind", NOT_SIP)
def test_what_is_not_sip_is_counted_by_kind_and_never_answered(
    start: Start, client: UdpPeer, server: UdpPeer, kind: str
) -> None:
    """DESIGN §3: not a request of RPS, no answer, one counter each; on the inside socket too."""
    guard = start(upstream=[f"udp:{server.address.text}"])
    for _ in range(25):
        client.send(NOT_SIP[kind], guard.address())
    for _ in range(5):
        server.send(NOT_SIP[kind], guard.inside())
    status = guard.await_status("30 discards", lambda status: sum(status["discards"].values()) == 30)
    assert status["discards"] == {kind: 25, f"inside-{kind}": 5}
    assert status["requests"] == {}
    assert client.silent()
    assert server.silent()
    through(guard, client, server)


@pytest.mark.parametrize("octets", [1, 2, 3, 11, 12, 13, 28, 65507])
def test_datagrams_of_every_size_leave_the_service_alone(
    start: Start, client: UdpPeer, server: UdpPeer, octets: int
) -> None:
    """Issue 2 §4: 2-byte and 64 KiB datagrams of garbage."""
    guard = start(upstream=[f"udp:{server.address.text}"])
    client.send(b"x" * octets, guard.address())
    guard.await_status("the discard", lambda status: status["discards"] == {"not-sip": 1})
    through(guard, client, server)


def test_the_largest_request_that_fits_is_passed_and_one_that_no_longer_does_is_counted(
    start: Start, client: UdpPeer, server: UdpPeer
) -> None:
    """With the guard's headers a datagram may outgrow UDP (65,507 octets): counted, never raised."""
    guard = start(upstream=[f"udp:{server.address.text}"])
    client.send(_request_of(65000), guard.address())
    grown = len(server.read()) - 65000
    assert grown > 0
    # Over what IPv4 takes, and over what UDP's own length field takes: the kernel reports the one in the error queue too.
    for outgoing in (65508, 65536):
        client.send(_request_of(outgoing - grown), guard.address())
    guard.await_counter("udp-send-error", 2)
    assert guard.status()["edge"] == {"udp-send-error": 2}
    assert guard.status()["requests"] == {"MESSAGE": 3}
    assert guard.sleeps()
    through(guard, client, server)


def _request_of(octets: int) -> bytes:
    """A MESSAGE of exactly so many octets."""
    bare = request(call_id="large", branch="z9hG4bK-large", content_length="00000")
    size = octets - len(bare)
    return request(call_id="large", branch="z9hG4bK-large", body=bytes(size), content_length=f"{size:05}")


def test_hostile_bytes_raise_nothing(start: Start, client: UdpPeer, server: UdpPeer) -> None:
    """DESIGN §2: mutated messages from both sides end as requests, discards or responses; each is accounted for."""
    guard = start(upstream=[f"udp:{server.address.text}"])
    dice = random.Random(3261)
    models = [
        request("INVITE"),
        request("ACK", to_tag="x"),
        response(request()),
        dialog_request("BYE", request("INVITE")),
    ]
    for number in range(600):
        data = bytearray(dice.choice(models))
        for _ in range(dice.randint(1, 6)):
            at = dice.randrange(len(data))
            data[at : at + dice.randint(0, 8)] = dice.randbytes(dice.randint(0, 8))
        client.send(bytes(data), guard.address())
        server.send(bytes(data), guard.inside())
        if number % 50 == 49:
            server.drain()
            client.drain()
    status = guard.await_status("all of them", lambda status: _accounted(status) >= 600)
    assert _accounted(status) == 600
    assert not guard.problems
    server.drain()
    client.drain()
    through(guard, client, server)


def _accounted(status: dict[str, Any]) -> int:
    """Datagrams from outside that found a counter. A response that leads nowhere is among the discards too."""
    discards: int = sum(
        n for reason, n in status["discards"].items() if not reason.startswith(("inside-", "response-"))
    )
    requests: int = sum(status["requests"].values())
    others: int = status["responses"]["outside"] + status["absorbed"]
    return requests + discards + others


# Binding


def test_a_taken_port_is_refused_with_its_address(start: Start, server: UdpPeer) -> None:
    """Two guards on one port would share its packets silently: OSError that names the address."""
    taken = server.address
    with pytest.raises(OSError, match=f"udp:127.0.0.1:{taken.port}: Address already in use"):
        start(listen=[f"udp:{taken.text}"], upstream=["udp:127.0.0.1:9"])


def test_an_address_of_another_machine_is_refused_with_its_name(start: Start) -> None:
    with pytest.raises(OSError, match=r"udp:192\.0\.2\.250:5060: Cannot assign requested address"):
        start(listen=["udp:192.0.2.250:5060"], upstream=["udp:127.0.0.1:9"])


def test_nothing_stays_open_after_a_failed_start_or_a_stop(client: UdpPeer, server: UdpPeer) -> None:
    """A port that a failed start had bound is free again, and so is each one after `stop`."""
    first = ThreadGuard("uvloop", upstream=[f"udp:{server.address.text}"])
    with first:
        udp, tcp = first.address(), first.address("tcp")
        second = ThreadGuard("uvloop", listen=["udp:127.0.0.4:0", f"udp:{udp.text}"], upstream=["udp:127.0.0.1:9"])
        with pytest.raises(OSError, match="Address already in use"):
            second.__enter__()
    for kind, address in ((socket.SOCK_DGRAM, udp), (socket.SOCK_STREAM, tcp)):
        with socket.socket(socket.AF_INET, kind) as sock:
            sock.bind(address)
    wait_until(lambda: not second._thread.is_alive(), 5, "the failed guard's thread")


def test_one_socket_may_send_to_many_clients(start: Start, server: UdpPeer) -> None:
    """Each client's answer reaches that client alone, whatever order the server answers in."""
    guard = start(upstream=[f"udp:{server.address.text}"])
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(UdpPeer()) for _ in range(40)]
        names = [unique("many-") for _ in clients]
        for client, name in zip(clients, names, strict=True):
            client.send(request(call_id=name), guard.address())
        seen = [server.receive() for _ in clients]
        random.Random(1).shuffle(seen)
        for data, inside in seen:
            server.send(response(data), inside)
        for client, name in zip(clients, names, strict=True):
            assert Message.of(client.read()).one("Call-ID") == name
