"""Time limits of stream connections: each connection is looked at about once a second."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from sipguard.edge.counters import EdgeCounters
from sipguard.edge.limits import StreamLimits
from sipguard.edge.streams import StreamConnection

#: From one look at all connections to the next.
SWEEP_S = 1.0

#: Connections looked at in one round of the loop: half a millisecond. 10,000 at once would be late for the level's timer.
SWEEP_BATCH = 500


class Sweeper:
    """Closes the connections that are over a time limit, one counter for each kind of limit."""

    __slots__ = ("_counters", "_limits", "_loop", "_next", "_open")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        open_connections: Callable[[], list[StreamConnection]],
        limits: StreamLimits,
        counters: EdgeCounters,
    ) -> None:
        self._loop = loop
        self._open = open_connections
        self._limits = limits
        self._counters = counters
        self._next: asyncio.Handle | None = None

    def start(self) -> None:
        """Begin; `stop` ends it."""
        self._next = self._loop.call_later(SWEEP_S, self._sweep)

    def stop(self) -> None:
        """Nothing is closed after this."""
        if self._next is not None:
            self._next.cancel()

    def _sweep(self) -> None:
        self._look_at(self._open())

    def _look_at(self, rest: list[StreamConnection]) -> None:
        now_ns = time.monotonic_ns()
        for connection in rest[-SWEEP_BATCH:]:
            reason = self._overdue(connection, now_ns)
            if reason is not None:
                self._counters.add(reason)
                connection.abort()
        del rest[-SWEEP_BATCH:]
        if rest:
            self._next = self._loop.call_soon(self._look_at, rest)
        else:
            self.start()

    def _overdue(self, connection: StreamConnection, now_ns: int) -> str | None:
        """Why a connection is closed now; None for one that may stay."""
        limits = self._limits
        idle_ns = now_ns - connection.last_ns
        if connection.closing:
            # It would wait for ever for a peer that does not read the rest.
            return "stream-slow-closed" if idle_ns > limits.partial_ns and not connection.lost else None
        if connection.half_closed:
            return "stream-half-closed" if idle_ns > limits.half_closed_ns else None
        if connection.partial_for_ns(now_ns) > limits.partial_ns:
            return "stream-partial-timeout"
        if connection.accepted and not connection.heard and idle_ns > limits.partial_ns:
            return "stream-silent-closed"
        # The pool's own connections stay: an upstream with nothing to say is no burden.
        if (connection.accepted or not connection.listener.inside) and idle_ns > limits.idle_ns:
            return "stream-idle-closed"
        return None
