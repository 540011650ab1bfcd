"""Connections the guard makes: to upstreams (a small pool) and to numeric next hops. What waits for them is bounded."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import Protocol

from sipguard.edge.counters import EdgeCounters
from sipguard.edge.streams import StreamConnection, Target
from sipguard.guard.flows import Listener, Send, SocketAddress

#: A connection that is not made within this time is given up.
CONNECT_S = 3.0

#: After a failure the same target is not tried again for this long: a dead upstream must not cost a SYN per request.
RETRY_NS = 1_000_000_000

#: Bytes that may wait for one connection being made.
MAX_WAITING_BYTES = 262_144

#: From so many on, those who send more are not read until the connection is made, or is not.
HOLD_BYTES = 65_536

#: Targets remembered at once (connections, attempts, failures).
MAX_TARGETS = 10_000

#: A peer that acknowledges nothing, or takes nothing, for so long is given up by the kernel (tcp(7)), not after a quarter of an
#: hour of retransmissions. What was written to it is lost; its clients are read again, and get another connection or a 503.
USER_TIMEOUT_MS = 10_000

#: A made connection on which nothing goes for so long is probed: an upstream that vanished is noticed before it is needed.
KEEP_ALIVE_S = 30


class DialOwner(Protocol):
    """Who makes the records of made connections and answers for what cannot go."""

    def begin(self, listener: Listener, remote: SocketAddress, *, accepted: bool) -> StreamConnection | None:
        """A connection, not open yet; None when there is no place for it."""
        ...

    def failed(self, connection: StreamConnection) -> None:
        """It did not become open."""
        ...

    def undeliverable(self, action: Send) -> None:
        """Tell the sender of a request that it went nowhere."""
        ...


class Dial:
    """One target: a connection, or what (and who) waits for it, or when it may be tried again."""

    __slots__ = ("connection", "held", "not_before_ns", "waiting", "waiting_bytes")

    def __init__(self) -> None:
        self.connection: StreamConnection | None = None
        self.waiting: list[Send] = []
        self.waiting_bytes = 0
        self.held: set[StreamConnection] = set()
        self.not_before_ns = 0

    def add(self, action: Send, origin: StreamConnection | None) -> None:
        """One more action that waits."""
        self.waiting.append(action)
        self.waiting_bytes += len(action.data)
        # An upstream is never held: its connection carries other clients' messages too.
        if self.waiting_bytes < HOLD_BYTES or origin is None or origin.listener.inside or origin in self.held:
            return
        self.held.add(origin)
        origin.hold()

    def take(self) -> list[Send]:
        """All that waited; who was held for it is read again."""
        waiting, self.waiting, self.waiting_bytes = self.waiting, [], 0
        held, self.held = self.held, set()
        for origin in held:
            origin.release()
        return waiting


class Dials:
    """Finds or makes the connection of a target."""

    def __init__(self, loop: asyncio.AbstractEventLoop, owner: DialOwner, counters: EdgeCounters) -> None:
        self._loop = loop
        self._owner = owner
        self._counters = counters
        self._dials: dict[Target, Dial] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def keep(self, task: asyncio.Task[None]) -> None:
        """Hold a reference until the task is done: the loop itself holds weak ones only."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def stop(self) -> None:
        """Give up what is being made."""
        for task in list(self._tasks):
            task.cancel()

    def forget(self, connection: StreamConnection) -> None:
        """A made connection is closed."""
        key = connection.pool_key
        if key is None:
            return
        dial = self._dials.get(key)
        if dial is not None and dial.connection is connection:
            del self._dials[key]

    def send(self, action: Send, lane: int, origin: StreamConnection | None) -> None:
        """Send on the target's connection, now or when it is made."""
        flow = action.flow
        key: Target = (flow.listener.id, flow.remote[:2], lane)
        dial = self._dials.get(key)
        if dial is not None and dial.connection is not None:
            if not dial.connection.closing:
                if not dial.connection.write(action.data, origin):
                    self._counters.add("stream-full")
                    self._owner.undeliverable(action)
                return
            # The peer has ended it; a new one may still reach it.
            del self._dials[key]
            dial = None
        if dial is None and len(self._dials) >= MAX_TARGETS:
            self._forget_failures()
        if dial is None and len(self._dials) >= MAX_TARGETS:
            self._counters.add("stream-targets-full")
            self._owner.undeliverable(action)
            return
        if dial is None:
            dial = self._dials[key] = Dial()
        full = dial.waiting and dial.waiting_bytes + len(action.data) > MAX_WAITING_BYTES
        if full or time.monotonic_ns() < dial.not_before_ns:
            self._counters.add("stream-unreachable")
            self._owner.undeliverable(action)
            return
        dial.add(action, origin)
        if len(dial.waiting) == 1:
            self.keep(self._loop.create_task(self._make(key, dial, flow.listener)))

    async def _make(self, key: Target, dial: Dial, listener: Listener) -> None:
        connection = self._owner.begin(listener, key[1], accepted=False)
        if connection is None:
            self._failed(dial)
            return
        connection.pool_key = key
        try:
            await self._connect(connection)
        except (OSError, TimeoutError):
            self._owner.failed(connection)
            self._failed(dial)
            return
        if connection.closing:
            # Accepted and ended at once: already told as lost, before anybody knew it as made.
            self._failed(dial)
            return
        dial.connection = connection
        for action in dial.take():
            if not connection.write(action.data):
                self._counters.add("stream-full")
                self._owner.undeliverable(action)

    async def _connect(self, connection: StreamConnection) -> None:
        """Raises OSError or TimeoutError, with nothing left open."""
        remote, listener = connection.remote, connection.listener
        family = socket.AF_INET6 if ":" in remote[0] else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, USER_TIMEOUT_MS)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEP_ALIVE_S)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEP_ALIVE_S // 3)
            if not listener.wildcard:
                sock.bind((listener.host, 0))
            async with asyncio.timeout(CONNECT_S):
                await self._loop.sock_connect(sock, remote)
                await self._loop.create_connection(lambda: connection, sock=sock)
        except (OSError, TimeoutError):
            sock.close()
            raise

    def _failed(self, dial: Dial) -> None:
        self._counters.add("stream-connect-failed")
        dial.not_before_ns = time.monotonic_ns() + RETRY_NS
        for action in dial.take():
            self._owner.undeliverable(action)

    def _forget_failures(self) -> None:
        now_ns = time.monotonic_ns()
        for key in [
            k for k, d in self._dials.items() if d.connection is None and not d.waiting and d.not_before_ns < now_ns
        ]:
            del self._dials[key]
