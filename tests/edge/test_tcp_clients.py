"""TCP from the clients' side: framing, keep-alives, limits, the cap, and clients that misbehave (RFC 3261 18.3, DESIGN §3)."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import pytest

from sipguard.edge.connections import POOL_SIZE
from sipguard.edge.limits import OUTSIDE_UNSENT
from sipguard.edge.streams import CHUNK_BYTES
from tests.edge.conftest import Start
from tests.edge.live import ThreadGuard
from tests.edge.messages import Message, request, response
from tests.edge.peers import StreamPeer, StreamServer

LIMIT_BYTES = 64 * 1024 * 1024
"""A peer that can write so much without being stopped has found something unbounded."""


@pytest.fixture
def guard(start: Start, stream_server: StreamServer) -> ThreadGuard:
    """An edge that refuses nothing, however much comes."""
    return start(upstream=[f"tcp:{stream_server.address.text}"], shadow=True)


@pytest.fixture
def caller(guard: ThreadGuard) -> Iterator[StreamPeer]:
    """A connected client."""
    with StreamPeer.connect(guard.address("tcp")) as peer:
        yield peer


def tcp(method: str = "MESSAGE", **parts: object) -> bytes:
    return request(method, transport="TCP", **parts)  # type: ignore[arg-type]


def call_ids(messages: list[bytes]) -> list[str]:
    return [Message.of(data).one("Call-ID") for data in messages]


def through(caller: StreamPeer, upstream: StreamPeer) -> None:
    """A request and its answer: the service goes on."""
    sent = tcp()
    caller.send(sent)
    seen = upstream.read()
    upstream.send(response(seen))
    assert call_ids([seen, caller.read()]) == call_ids([sent]) * 2


# Framing


def test_pipelined_requests_keep_their_order_both_ways(
    guard: ThreadGuard, caller: StreamPeer, stream_server: StreamServer
) -> None:
    """All over one upstream connection, also those that came while it was being made."""
    sent = [tcp(body=b"x" * (n % 7)) for n in range(300)]
    caller.send(b"".join(sent))
    with stream_server.accept() as upstream:
        seen = [upstream.read() for _ in sent]
        assert call_ids(seen) == call_ids(sent)
        assert [len(Message.of(data).body) for data in seen] == [n % 7 for n in range(300)]
        upstream.send(b"".join(response(data) for data in seen))
        answers = [caller.read() for _ in sent]
        assert call_ids(answers) == call_ids(sent)
        assert {Message.of(data).status for data in answers} == {200}
    assert guard.status()["requests"] == {"MESSAGE": 300}
    assert not stream_server.asked()


def test_one_byte_at_a_time_is_the_same_message(
    guard: ThreadGuard, caller: StreamPeer, stream_server: StreamServer
) -> None:
    """RFC 3261 18.3: a stream has no packets."""
    data = tcp("INVITE", body=b"v=0\r\n\r\no=-\r\n")
    for at in range(len(data)):
        caller.send(data[at : at + 1])
    with stream_server.accept() as upstream:
        seen = Message.of(upstream.read())
        assert seen.body == b"v=0\r\n\r\no=-\r\n"
        for octet in response(seen.data):
            upstream.send(bytes((octet,)))
        assert Message.of(caller.read()).status == 200
        through(caller, upstream)


def test_a_keep_alive_ping_is_answered_with_a_pong(
    guard: ThreadGuard, caller: StreamPeer, stream_server: StreamServer
) -> None:
    """RFC 5626 4.4.1: CRLFCRLF between messages gets CRLF, a single CRLF (RFC 3261 7.5) nothing; neither counts."""
    caller.send(b"\r\n\r\n")
    assert caller.read_exactly(2) == b"\r\n"
    caller.send(b"\r\n")
    assert caller.silent()
    caller.send(b"\r\n" + b"\r\n\r\n" + tcp(max_forwards=0) + b"\r\n\r\n")
    assert caller.read_exactly(4) == b"\r\n\r\n"
    assert Message.of(caller.read()).status == 483
    assert caller.read_exactly(2) == b"\r\n"
    assert caller.silent()
    assert guard.status()["requests"] == {"MESSAGE": 1}


BROKEN = {
    "bad-content-length": (tcp(headers=["Content-Length: 5"]), 400),
    "body-too-large": (tcp(content_length="65537"), 400),
    "head-too-large": (tcp(headers=["X: " + "y" * 66000]), 0),
    "bad-start-line": (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 0),
}


@pytest.mark.parametrize("reason", BROKEN)
def test_a_stream_that_lost_its_framing_gets_400_where_one_can_be_built_and_is_closed(
    guard: ThreadGuard, caller: StreamPeer, stream_server: StreamServer, reason: str
) -> None:
    """Issue 2 §3; what came before is served, what comes after is not read as a message."""
    data, status = BROKEN[reason]
    with StreamPeer.connect(guard.address("tcp")) as other:
        caller.send(tcp(max_forwards=0) + data + tcp("BYE", max_forwards=0))
        assert Message.of(caller.read()).status == 483
        if status:
            assert Message.of(caller.read()).status == status
        assert caller.ended()
        discards = guard.await_status("the discard", lambda status: bool(status["discards"]))["discards"]
        assert discards == {reason: 1}
        assert guard.status()["requests"] == {"MESSAGE": 1}
        other.send(tcp(max_forwards=0))
        assert Message.of(other.read()).status == 483


def test_max_body_is_the_operators(start: Start, stream_server: StreamServer) -> None:
    guard = start(upstream=[f"tcp:{stream_server.address.text}"], max_body=10)
    with StreamPeer.connect(guard.address("tcp")) as caller:
        caller.send(tcp(body=b"0123456789"))
        with stream_server.accept() as upstream:
            assert Message.of(upstream.read()).body == b"0123456789"
        caller.send(tcp(body=b"0123456789a"))
        assert Message.of(caller.read()).status == 400
        assert caller.ended()


def test_a_wildcard_bind_names_the_address_that_was_asked(start: Start, stream_server: StreamServer) -> None:
    """DESIGN §3, Record-Route of a stream: `transport=tcp` and the local address of the connection."""
    guard = start(listen=["tcp:0.0.0.0:0"], upstream=[f"tcp:{stream_server.address.text}"])
    asked = guard.address("tcp").at("127.0.0.2")
    with StreamPeer.connect(asked) as caller:
        caller.send(tcp("INVITE"))
        with stream_server.accept() as upstream:
            seen = Message.of(upstream.read())
            assert f"<sip:{asked.text};transport=tcp;lr>" in seen.all("Record-Route")[1]
            assert seen.one("X-Guard-Source") == f"127.0.0.1;{caller.address.port};tcp"
            upstream.send(response(seen.data))
            assert Message.of(caller.read()).status == 200


# Limits


def test_an_unfinished_message_has_a_time_limit(
    start: Start, stream_server: StreamServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 2 §3: also when bytes keep coming; a connection between messages is not concerned."""
    monkeypatch.setattr("sipguard.edge.sweeping.SWEEP_S", 0.05)
    guard = start(upstream=[f"tcp:{stream_server.address.text}"], partial_timeout_s=0.3)
    with StreamPeer.connect(guard.address("tcp")) as slow, StreamPeer.connect(guard.address("tcp")) as calm:
        calm.send(b"\r\n\r\n")
        slow.send(b"OPTIONS sip:bob@example.org SIP/2.0\r\nX-Slow: ")
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            for _ in range(200):
                slow.send(b"y")
                time.sleep(0.02)
        assert slow.ended()
        assert guard.counter("stream-partial-timeout") == 1
        assert calm.read_exactly(2) == b"\r\n"
        assert calm.silent()
    assert guard.status()["edge"] == {"stream-partial-timeout": 1}


def test_a_silent_connection_is_closed_and_one_that_pings_stays(
    start: Start, stream_server: StreamServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`idle_timeout_s`; a keep-alive is something that comes."""
    monkeypatch.setattr("sipguard.edge.sweeping.SWEEP_S", 0.05)
    guard = start(upstream=[f"tcp:{stream_server.address.text}"], idle_timeout_s=1.0)
    with StreamPeer.connect(guard.address("tcp")) as silent, StreamPeer.connect(guard.address("tcp")) as alive:
        for _ in range(60):
            alive.send(b"\r\n\r\n")
            assert alive.read_exactly(2) == b"\r\n"
            if guard.counter("stream-idle-closed"):
                break
            time.sleep(0.1)
        assert silent.ended()
        assert guard.counter("stream-idle-closed") == 1
        alive.send(b"\r\n\r\n")
        assert alive.read_exactly(2) == b"\r\n"
        assert guard.status()["connections"]["outside"] == 1


def test_a_connection_that_was_told_400_and_does_not_read_it_is_closed_all_the_same(
    start: Start, stream_server: StreamServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A close that waits for the peer to read would keep the connection, and its place under the cap, for ever."""
    monkeypatch.setattr("sipguard.edge.sweeping.SWEEP_S", 0.05)
    guard = start(upstream=[f"tcp:{stream_server.address.text}"], partial_timeout_s=0.3)
    with StreamPeer.connect(guard.address("tcp"), receive_buffer=4096) as caller:
        caller.send_until_full(tcp(max_forwards=0), LIMIT_BYTES)
        guard.await_status("no answer fits any more", lambda _: max(guard.unsent(), default=0) > 0)
        guard.call(next(iter(guard.edge._connections._by_number.values())).close)
        assert guard.await_counter("stream-slow-closed") == 1
        guard.await_status("its place is free", lambda status: status["connections"]["outside"] == 0)
    assert guard.counter("stream-slow-closed") == 1


# Clients that misbehave


def test_a_response_for_a_client_that_is_gone_is_counted(
    guard: ThreadGuard, caller: StreamPeer, stream_server: StreamServer
) -> None:
    caller.send(tcp() + tcp())
    with stream_server.accept() as upstream:
        seen = [upstream.read(), upstream.read()]
        caller.reset()
        guard.await_status("the client's end", lambda status: status["connections"]["outside"] == 0)
        upstream.send(b"".join(map(response, seen)))
        assert guard.await_counter("stream-gone", 2) == 2
        assert guard.status()["edge"] == {"stream-gone": 2}
        with StreamPeer.connect(guard.address("tcp")) as next_one:
            next_one.send(tcp())
            with stream_server.accept() as second:
                second.send(response(second.read()))
                assert Message.of(next_one.read()).status == 200


def test_resets_in_the_middle_of_everything_leave_no_trace(guard: ThreadGuard, stream_server: StreamServer) -> None:
    """RST before, within and after a message, with answers on their way."""
    for data in (b"", b"OPT", tcp()[:50], tcp(max_forwards=0), tcp(max_forwards=0) * 500, b"\r\n\r\n" * 100):
        for _ in range(5):
            peer = StreamPeer.connect(guard.address("tcp"))
            peer.send(data)
            peer.reset()
    guard.await_status("all are gone", lambda status: status["connections"]["outside"] == 0)
    assert not guard.problems
    assert guard.sleeps()


def _lane_mate(guard: ThreadGuard, number: int, stack: contextlib.ExitStack) -> StreamPeer:
    """A client that shares its upstream connection with the one of this number."""
    while True:
        peer = stack.enter_context(StreamPeer.connect(guard.address("tcp")))
        peer.send(tcp(max_forwards=0))
        assert Message.of(peer.read()).status == 483
        if (_newest(guard) - number) % POOL_SIZE == 0:
            return peer


def _newest(guard: ThreadGuard) -> int:
    return guard.call(lambda: max(guard.edge._connections._by_number))


def test_a_client_that_does_not_read_is_closed_and_hurts_nobody_on_its_upstream_connection(
    guard: ThreadGuard, stream_server: StreamServer
) -> None:
    """DESIGN §3: what is kept for it is bounded; the upstream's other responses do not wait for it."""
    with contextlib.ExitStack() as stack:
        deaf = stack.enter_context(StreamPeer.connect(guard.address("tcp"), receive_buffer=4096))
        deaf.send(tcp(max_forwards=0))
        assert Message.of(deaf.read()).status == 483
        other = _lane_mate(guard, _newest(guard), stack)
        deaf.send(tcp())
        upstream = stack.enter_context(stream_server.accept())
        asked = upstream.read()
        most = 0
        for _ in range(80):
            if guard.counter("stream-slow-closed"):
                break
            upstream.send(response(asked, 183, "Session Progress", body=bytes(60_000)) * 2)
            through(other, upstream)
            most = max(most, *guard.unsent())
        assert not stream_server.asked()
        assert guard.counter("stream-slow-closed") == 1
        assert OUTSIDE_UNSENT.high_water_bytes < most <= OUTSIDE_UNSENT.max_bytes
        through(other, upstream)


def test_a_client_that_does_not_read_our_answers_is_not_read_any_more_until_it_does(
    guard: ThreadGuard, caller: StreamPeer
) -> None:
    """Backpressure: what it can make us keep is bounded, and nothing of it is lost."""
    with StreamPeer.connect(guard.address("tcp"), receive_buffer=4096) as deaf:
        # Long, and so is its answer: fewer messages fill the same buffers.
        question = tcp(max_forwards=0, branch="z9hG4bK" + "x" * 2000)
        sent = deaf.send_until_full(question, LIMIT_BYTES)
        assert sent < LIMIT_BYTES
        # One answer is at most 200 bytes longer than its question, and one chunk may be read beyond the mark.
        assert 0 < max(guard.unsent()) <= OUTSIDE_UNSENT.high_water_bytes + CHUNK_BYTES * (1 + 200 / len(question))
        caller.send(tcp(max_forwards=0))
        assert Message.of(caller.read()).status == 483
        for _ in range(sent // len(question)):
            assert Message.of(deaf.read()).status == 483
        rest = question[sent % len(question) :] if sent % len(question) else b""
        deaf.send(rest + question)
        assert Message.of(deaf.read()).status == 483
    assert guard.status()["edge"] == {}


def test_a_flood_on_one_connection_does_not_keep_others_waiting(start: Start, stream_server: StreamServer) -> None:
    """SPEC M1 with edge.turns: while one client pours in what it can, each window is evaluated at its end, once."""
    guard = start(upstream=[f"tcp:{stream_server.address.text}"], lc=1, tr=500, lrc=100, lcdm="drop_only")
    pinger = StreamPeer.connect(guard.address("tcp"))
    flooder = StreamPeer.connect(guard.address("tcp"))
    with pinger, flooder:
        flooder.sock.setblocking(False)
        data, rest = tcp() * 200, b""
        end_s = time.monotonic() + 1.6
        pongs = 0
        while time.monotonic() < end_s:
            rest = rest or data
            with contextlib.suppress(BlockingIOError):
                rest = rest[flooder.sock.send(rest) :]
            pinger.send(b"\r\n\r\n")
            assert pinger.read_exactly(2) == b"\r\n"
            pongs += 1
        status = guard.status()
    cycles = guard.cycles()
    assert pongs > 5
    assert status["requests"]["MESSAGE"] > 1000
    assert [cycle.time_ns - guard.guard.controller.origin_ns for cycle in cycles] == [
        k * 500_000_000 for k in range(1, len(cycles) + 1)
    ]
    # As many evaluations as cycles: none was so late that it had to catch up.
    assert guard.status()["evaluation"]["cycles"] - len(cycles) in (0, 1)
