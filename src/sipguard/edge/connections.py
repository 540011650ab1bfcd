"""All stream connections: accepted from clients and upstreams, made to upstreams and next hops."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Sequence

from sipguard.edge.accepting import Acceptor
from sipguard.edge.counters import EdgeCounters
from sipguard.edge.dialling import Dials
from sipguard.edge.limits import StreamLimits
from sipguard.edge.places import Places
from sipguard.edge.streams import CHUNK_BYTES, StreamConnection
from sipguard.edge.sweeping import Sweeper
from sipguard.edge.turns import Turns
from sipguard.guard.flows import Flow, Listener, Send, SocketAddress
from sipguard.guard.guard import Guard
from sipguard.guard.ports import Sender

#: Connections to one upstream; a client's connection always uses the same one, which keeps its order.
POOL_SIZE = 4


class Connections:
    """Owns every StreamConnection of one edge."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        guard: Guard,
        deliver: Sender,
        limits: StreamLimits,
        counters: EdgeCounters,
    ) -> None:
        self.limits = limits
        self.counters = counters
        #: What every connection reads into: one after the other.
        self.buffer = bytearray(CHUNK_BYTES)
        self.turns = Turns(loop)
        self._loop = loop
        self._guard = guard
        self._deliver = deliver
        self._by_number: dict[int, StreamConnection] = {}
        self._by_remote: dict[tuple[int, SocketAddress], StreamConnection] = {}
        self._dials = Dials(loop, self, counters)
        self._places = Places(limits, counters)
        # Numbers start at the clock, so that a token from before a restart does not name another client's connection.
        self._next_number = (time.time_ns() // 1_000_000) & 0x7FFFFFFF
        self._sweeper = Sweeper(loop, lambda: list(self._by_number.values()), limits, counters)
        self._origin: StreamConnection | None = None
        self._acceptor = Acceptor(loop, self._adopt, counters)

    # -- life ------------------------------------------------------------------------------------------------------

    def start(self, listening: Sequence[tuple[Listener, socket.socket]]) -> None:
        """Begin to accept and to look at the time limits."""
        self._acceptor.start(listening)
        self._sweeper.start()

    def stop(self) -> None:
        """Close everything but the listening sockets."""
        self._acceptor.stop()
        self._sweeper.stop()
        self._dials.stop()
        for connection in list(self._by_number.values()):
            connection.abort()

    def status(self) -> dict[str, int]:
        """Open connections by side."""
        return {"outside": self._places.outside, "inside": self._places.inside}

    # -- accepting -------------------------------------------------------------------------------------------------

    def _adopt(self, peer: socket.socket, listener: Listener, remote: SocketAddress) -> None:
        if listener.inside and not self._guard.is_inside_host(remote[0]):
            # It could have nothing forwarded (DESIGN §3), only keep a place that the upstreams may need.
            self.counters.add("stream-stranger")
            peer.close()
            return
        connection = self.begin(listener, remote, accepted=True)
        if connection is None:
            peer.close()
        else:
            self._dials.keep(self._loop.create_task(self._connect_accepted(peer, connection)))

    async def _connect_accepted(self, peer: socket.socket, connection: StreamConnection) -> None:
        try:
            peer.setblocking(False)
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._loop.connect_accepted_socket(lambda: connection, peer)
        except OSError:
            self.counters.add("stream-accept-error")
            self.failed(connection)
            peer.close()

    def begin(self, listener: Listener, remote: SocketAddress, *, accepted: bool) -> StreamConnection | None:
        """A connection with a number of its own, not open yet; None, counted, when there is no place for it.

        It has its place before it is open: of a batch only so many may become open as the caps allow. The pool's own
        connections to the upstreams are few and always have one.
        """
        refusal = self._places.refusal(listener, remote) if accepted or not listener.inside else None
        if refusal is not None:
            self.counters.add(refusal)
            return None
        self._next_number = self._next_number % 0x7FFFFFFF + 1
        connection = StreamConnection(self, listener, remote, self._next_number, accepted=accepted)
        self._places.take(connection)
        return connection

    def failed(self, connection: StreamConnection) -> None:
        """It did not become open."""
        self._places.leave(connection)

    # -- called by connections -------------------------------------------------------------------------------------

    def made(self, connection: StreamConnection) -> None:
        """It is open."""
        self._by_number[connection.number] = connection
        if connection.accepted or not connection.listener.inside:
            self._by_remote[connection.listener.id, connection.remote[:2]] = connection
        self._places.useless(connection)

    def lost(self, connection: StreamConnection) -> None:
        """It is closed."""
        if self._by_number.pop(connection.number, None) is None:
            return
        key = (connection.listener.id, connection.remote[:2])
        if self._by_remote.get(key) is connection:
            del self._by_remote[key]
        self._dials.forget(connection)
        self._places.leave(connection)

    def heard(self, connection: StreamConnection) -> None:
        """Something came on it, and no whole message ever did."""
        self._places.useless(connection)

    def may_linger(self, connection: StreamConnection) -> bool:
        """Whether it may stay for the answers its peer waits for, though nothing more will come on it."""
        self._places.useless(connection)
        return not self._places.scarce

    def message(self, data: bytes, connection: StreamConnection, now_ns: int) -> None:
        """A whole message came on a connection."""
        if not connection.proven:
            connection.proven = True
            self._places.useful(connection)
        action = self._guard.receive(data, connection.flow, now_ns)
        if action is not None:
            # To the other side; the guard's own answer goes back where the message came from.
            connection.owed += action.flow.listener is not connection.listener
            self._origin = connection
            self._deliver(action)
            self._origin = None

    def broken(self, data: bytes, reason: str, connection: StreamConnection, now_ns: int) -> None:
        """A connection lost its framing; it will be closed."""
        action = self._guard.broken(data, reason, connection.flow, now_ns)
        if action is not None:
            connection.write(action.data)

    # -- sending ---------------------------------------------------------------------------------------------------

    def send(self, action: Send) -> None:
        """Send on a stream listener's flow: its connection, else (stream 0) one found or made to its remote."""
        flow, origin = action.flow, self._origin
        connection = self._find(flow)
        if connection is not None:
            if not connection.write(action.data, origin):
                self.counters.add("stream-full")
                self.undeliverable(action)
            elif connection is not origin:
                connection.answered(action.data)
        elif flow.stream:
            # The client is gone, and with it the way to answer it.
            self.counters.add("stream-gone")
            self.undeliverable(action)
        else:
            lane = origin.number % POOL_SIZE if origin is not None and flow.listener.inside else 0
            self._dials.send(action, lane, origin)

    def undeliverable(self, action: Send) -> None:
        """Tell the sender of a request that it went nowhere."""
        answer = self._guard.undeliverable(action, time.monotonic_ns())
        if answer is not None:
            self._deliver(answer)

    def _find(self, flow: Flow) -> StreamConnection | None:
        if flow.listener.inside and not flow.stream:
            return None
        key = (flow.listener.id, flow.remote[:2])
        connection = self._by_number.get(flow.stream)
        # The number alone might be of another life of this process.
        if connection is None or key != (connection.listener.id, connection.remote[:2]):
            connection = self._by_remote.get(key)
        return None if connection is None or connection.closing else connection
