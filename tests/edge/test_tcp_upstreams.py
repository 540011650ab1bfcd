"""TCP toward the protected servers: the pool, servers that die, return, hang, and their own requests (DESIGN §3)."""

from __future__ import annotations

import contextlib
import select
import socket
import time

import pytest

from sipguard.edge.connections import POOL_SIZE
from sipguard.edge.dialling import KEEP_ALIVE_S, USER_TIMEOUT_MS
from sipguard.edge.limits import INSIDE_UNSENT
from tests.edge.conftest import Start
from tests.edge.live import ThreadGuard
from tests.edge.messages import Message, ack, dialog_request, request, response
from tests.edge.peers import PATIENCE_S, Address, StreamPeer, StreamServer, UdpPeer, dead_port
from tests.edge.test_tcp_clients import LIMIT_BYTES, call_ids, tcp, through


def open_guard(start: Start, *upstreams: Address, **flags: object) -> ThreadGuard:
    """An edge before TCP upstreams that refuses nothing by itself."""
    return start(upstream=[f"tcp:{upstream.text}" for upstream in upstreams], **{"shadow": True, **flags})


# The pool


def test_clients_share_a_few_connections_and_each_keeps_to_one(start: Start, stream_server: StreamServer) -> None:
    """However many clients there are, an upstream has POOL_SIZE connections; one client's requests stay in order."""
    guard = open_guard(start, stream_server.address)
    with contextlib.ExitStack() as stack:
        callers = [stack.enter_context(StreamPeer.connect(guard.address("tcp"))) for _ in range(3 * POOL_SIZE)]
        sent = {caller.address.port: [tcp() for _ in range(20)] for caller in callers}
        for step in range(20):
            for caller in callers:
                caller.send(sent[caller.address.port][step])
        seen: dict[int, list[bytes]] = {}
        carriers: dict[int, set[int]] = {}
        total = 0
        for number in range(POOL_SIZE):
            upstream = stack.enter_context(stream_server.accept())
            while total < 20 * len(callers) and not upstream.silent():
                data = upstream.read()
                port = int(Message.of(data).one("X-Guard-Source").split(";")[1])
                seen.setdefault(port, []).append(data)
                carriers.setdefault(port, set()).add(number)
                total += 1
        assert {port: call_ids(data) for port, data in seen.items()} == {
            port: call_ids(data) for port, data in sent.items()
        }
        assert {len(numbers) for numbers in carriers.values()} == {1}
        assert guard.status()["connections"] == {"outside": 3 * POOL_SIZE, "inside": POOL_SIZE}
        assert not stream_server.asked()


# Upstreams that are away


def test_a_dead_upstream_is_503_to_the_client_and_its_ack_is_absorbed(start: Start) -> None:
    """Issue 2 §4, SPEC M2; after a failed attempt the same upstream costs no connection attempt for a second."""
    gone = dead_port()
    guard = open_guard(start, gone)
    with StreamPeer.connect(guard.address("tcp")) as caller:
        for _ in range(3):
            invite = tcp("INVITE")
            caller.send(invite)
            answer = caller.read()
            assert Message.of(answer).status == 503
            assert call_ids([answer]) == call_ids([invite])
            assert Message.of(answer).all("Via")[0].startswith("SIP/2.0/TCP 192.0.2.99:5060;")
            assert len(Message.of(answer).all("Via")) == 1
            caller.send(ack(answer, invite))
        status = guard.await_status("three absorbed ACKs", lambda status: status["absorbed"] == 3)
        assert status["requests"] == {"INVITE": 3}
        assert status["outcomes"] == {"unreachable": 3}
        assert status["edge"] == {"stream-connect-failed": 1, "stream-unreachable": 2}
        caller.send(tcp("ACK", to_tag="stranger"))
        guard.await_status("an ACK that nobody can have", lambda status: status["outcomes"]["unreachable"] == 4)
        assert caller.silent()


def test_what_waits_for_a_connection_that_fails_is_answered_in_order(start: Start) -> None:
    """Pipelined before the refusal is known: each request gets its 503."""
    guard = open_guard(start, dead_port())
    with StreamPeer.connect(guard.address("tcp")) as caller:
        sent = [tcp() for _ in range(50)]
        caller.send(b"".join(sent))
        answers = [caller.read() for _ in sent]
        assert call_ids(answers) == call_ids(sent)
        assert {Message.of(data).status for data in answers} == {503}


def test_a_restarted_upstream_is_connected_to_again_at_once(start: Start) -> None:
    """It closes its connections and listens anew: the next request makes a connection."""
    with StreamServer() as first:
        address = first.address
        guard = open_guard(start, address)
        caller = StreamPeer.connect(guard.address("tcp"))
        caller.send(tcp())
        upstream = first.accept()
        upstream.send(response(upstream.read()))
        assert Message.of(caller.read()).status == 200
        upstream.sock.close()
    with caller, StreamServer(port=address.port) as second:
        guard.await_status("the lost connection", lambda status: status["connections"]["inside"] == 0)
        caller.send(tcp())
        with second.accept() as upstream:
            upstream.send(response(upstream.read()))
            assert Message.of(caller.read()).status == 200
            through(caller, upstream)
    assert guard.status()["edge"] == {}


def test_an_upstream_that_comes_back_after_refusals_is_tried_again(start: Start) -> None:
    """503 while it is away; within a second or so of its return it is served."""
    gone = dead_port()
    guard = open_guard(start, gone)
    with StreamPeer.connect(guard.address("tcp")) as caller:
        caller.send(tcp())
        assert Message.of(caller.read()).status == 503
        with StreamServer(port=gone.port) as server:
            deadline_s = time.monotonic() + 10
            while time.monotonic() < deadline_s and not server.asked():
                caller.send(tcp())
                if not caller.silent():
                    assert Message.of(caller.read()).status == 503
            with server.accept() as upstream:
                upstream.send(response(upstream.read()))
                assert Message.of(caller.read()).status == 200


def test_an_upstream_that_accepts_and_closes_leaves_nothing_behind(start: Start, stream_server: StreamServer) -> None:
    """A connection that is lost the moment it is made is not taken for a living one afterwards."""
    guard = open_guard(start, stream_server.address)
    with StreamPeer.connect(guard.address("tcp")) as caller:
        for _ in range(4):
            _send_until_asked(caller, stream_server)
            stream_server.accept().reset()
        _send_until_asked(caller, stream_server)
        with stream_server.accept() as upstream:
            seen = upstream.read()
            upstream.send(response(seen))
            while call_ids([answer := caller.read()]) != call_ids([seen]):
                assert Message.of(answer).status == 503
            assert Message.of(answer).status == 200


def _send_until_asked(caller: StreamPeer, server: StreamServer) -> None:
    """Requests, until one of them makes the guard connect (after a failed attempt it waits a second)."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not server.asked():
        assert time.monotonic() < deadline_s
        caller.send(tcp())
        time.sleep(0.05)


# Upstreams that do not read


def _call_ids_by_upstream(start: Start, *servers: StreamServer) -> list[str]:
    """For each of the servers a Call-ID that goes there (weighted rendezvous hash, DESIGN §3), found by trying."""
    scouting = open_guard(start, *(server.address for server in servers))
    found: dict[int, str] = {}
    with StreamPeer.connect(scouting.address("tcp")) as scout, contextlib.ExitStack() as stack:
        peers: dict[socket.socket, tuple[int, StreamPeer]] = {}
        listening = {server.sock: number for number, server in enumerate(servers)}
        for name in (f"try-{n}" for n in range(64)):
            scout.send(tcp(call_id=name))
            arrived = False
            while not arrived:
                ready, _, _ = select.select([*listening, *peers], [], [], PATIENCE_S)
                assert ready
                for sock in ready:
                    if sock in listening:
                        peer = stack.enter_context(servers[listening[sock]].accept())
                        peers[peer.sock] = listening[sock], peer
                    else:
                        number, peer = peers[sock]
                        assert call_ids([peer.read()]) == [name]
                        found[number] = name
                        arrived = True
            if len(found) == len(servers):
                return [found[number] for number in range(len(servers))]
    raise AssertionError(f"one upstream is never chosen: {found}")


def test_an_upstream_that_does_not_read_stops_its_clients_and_nobody_else(start: Start) -> None:
    """Backpressure: what is kept for it is bounded, its clients are not read any more, others go on, and when it reads
    again everything that was taken arrives, in order."""
    with StreamServer(receive_buffer=4096) as hung, StreamServer() as well, contextlib.ExitStack() as stack:
        to_hung, to_well = _call_ids_by_upstream(start, hung, well)
        guard = open_guard(start, hung.address, well.address)
        flooder = stack.enter_context(StreamPeer.connect(guard.address("tcp")))
        bystander = stack.enter_context(StreamPeer.connect(guard.address("tcp")))
        question = tcp(call_id=to_hung, body=b"x" * 500)
        sent = flooder.send_until_full(question, LIMIT_BYTES)
        assert 0 < sent < LIMIT_BYTES
        assert 0 < max(guard.unsent()) <= INSIDE_UNSENT.max_bytes
        bystander.send(tcp(call_id=to_well))
        living = stack.enter_context(well.accept())
        living.send(response(living.read()))
        assert Message.of(bystander.read()).status == 200
        # It reads again.
        upstream = stack.enter_context(hung.accept())
        count = sent // len(question)
        for _ in range(count):
            assert call_ids([upstream.read()]) == [to_hung]
        rest = question[sent % len(question) :] if sent % len(question) else b""
        flooder.send(rest)
        if rest:
            upstream.read()
        through_hung = tcp(call_id=to_hung)
        flooder.send(through_hung)
        upstream.send(response(upstream.read()))
        assert Message.of(flooder.read()).status == 200
    assert guard.status()["edge"] == {}


def test_an_upstream_that_does_not_read_is_still_heard(start: Start, stream_server: StreamServer) -> None:
    """It may wait for us to take its responses before it takes more requests: neither side must wait for the other."""
    guard = open_guard(start, stream_server.address)
    with StreamPeer.connect(guard.address("tcp")) as caller:
        caller.send(tcp())
        with stream_server.accept() as upstream:
            asked = upstream.read()
            caller.send_until_full(tcp(body=b"x" * 500), LIMIT_BYTES)
            upstream.send(response(asked, 183, "Session Progress") * 50 + response(asked))
            assert [Message.of(caller.read()).status for _ in range(51)] == [183] * 50 + [200]


def test_a_hung_upstream_is_given_up_and_its_clients_are_read_again(
    start: Start, stream_server: StreamServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """tcp(7) TCP_USER_TIMEOUT: one that takes nothing any more does not hold its clients for the kernel's quarter of an hour."""
    monkeypatch.setattr("sipguard.edge.dialling.USER_TIMEOUT_MS", 500)
    with StreamServer(receive_buffer=4096) as hung:
        guard = open_guard(start, hung.address)
        with StreamPeer.connect(guard.address("tcp")) as caller:
            question = tcp(body=b"x" * 500)
            sent = caller.send_until_full(question, LIMIT_BYTES, quiet_s=0.2)
            # It never accepts, so it never reads. Once it is given up a new connection takes its place, and so on.
            rest = question[sent % len(question) :]
            caller.sock.settimeout(PATIENCE_S)
            caller.send(rest + question * 200)
            guard.await_status("a second connection", lambda _: hung.asked() and _attempts(hung) >= 2)


def _attempts(server: StreamServer) -> int:
    """Connections that wait to be accepted, by accepting them; ended ones too."""
    count = 0
    while server.asked():
        server.accept().sock.close()
        count += 1
    return count


def test_made_connections_are_kept_alive_and_given_up_by_the_kernel(start: Start, stream_server: StreamServer) -> None:
    """An upstream that vanishes without a FIN is noticed: probes, and a limit on what stays unacknowledged."""
    guard = open_guard(start, stream_server.address)
    with StreamPeer.connect(guard.address("tcp")) as caller:
        caller.send(tcp())
        with stream_server.accept() as upstream:
            through_answer = response(upstream.read())
            upstream.send(through_answer)
            assert Message.of(caller.read()).status == 200
            assert guard.call(lambda: _socket_options(guard)) == [(1, USER_TIMEOUT_MS, KEEP_ALIVE_S)]


def _socket_options(guard: ThreadGuard) -> list[tuple[int, int, int]]:
    """SO_KEEPALIVE, TCP_USER_TIMEOUT and TCP_KEEPIDLE of the inside connections."""
    found = []
    for connection in guard.edge._connections._by_number.values():
        if connection.listener.inside and connection._transport is not None:
            sock = connection._transport.get_extra_info("socket")
            found.append(
                (
                    sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE),
                    sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT),
                    sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE),
                )
            )
    return found


# Requests of the upstreams


def test_requests_of_the_upstream_reach_the_client_over_the_pooled_connection(
    start: Start, stream_server: StreamServer
) -> None:
    """RFC 3261 16.12 with our Record-Route: BYE from the callee's side, its answer back; not counted (DESIGN §3)."""
    guard = open_guard(start, stream_server.address)
    with StreamPeer.connect(guard.address("tcp")) as caller:
        caller.send(tcp("INVITE"))
        with stream_server.accept() as upstream:
            invite = upstream.read()
            upstream.send(response(invite))
            caller.read()
            upstream.send(dialog_request("BYE", invite, route_reversed=False, transport="TCP", swap=True))
            bye = caller.read()
            assert Message.of(bye).method == "BYE"
            assert Message.of(bye).all("Route") == []
            assert Message.of(bye).all("Via")[0].startswith(f"SIP/2.0/TCP {guard.address('tcp').text};")
            caller.send(response(bye))
            answer = Message.of(upstream.read())
            assert (answer.status, answer.method, len(answer.all("Via"))) == (200, "BYE", 1)
    assert guard.status()["requests"] == {"INVITE": 1}


def test_streams_over_ipv6(start: Start) -> None:
    """Both sides, both directions, and an answer for a client whose upstream is gone (RFC 3261 25.1: brackets)."""
    with StreamServer("::1") as server:
        guard = open_guard(start, server.address, listen=["tcp:[::1]:0"])
        caller = StreamPeer.connect(guard.address("tcp"))
        caller.send(tcp("INVITE"))
        upstream = server.accept()
        invite = upstream.read()
        assert Message.of(invite).all("Via")[0].startswith("SIP/2.0/TCP [::1]:")
        upstream.send(response(invite))
        assert Message.of(caller.read()).status == 200
        upstream.send(dialog_request("BYE", invite, route_reversed=False, transport="TCP", swap=True))
        bye = caller.read()
        caller.send(response(bye))
        assert Message.of(upstream.read()).status == 200
        upstream.sock.close()
    with caller:
        guard.await_status("the lost connection", lambda status: status["connections"]["inside"] == 0)
        caller.send(tcp())
        assert Message.of(caller.read()).status == 503


def test_requests_of_the_upstream_come_in_by_the_inside_listener_too(start: Start, stream_server: StreamServer) -> None:
    """A server that makes a connection of its own to the address in its Route gets the answer on that connection."""
    guard = open_guard(start, stream_server.address)
    with StreamPeer.connect(guard.address("tcp")) as caller:
        caller.send(tcp("INVITE"))
        with stream_server.accept() as upstream:
            invite = upstream.read()
            upstream.send(response(invite))
            caller.read()
            assert guard.inside("tcp").text in Message.of(invite).all("Record-Route")[0]
            with StreamPeer.connect(guard.inside("tcp")) as own:
                own.send(dialog_request("INFO", invite, route_reversed=False, transport="TCP", swap=True))
                info = caller.read()
                caller.send(response(info))
                assert Message.of(own.read()).status == 200
                assert upstream.silent()
                # Its client gone, the upstream learns it.
                caller.sock.close()
                guard.await_status("the client's end", lambda status: status["connections"]["outside"] == 0)
                own.send(dialog_request("BYE", invite, route_reversed=False, transport="TCP", swap=True))
                assert Message.of(own.read()).status == 503
    assert guard.status()["requests"] == {"INVITE": 1}


def test_a_numeric_next_hop_is_connected_to(start: Start, stream_server: StreamServer) -> None:
    """A request from inside without our Route goes to the address it names (DESIGN §3), and its answer comes back."""
    guard = open_guard(start, stream_server.address)
    with StreamServer() as phone, StreamPeer.connect(guard.inside("tcp")) as upstream:
        sent = [tcp(uri=f"sip:bob@{phone.address.text};transport=tcp") for _ in range(3)]
        upstream.send(b"".join(sent))
        with phone.accept() as reached:
            seen = [reached.read() for _ in sent]
            assert call_ids(seen) == call_ids(sent)
            reached.send(b"".join(map(response, seen)))
            assert call_ids([upstream.read() for _ in sent]) == call_ids(sent)
        gone = dead_port()
        upstream.send(tcp(uri=f"sip:bob@{gone.text};transport=tcp"))
        assert Message.of(upstream.read()).status == 503


def test_udp_and_tcp_upstreams_are_served_side_by_side(start: Start, stream_server: StreamServer) -> None:
    """DESIGN §3: datagram to datagram, stream to stream."""
    with UdpPeer() as datagrams, UdpPeer() as udp_caller:
        guard = start(upstream=[f"udp:{datagrams.address.text}", f"tcp:{stream_server.address.text}"])
        with StreamPeer.connect(guard.address("tcp")) as tcp_caller:
            tcp_caller.send(tcp(call_id="stream"))
            udp_caller.send(request(call_id="datagram"), guard.address())
            seen, inside = datagrams.receive()
            with stream_server.accept() as upstream:
                assert call_ids([seen]) == ["datagram"]
                streamed = upstream.read()
                assert call_ids([streamed]) == ["stream"]
                upstream.send(response(streamed))
                datagrams.send(response(seen), inside)
                assert call_ids([tcp_caller.read(), udp_caller.read()]) == ["stream", "datagram"]


@pytest.mark.parametrize("transport", ["udp", "tcp"])
def test_without_an_upstream_of_the_transport_the_answer_is_503(start: Start, transport: str) -> None:
    """DESIGN §3: counted as an outcome of allow, by reason."""
    other = "tcp" if transport == "udp" else "udp"
    gone = dead_port()
    guard = start(listen=[f"{other}:127.0.0.1:0", f"{transport}:127.0.0.1:0"], upstream=[f"{other}:{gone.text}"])
    if transport == "udp":
        with UdpPeer() as caller:
            caller.send(request(), guard.address())
            answer = caller.read()
    else:
        with StreamPeer.connect(guard.address("tcp")) as stream:
            stream.send(tcp())
            answer = stream.read()
    assert Message.of(answer).status == 503
    assert guard.status()["outcomes"] == {"no-upstream": 1}
    with contextlib.suppress(OSError):
        socket.create_connection(gone, 0.1).close()
