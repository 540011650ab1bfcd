"""Clients that end their sending and wait for their answers (RFC 3261 18.2.2), and what they may cost."""

from __future__ import annotations

import contextlib
import socket
from dataclasses import replace

import pytest

from sipguard.edge.limits import StreamLimits
from tests.edge.conftest import Start
from tests.edge.live import ThreadGuard
from tests.edge.messages import Message, request, response
from tests.edge.peers import StreamPeer, StreamServer


def open_guard(start: Start, server: StreamServer, **flags: object) -> ThreadGuard:
    return start(upstream=[f"tcp:{server.address.text}"], shadow=True, **flags)


def tcp(method: str = "MESSAGE", **parts: object) -> bytes:
    return request(method, transport="TCP", **parts)  # type: ignore[arg-type]


def is_open(guard: ThreadGuard) -> int:
    """Outside connections."""
    return int(guard.status()["connections"]["outside"])


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half-closed connections end after 0.3 s, not 4."""
    monkeypatch.setattr("sipguard.edge.sweeping.SWEEP_S", 0.05)
    monkeypatch.setattr(
        "tests.edge.live.StreamLimits", lambda *given: replace(StreamLimits(*given), half_closed_ns=300_000_000)
    )


def test_the_guards_own_answers_come_and_the_connection_ends(start: Start, stream_server: StreamServer) -> None:
    guard = open_guard(start, stream_server)
    with StreamPeer.connect(guard.address("tcp")) as caller:
        caller.send(tcp(max_forwards=0) * 20)
        caller.sock.shutdown(socket.SHUT_WR)
        for _ in range(20):
            assert Message.of(caller.read()).status == 483
        assert caller.ended()
    guard.await_status("its end", lambda status: status["connections"]["outside"] == 0)
    assert guard.status()["edge"] == {}


def test_the_upstreams_answers_come_and_the_last_one_ends_it(start: Start, stream_server: StreamServer) -> None:
    """Provisional responses are not what it waits for, and the guard's own answers are not the upstream's."""
    guard = open_guard(start, stream_server)
    with StreamPeer.connect(guard.address("tcp")) as caller:
        caller.send(tcp("INVITE") + tcp(max_forwards=0) + tcp())
        caller.sock.shutdown(socket.SHUT_WR)
        assert Message.of(caller.read()).status == 483
        with stream_server.accept() as upstream:
            invite, message = upstream.read(), upstream.read()
            upstream.send(response(invite, 100, "Trying") + response(invite, 180, "Ringing"))
            assert [Message.of(caller.read()).status for _ in range(2)] == [100, 180]
            upstream.send(response(message))
            assert Message.of(caller.read()).method == "MESSAGE"
            assert caller.silent()
            assert is_open(guard) == 1
            upstream.send(response(invite, 486, "Busy Here"))
            assert Message.of(caller.read()).status == 486
            assert caller.ended()
    guard.await_status("its end", lambda status: status["connections"]["outside"] == 0)
    assert guard.status()["edge"] == {}


def test_it_waits_for_a_while_only(start: Start, stream_server: StreamServer, short: None) -> None:
    """An upstream that never answers keeps no connection open for ever."""
    guard = open_guard(start, stream_server)
    with StreamPeer.connect(guard.address("tcp")) as caller:
        caller.send(tcp())
        with stream_server.accept() as upstream:
            upstream.read()
            caller.sock.shutdown(socket.SHUT_WR)
            assert caller.ended()
    assert guard.await_counter("stream-half-closed") == 1
    assert is_open(guard) == 0
    assert guard.status()["edge"] == {"stream-half-closed": 1}


def test_a_client_that_is_owed_nothing_ends_at_once(start: Start, stream_server: StreamServer) -> None:
    """The churn of well-behaved clients leaves nothing open: request, answer, end."""
    guard = open_guard(start, stream_server)
    with StreamPeer.connect(guard.address("tcp")) as stays:
        stays.send(tcp())
        with stream_server.accept():
            for data in (b"", b"\r\n", tcp(max_forwards=0), tcp()[:40]):
                with StreamPeer.connect(guard.address("tcp")) as caller:
                    caller.send(data)
                    caller.sock.shutdown(socket.SHUT_WR)
                    with contextlib.suppress(ConnectionError):
                        caller.read()
                    assert caller.ended()
    assert "stream-half-closed" not in guard.status()["edge"]


def test_when_places_are_scarce_nobody_lingers(start: Start, stream_server: StreamServer) -> None:
    """From 90 % of the cap on; and one that lingered before is the first that a newcomer displaces."""
    guard = open_guard(start, stream_server, max_connections=10)
    with contextlib.ExitStack() as stack:

        def served() -> StreamPeer:
            peer = stack.enter_context(StreamPeer.connect(guard.address("tcp")))
            peer.send(tcp(max_forwards=0))
            assert Message.of(peer.read()).status == 483
            return peer

        lingers = served()
        lingers.send(tcp())
        stack.enter_context(stream_server.accept()).read()
        lingers.sock.shutdown(socket.SHUT_WR)
        assert lingers.silent()
        callers = [served() for _ in range(8)]
        assert lingers.silent()
        assert is_open(guard) == 9
        callers[0].send(tcp())
        guard.await_status("the request", lambda status: status["requests"]["MESSAGE"] == 11)
        callers[0].sock.shutdown(socket.SHUT_WR)
        assert callers[0].ended()
        guard.await_status("its end", lambda status: status["connections"]["outside"] == 8)
        callers += [served(), served()]
        assert lingers.silent()
        assert is_open(guard) == 10
        served()
        assert lingers.ended()
        assert is_open(guard) == 10
    assert guard.status()["edge"]["stream-displaced"] == 1
