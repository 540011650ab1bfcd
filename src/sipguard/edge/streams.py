"""One stream connection: framing in, backpressure both ways, limits (RFC 3261 18.3)."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, cast

from sipguard.guard.flows import Flow, Listener, SocketAddress
from sipguard.wire.framing import MESSAGE, PING, StreamFramer

if TYPE_CHECKING:
    from sipguard.edge.connections import Connections

#: Above this much unsent the writers into a connection stop reading; under a quarter they go on.
HIGH_WATER_BYTES = 262_144

#: A peer that leaves this much unread is closed: it must not hurt others, and memory is bounded.
MAX_UNSENT_BYTES = 1_048_576

_PONG = b"\r\n"


class StreamConnection(asyncio.Protocol):
    """A TCP connection, accepted or made.

    `hold` and `release` count reasons not to read (this peer or one it writes to does not take what it is sent).
    """

    __slots__ = (
        "_closing",
        "_connections",
        "_framer",
        "_holds",
        "_transport",
        "_waiters",
        "accepted",
        "last_ns",
        "listener",
        "number",
        "pool_key",
        "remote",
        "writable",
    )

    def __init__(
        self, connections: Connections, listener: Listener, remote: SocketAddress, number: int, *, accepted: bool
    ) -> None:
        self._connections = connections
        self.listener = listener
        self.remote = remote
        self.number = number
        self.accepted = accepted
        self.pool_key: object = None
        self.last_ns = time.monotonic_ns()
        self.writable = True
        limits = connections.limits
        self._framer = StreamFramer(max_body=limits.max_body_bytes)
        self._transport: asyncio.Transport | None = None
        self._holds = 0
        self._waiters: set[StreamConnection] = set()
        self._closing = False

    def __repr__(self) -> str:
        return f"<stream {self.number} {self.listener!r} {self.remote}>"

    # -- called by the loop ----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(HIGH_WATER_BYTES)
        self._connections.made(self)

    def data_received(self, data: bytes) -> None:
        now_ns = self.last_ns = time.monotonic_ns()
        for frame in self._framer.feed(data, now_ns):
            if self._closing:
                return
            if frame.kind == MESSAGE:
                self._connections.message(frame.data, self, now_ns)
            elif frame.kind == PING:
                self.write(_PONG)
            else:
                self._connections.broken(frame.data, frame.reason, self, now_ns)
                self.close()

    def pause_writing(self) -> None:
        self.writable = False
        # It does not take our answers: no more of its questions until it does.
        self.hold()

    def resume_writing(self) -> None:
        self.writable = True
        self.release()
        self._release_waiters()

    def connection_lost(self, _: Exception | None) -> None:
        self._closing = True
        self._release_waiters()
        self._connections.lost(self)

    # -- called by the edge ----------------------------------------------------------------------------------------

    @property
    def flow(self) -> Flow:
        """How the guard knows this connection."""
        local = ""
        if self.listener.wildcard and self._transport is not None:
            local = self._transport.get_extra_info("sockname")[0]
        return Flow(self.listener, self.remote, self.number, local)

    @property
    def closing(self) -> bool:
        """No more can be written."""
        return self._closing

    def partial_for_ns(self, now_ns: int) -> int:
        """How long an unfinished message has been waiting for its rest; 0 between messages."""
        since_ns = self._framer.partial_since_ns
        return 0 if since_ns is None else now_ns - since_ns

    def write(self, data: bytes, origin: StreamConnection | None = None) -> bool:
        """Send; origin: the connection the bytes came from, which is held while this one is full. False: not taken."""
        transport = self._transport
        if transport is None or self._closing:
            return False
        if transport.get_write_buffer_size() + len(data) > MAX_UNSENT_BYTES:
            if not self.listener.inside:
                # A client that does not read; an upstream's connection stays, others may still be served.
                self._connections.counters.add("stream-slow-closed")
                self.abort()
            return False
        transport.write(data)
        if not self.writable and origin is not None and origin is not self and origin not in self._waiters:
            self._waiters.add(origin)
            origin.hold()
        return True

    def hold(self) -> None:
        """One more reason not to read."""
        self._holds += 1
        if self._holds == 1 and self._transport is not None and not self._closing:
            self._transport.pause_reading()

    def release(self) -> None:
        """One reason less."""
        self._holds -= 1
        if self._holds == 0 and self._transport is not None and not self._closing:
            self._transport.resume_reading()

    def close(self) -> None:
        """Close when what is written has gone."""
        if not self._closing and self._transport is not None:
            self._closing = True
            self._transport.close()

    def abort(self) -> None:
        """Close now."""
        self._closing = True
        if self._transport is not None:
            self._transport.abort()

    def _release_waiters(self) -> None:
        waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            waiter.release()
