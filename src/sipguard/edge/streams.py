"""One stream connection: framing in, backpressure both ways, limits (RFC 3261 18.3)."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Protocol, cast

from sipguard.edge.counters import EdgeCounters
from sipguard.edge.limits import INSIDE_UNSENT, OUTSIDE_UNSENT, StreamLimits
from sipguard.edge.turns import Turns
from sipguard.guard.flows import Flow, Listener, SocketAddress
from sipguard.wire.framing import MESSAGE, PING, Frame, StreamFramer

#: Bytes read at once.
CHUNK_BYTES = 65_536

Target = tuple[int, SocketAddress, int]
"""Where a connection that we make goes: listener id, remote, lane of the pool."""

_PONG = b"\r\n"
_PROVISIONAL = b"SIP/2.0 1"
_RESPONSE = b"SIP/2.0 "


class Owner(Protocol):
    """Who a connection belongs to, and whom it tells what happens to it.

    buffer: what every connection reads into, one after the other: CHUNK_BYTES.
    """

    limits: StreamLimits
    counters: EdgeCounters
    buffer: bytearray
    turns: Turns

    def made(self, connection: StreamConnection) -> None:
        """It is open."""
        ...

    def lost(self, connection: StreamConnection) -> None:
        """It is closed."""
        ...

    def heard(self, connection: StreamConnection) -> None:
        """Something came on it, and no whole message ever did."""
        ...

    def may_linger(self, connection: StreamConnection) -> bool:
        """Whether it may stay for the answers its peer waits for, though nothing more will come on it."""
        ...

    def message(self, data: bytes, connection: StreamConnection, now_ns: int) -> None:
        """A whole message came on it."""
        ...

    def broken(self, data: bytes, reason: str, connection: StreamConnection, now_ns: int) -> None:
        """It lost its framing; it will be closed."""
        ...


class StreamConnection(asyncio.BufferedProtocol):
    """A TCP connection, accepted or made.

    `hold` and `release` count reasons not to read: it or the upstream it writes to does not take what it is sent, or what
    was read waits for its turn.
    """

    __slots__ = (
        "_closing",
        "_framer",
        "_frames",
        "_holds",
        "_owner",
        "_read_since_ns",
        "_transport",
        "_unframed",
        "_unsent",
        "_waiters",
        "accepted",
        "counted",
        "half_closed",
        "heard",
        "last_ns",
        "listener",
        "lost",
        "number",
        "owed",
        "pool_key",
        "proven",
        "remote",
        "writable",
    )

    def __init__(self, owner: Owner, listener: Listener, remote: SocketAddress, number: int, *, accepted: bool) -> None:
        self._owner = owner
        self.listener = listener
        self.remote = remote
        self.number = number
        self.accepted = accepted
        #: It has one of the owner's places.
        self.counted = False
        #: A byte has come; a whole message has.
        self.heard = False
        self.proven = False
        #: The peer sends no more; it still reads.
        self.half_closed = False
        #: What was passed on for it and has no final answer yet. At least so many: of an ACK or a response nothing comes back.
        self.owed = 0
        self.lost = False
        #: Where `Dials` keeps it; None for an accepted one.
        self.pool_key: Target | None = None
        self.last_ns = time.monotonic_ns()
        self.writable = True
        self._unsent = INSIDE_UNSENT if listener.inside else OUTSIDE_UNSENT
        self._framer = StreamFramer(max_body=owner.limits.max_body_bytes)
        self._transport: asyncio.Transport | None = None
        #: What was read and is not handled yet: bytes, then the frames in them.
        self._unframed = b""
        self._frames: deque[Frame] = deque()
        self._holds = 0
        self._read_since_ns = self.last_ns
        self._waiters: set[StreamConnection] = set()
        self._closing = False

    def __repr__(self) -> str:
        return f"<stream {self.number} {self.listener!r} {self.remote}>"

    # -- called by the loop ----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(self._unsent.high_water_bytes)
        self._owner.made(self)

    def get_buffer(self, sizehint: int) -> bytearray:  # noqa: ARG002 (asyncio names it)
        return self._owner.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._unframed = bytes(memoryview(self._owner.buffer)[:nbytes])
        self.last_ns = time.monotonic_ns()
        self.heard = True
        if not self.proven:
            self._owner.heard(self)
        self._owner.turns.take(self)

    def eof_received(self) -> bool:
        """The peer sends no more. True: what it is still owed goes back to it here (RFC 3261 18.2.2), for a while."""
        if not self.accepted:
            return False
        if not self.half_closed:
            self.half_closed = True
            self.last_ns = time.monotonic_ns()
        return not self._is_done() and self._owner.may_linger(self)

    def pause_writing(self) -> None:
        self.writable = False
        # A client that does not take our answers: no more of its questions until it does. An upstream is read on: it may be
        # waiting for us to take its responses before it takes more requests.
        if not self.listener.inside:
            self.hold()

    def resume_writing(self) -> None:
        self.writable = True
        if not self.listener.inside:
            self.release()
        self._release_waiters()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (asyncio names it)
        self._closing = self.lost = True
        self._release_waiters()
        self._owner.lost(self)

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
        return self._closing or self._transport is None or self._transport.is_closing()

    def work(self, until_ns: int) -> bool:
        """Handle what was read, at least one message, until `until_ns`; whether all of it is done (edge.turns)."""
        frames, now_ns = self._frames, time.monotonic_ns()
        if self._unframed:
            frames.extend(self._framer.feed(self._unframed, now_ns))
            self._unframed = b""
        while frames:
            if self._closing:
                frames.clear()
                break
            self._handle(frames.popleft(), now_ns)
            now_ns = time.monotonic_ns()
            if now_ns >= until_ns and frames:
                return False
        self._end_if_done()
        return True

    def _handle(self, frame: Frame, now_ns: int) -> None:
        if frame.kind == MESSAGE:
            self._owner.message(frame.data, self, now_ns)
        elif frame.kind == PING:
            self.write(_PONG)
        else:
            self._owner.broken(frame.data, frame.reason, self, now_ns)
            self.close()

    def answered(self, data: bytes) -> None:
        """This was written to it from the other side: perhaps the last thing it waited for."""
        if self.owed and data.startswith(_RESPONSE) and not data.startswith(_PROVISIONAL):
            self.owed -= 1
            self._end_if_done()

    def _is_done(self) -> bool:
        return self.half_closed and not (self.owed or self._frames or self._unframed)

    def _end_if_done(self) -> None:
        if self.half_closed and self._is_done():
            self.close()

    def partial_for_ns(self, now_ns: int) -> int:
        """How long the peer has owed us the rest of a message; 0 between messages and while we do not read."""
        since_ns = self._framer.partial_since_ns
        return 0 if since_ns is None or self._holds else now_ns - max(since_ns, self._read_since_ns)

    def write(self, data: bytes, origin: StreamConnection | None = None) -> bool:
        """Send; origin: the connection the bytes came from. False: not taken.

        An upstream that does not read stops those who write to it. A client that does not read is closed in the end and
        stops nobody: the upstream's connection carries other clients' messages too.
        """
        transport = self._transport
        if transport is None or self.closing:
            return False
        unsent = transport.get_write_buffer_size()
        # One message always fits, however large the operator lets bodies be.
        if unsent and unsent + len(data) > self._unsent.max_bytes:
            if not self.listener.inside:
                self._owner.counters.add("stream-slow-closed")
                self.abort()
            return False
        transport.write(data)
        if not self.writable and self.listener.inside and origin is not None and not origin.listener.inside:
            self._hold_back(origin)
        return True

    def _hold_back(self, origin: StreamConnection) -> None:
        if origin not in self._waiters:
            self._waiters.add(origin)
            origin.hold()

    def hold(self) -> None:
        """One more reason not to read."""
        self._holds += 1
        if self._holds == 1 and self._transport is not None and not self.closing:
            self._transport.pause_reading()

    def release(self) -> None:
        """One reason less."""
        self._holds -= 1
        if self._holds == 0:
            self._read_since_ns = time.monotonic_ns()
            if self._transport is not None and not self.closing:
                self._transport.resume_reading()

    def close(self) -> None:
        """Close when what is written has gone."""
        if not self._closing and self._transport is not None:
            self._closing = True
            self.last_ns = time.monotonic_ns()
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
