"""Who has a place among the open connections, and who loses it: caps, strangers, silent ones (edge.places, issue 2 §4)."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest

from sipguard.edge.limits import MAX_PER_INSIDE_HOST
from tests.edge.conftest import Start
from tests.edge.live import ThreadGuard
from tests.edge.messages import Message, request, response
from tests.edge.peers import PATIENCE_S, StreamPeer, StreamServer
from tests.peers.process import wait_until


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    """Closes what a test opens."""
    with contextlib.ExitStack() as exits:
        yield exits


def open_guard(start: Start, server: StreamServer, **flags: object) -> ThreadGuard:
    return start(upstream=[f"tcp:{server.address.text}"], shadow=True, **flags)


def is_served(caller: StreamPeer) -> bool:
    """Whether a request gets its answer; False when the connection was closed instead."""
    with contextlib.suppress(ConnectionError):
        caller.send(request("OPTIONS", transport="TCP", max_forwards=0))
        return Message.of(caller.read()).status == 483
    return False


def connections(guard: ThreadGuard) -> tuple[int, int]:
    """Open ones: outside, inside."""
    status = guard.status()["connections"]
    return status["outside"], status["inside"]


# The cap of the outside


def test_who_has_completed_a_message_keeps_his_place(
    start: Start, stream_server: StreamServer, stack: contextlib.ExitStack
) -> None:
    """`max_connections`: 4 are served, 8 more are closed, and a place that gets free is given."""
    guard = open_guard(start, stream_server, max_connections=4)
    callers = [stack.enter_context(StreamPeer.connect(guard.address("tcp"))) for _ in range(4)]
    assert all(is_served(caller) for caller in callers)
    late = [stack.enter_context(StreamPeer.connect(guard.address("tcp"))) for _ in range(8)]
    assert not any(is_served(caller) for caller in late)
    assert all(is_served(caller) for caller in callers)
    assert guard.status()["edge"] == {"stream-over-cap": 8}
    assert connections(guard) == (4, 0)
    callers[0].sock.close()
    guard.await_status("a free place", lambda status: status["connections"]["outside"] == 3)
    assert is_served(stack.enter_context(StreamPeer.connect(guard.address("tcp"))))
    assert guard.status()["edge"] == {"stream-over-cap": 8}


def test_the_cap_is_exact_however_they_come(
    start: Start, stream_server: StreamServer, stack: contextlib.ExitStack
) -> None:
    """64 at once, none has said anything: at no time more than 4 have a place, and 4 are served in the end."""
    guard = open_guard(start, stream_server, max_connections=4)
    callers = [stack.enter_context(StreamPeer.connect(guard.address("tcp"))) for _ in range(64)]
    gone = ("stream-over-cap", "stream-displaced")
    guard.await_status("60 closed", lambda status: sum(status["edge"].get(name, 0) for name in gone) == 60)
    assert connections(guard) == (4, 0)
    assert sum(is_served(caller) for caller in callers) == 4
    assert set(guard.status()["edge"]) <= set(gone)


def test_a_newcomer_takes_the_place_of_the_longest_idle_that_completed_nothing(
    start: Start, stream_server: StreamServer, stack: contextlib.ExitStack
) -> None:
    """Silent connections are no way to keep others out; a few bytes now and then make one the last to go, not the first."""
    guard = open_guard(start, stream_server, max_connections=3)
    names = ("talker", "older", "newer")
    old = {}
    for number, name in enumerate(names, 1):
        old[name] = stack.enter_context(StreamPeer.connect(guard.address("tcp")))
        guard.await_status(name, lambda status, n=number: status["connections"]["outside"] == n)  # type: ignore[misc]
    old["talker"].send(b"\r\n\r\n")
    assert old["talker"].read_exactly(2) == b"\r\n"
    for name in ("older", "newer", "talker"):
        assert is_served(stack.enter_context(StreamPeer.connect(guard.address("tcp"))))
        assert old.pop(name).ended()
        assert all(caller.silent() for caller in old.values())
        assert connections(guard) == (3, 0)
    assert guard.status()["edge"] == {"stream-displaced": 3}
    assert not is_served(stack.enter_context(StreamPeer.connect(guard.address("tcp"))))
    assert guard.status()["edge"] == {"stream-displaced": 3, "stream-over-cap": 1}


def test_who_has_said_nothing_within_the_time_for_a_message_is_closed(
    start: Start, stream_server: StreamServer, stack: contextlib.ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`partial_timeout_s`, not `idle_timeout_s`; one keep-alive is enough to stay."""
    monkeypatch.setattr("sipguard.edge.sweeping.SWEEP_S", 0.05)
    guard = open_guard(start, stream_server, partial_timeout_s=0.3)
    silent = [stack.enter_context(StreamPeer.connect(guard.address("tcp"))) for _ in range(5)]
    alive = stack.enter_context(StreamPeer.connect(guard.address("tcp")))
    alive.send(b"\r\n\r\n")
    assert alive.read_exactly(2) == b"\r\n"
    assert all(caller.ended() for caller in silent)
    assert guard.await_counter("stream-silent-closed", 5) == 5
    assert connections(guard) == (1, 0)
    assert alive.silent()
    assert is_served(alive)
    assert guard.status()["edge"] == {"stream-silent-closed": 5}


def test_the_time_limits_are_looked_at_in_pieces_and_reach_everybody(
    start: Start, stream_server: StreamServer, stack: contextlib.ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More connections than one round of the loop looks at."""
    monkeypatch.setattr("sipguard.edge.sweeping.SWEEP_S", 0.05)
    monkeypatch.setattr("sipguard.edge.sweeping.SWEEP_BATCH", 3)
    guard = open_guard(start, stream_server, partial_timeout_s=0.3)
    silent = [stack.enter_context(StreamPeer.connect(guard.address("tcp"))) for _ in range(20)]
    # The last to come, and to stay: wherever a look begins, it has to get past somebody.
    staying = [stack.enter_context(StreamPeer.connect(guard.address("tcp"))) for _ in range(5)]
    assert all(is_served(caller) for caller in staying)
    assert all(caller.ended() for caller in silent)
    assert guard.await_counter("stream-silent-closed", 20) == 20
    assert connections(guard) == (5, 0)


# Inside


def test_a_stranger_at_the_inside_listener_is_closed_at_once(
    start: Start, stream_server: StreamServer, stack: contextlib.ExitStack
) -> None:
    """DESIGN §3: never an open relay; an inside port that strangers reach forwards nothing and keeps nothing of theirs."""
    guard = open_guard(start, stream_server)
    target = stack.enter_context(StreamServer())
    for _ in range(20):
        stranger = stack.enter_context(StreamPeer.connect(guard.inside("tcp"), host="127.0.0.9"))
        with contextlib.suppress(ConnectionError):
            stranger.send(request(uri=f"sip:{target.address.text};transport=tcp", transport="TCP"))
        assert stranger.ended()
    assert guard.await_counter("stream-stranger", 20) == 20
    assert connections(guard) == (0, 0)
    assert guard.status()["discards"] == {}
    assert not target.asked()
    assert not stream_server.asked()
    own = stack.enter_context(StreamPeer.connect(guard.inside("tcp")))
    own.send(b"\r\n\r\n")
    assert own.read_exactly(2) == b"\r\n"


def test_an_upstream_host_has_a_cap_of_its_own(
    start: Start, stream_server: StreamServer, stack: contextlib.ExitStack
) -> None:
    """A server that leaks connections takes no place of the clients, and its own are given again when they get free."""
    guard = open_guard(start, stream_server, max_connections=2)
    own = [stack.enter_context(StreamPeer.connect(guard.inside("tcp"))) for _ in range(MAX_PER_INSIDE_HOST)]
    guard.await_status("all of them", lambda status: status["connections"]["inside"] == MAX_PER_INSIDE_HOST)
    beyond = [stack.enter_context(StreamPeer.connect(guard.inside("tcp"))) for _ in range(5)]
    assert all(peer.ended() for peer in beyond)
    assert guard.status()["edge"] == {"stream-inside-over-cap": 5}
    assert connections(guard) == (0, MAX_PER_INSIDE_HOST)
    assert is_served(stack.enter_context(StreamPeer.connect(guard.address("tcp"))))
    own[0].sock.close()
    guard.await_status("a free place", lambda status: status["connections"]["inside"] == MAX_PER_INSIDE_HOST - 1)
    again = stack.enter_context(StreamPeer.connect(guard.inside("tcp")))
    again.send(b"\r\n\r\n")
    assert again.read_exactly(2) == b"\r\n"


def test_what_an_upstream_leaves_idle_is_closed_and_our_own_pool_is_not(
    start: Start, stream_server: StreamServer, stack: contextlib.ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`idle_timeout_s` on accepted inside connections too."""
    monkeypatch.setattr("sipguard.edge.sweeping.SWEEP_S", 0.05)
    guard = open_guard(start, stream_server, idle_timeout_s=1.0)
    caller = stack.enter_context(StreamPeer.connect(guard.address("tcp")))
    caller.send(request(transport="TCP"))
    upstream = stack.enter_context(stream_server.accept())
    seen = upstream.read()
    own = stack.enter_context(StreamPeer.connect(guard.inside("tcp")))
    own.send(b"\r\n\r\n")
    assert own.read_exactly(2) == b"\r\n"
    assert own.ended()
    assert guard.await_counter("stream-idle-closed", 2) == 2
    assert caller.ended()
    assert upstream.silent()
    assert connections(guard) == (0, 1)
    upstream.send(response(seen))
    assert guard.await_counter("stream-gone") == 1


# Counting


def test_no_side_is_ever_counted_below_nothing(
    start: Start, stream_server: StreamServer, stack: contextlib.ExitStack
) -> None:
    """Clients that come and go in a rush, looked at all the while: each is counted on its side, from begin to end."""
    guard = open_guard(start, stream_server)
    looks = Looks(guard)
    target = guard.address("tcp")
    caller = stack.enter_context(StreamPeer.connect(target))
    caller.send(request(transport="TCP"))
    stack.enter_context(stream_server.accept())
    guard.await_status("the upstream's", lambda status: status["connections"]["inside"] == 1)
    guard.call(looks.begin)
    for _ in range(15):
        peers = [socket.create_connection(target, PATIENCE_S) for _ in range(12)]
        for peer in peers:
            peer.close()
    wait_until(lambda: connections(guard) == (1, 1), PATIENCE_S, "the two that stay")
    guard.call(looks.end)
    assert {inside for _, inside in looks.seen} == {1}
    assert min(outside for outside, _ in looks.seen) == 1
    assert max(outside for outside, _ in looks.seen) > 1


class Looks:
    """The connections as each round of the loop finds them, also between accept and open."""

    def __init__(self, guard: ThreadGuard) -> None:
        self.seen: set[tuple[int, int]] = set()
        self._guard = guard
        self._ended = False

    def begin(self) -> None:
        """A look now, and in each round until `end`."""
        status = self._guard.edge._connections.status()
        self.seen.add((status["outside"], status["inside"]))
        if not self._ended:
            self._guard._loop.call_soon(self.begin)

    def end(self) -> None:
        """No more."""
        self._ended = True
