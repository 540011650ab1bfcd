"""All stream connections: accepted from clients and upstreams, made to upstreams and next hops; caps and time limits."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass

from sipguard.edge.accepting import Acceptor
from sipguard.edge.counters import EdgeCounters
from sipguard.edge.dialling import Dials
from sipguard.edge.streams import CHUNK_BYTES, StreamConnection
from sipguard.edge.turns import Turns
from sipguard.guard.flows import Flow, Listener, Send, SocketAddress
from sipguard.guard.guard import Guard
from sipguard.guard.ports import Sender

#: Connections to one upstream; a client's connection always uses the same one, which keeps its order.
POOL_SIZE = 4

#: How often idle and partial-message limits are looked at.
SWEEP_S = 1.0


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """max_connections: accepted from outside. Times in ns."""

    max_connections: int = 10_000
    max_body_bytes: int = 65_536
    idle_ns: int = 600_000_000_000
    partial_ns: int = 10_000_000_000


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
        self._outside = 0
        # Numbers start at the clock, so that a token from before a restart does not name another client's connection.
        self._next_number = (time.time_ns() // 1_000_000) & 0x7FFFFFFF
        self._sweep: asyncio.TimerHandle | None = None
        self._origin: StreamConnection | None = None
        self._acceptor = Acceptor(loop, self._adopt, counters)

    # -- life ------------------------------------------------------------------------------------------------------

    def start(self, listening: Sequence[tuple[Listener, socket.socket]]) -> None:
        """Begin to accept and to look at the time limits."""
        self._acceptor.start(listening)
        self._sweep = self._loop.call_later(SWEEP_S, self._sweep_now)

    def stop(self) -> None:
        """Close everything but the listening sockets."""
        self._acceptor.stop()
        if self._sweep is not None:
            self._sweep.cancel()
        self._dials.stop()
        for connection in list(self._by_number.values()):
            connection.abort()

    def status(self) -> dict[str, int]:
        """Open connections by side."""
        return {"outside": self._outside, "inside": len(self._by_number) - self._outside}

    # -- accepting -------------------------------------------------------------------------------------------------

    def _adopt(self, peer: socket.socket, listener: Listener, remote: SocketAddress) -> None:
        if not listener.inside and self._outside >= self.limits.max_connections:
            self.counters.add("stream-over-cap")
            peer.close()
            return
        connection = self.new(listener, remote, accepted=True)
        # Counted before it is open: of a batch of connections only so many may become open as the cap allows.
        self._count(connection)
        self._dials.keep(self._loop.create_task(self._connect_accepted(peer, connection)))

    async def _connect_accepted(self, peer: socket.socket, connection: StreamConnection) -> None:
        try:
            peer.setblocking(False)
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._loop.connect_accepted_socket(lambda: connection, peer)
        except OSError:
            self.counters.add("stream-accept-error")
            self._uncount(connection)
            peer.close()

    def _count(self, connection: StreamConnection) -> None:
        if not connection.listener.inside and not connection.counted:
            connection.counted = True
            self._outside += 1

    def _uncount(self, connection: StreamConnection) -> None:
        if connection.counted:
            connection.counted = False
            self._outside -= 1

    def new(self, listener: Listener, remote: SocketAddress, *, accepted: bool) -> StreamConnection:
        """A connection with a number of its own, not open yet."""
        self._next_number = self._next_number % 0x7FFFFFFF + 1
        return StreamConnection(self, listener, remote, self._next_number, accepted=accepted)

    # -- called by connections -------------------------------------------------------------------------------------

    def made(self, connection: StreamConnection) -> None:
        """It is open."""
        self._by_number[connection.number] = connection
        if connection.accepted or not connection.listener.inside:
            self._by_remote[connection.listener.id, connection.remote[:2]] = connection
        self._count(connection)

    def lost(self, connection: StreamConnection) -> None:
        """It is closed."""
        if self._by_number.pop(connection.number, None) is None:
            return
        key = (connection.listener.id, connection.remote[:2])
        if self._by_remote.get(key) is connection:
            del self._by_remote[key]
        self._dials.forget(connection)
        self._uncount(connection)

    def message(self, data: bytes, connection: StreamConnection, now_ns: int) -> None:
        """A whole message came on a connection."""
        action = self._guard.receive(data, connection.flow, now_ns)
        if action is not None:
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

    # -- limits ----------------------------------------------------------------------------------------------------

    def _sweep_now(self) -> None:
        now_ns = time.monotonic_ns()
        for connection in list(self._by_number.values()):
            reason = self._overdue(connection, now_ns)
            if reason is not None:
                self.counters.add(reason)
                connection.abort()
        self._sweep = self._loop.call_later(SWEEP_S, self._sweep_now)

    def _overdue(self, connection: StreamConnection, now_ns: int) -> str | None:
        """Why a connection is closed now; None for one that may stay."""
        silent_ns = now_ns - connection.last_ns
        if connection.closing:
            # It would wait for ever for a peer that does not read the rest.
            return "stream-slow-closed" if silent_ns > self.limits.partial_ns else None
        if connection.partial_for_ns(now_ns) > self.limits.partial_ns:
            return "stream-partial-timeout"
        if not connection.listener.inside and silent_ns > self.limits.idle_ns:
            return "stream-idle-closed"
        return None
