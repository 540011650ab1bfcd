"""The places that open connections take: how many of each side, who may have one, and who has to give his up."""

from __future__ import annotations

from typing import Protocol

from sipguard.edge.counters import EdgeCounters
from sipguard.edge.limits import MAX_PER_INSIDE_HOST, StreamLimits
from sipguard.guard.flows import Listener, SocketAddress


class Tenant(Protocol):
    """A connection as its place knows it. counted: it has a place; only Places sets it."""

    accepted: bool
    counted: bool
    listener: Listener
    number: int
    remote: SocketAddress

    def abort(self) -> None:
        """Close now."""
        ...


class Places:
    """Counts the connections of both sides from where they begin to where they end, and keeps the caps.

    Fails closed: a newcomer for whom there is no place is not let in. Before that, an outside connection that was no use so
    far gives its place up: it never completed a message, or it has ended its sending; of these the longest idle.
    """

    __slots__ = ("_accepted_inside", "_by_host", "_counters", "_limits", "_useless", "inside", "outside")

    def __init__(self, limits: StreamLimits, counters: EdgeCounters) -> None:
        self.inside = 0
        self.outside = 0
        self._limits = limits
        self._counters = counters
        #: Accepted inside connections by host: upstreams only, so it stays as small as their list.
        self._by_host: dict[str, int] = {}
        self._accepted_inside = 0
        #: By number, the longest idle first; never more than `outside`.
        self._useless: dict[int, Tenant] = {}

    def __repr__(self) -> str:
        return f"<Places {self.outside} of {self._outside_cap()} outside, {self.inside} inside>"

    # -- asking ----------------------------------------------------------------------------------------------------

    def refusal(self, listener: Listener, remote: SocketAddress) -> str | None:
        """Why there is no place for one more connection; None when there is one, perhaps just given up by another."""
        if listener.inside and self._by_host.get(remote[0], 0) >= MAX_PER_INSIDE_HOST:
            return "stream-inside-over-cap"
        places_left = self._limits.places - self._accepted_inside - self.outside
        if places_left > 0 and (listener.inside or self.outside < self._limits.max_connections):
            return None
        return None if self._displace() else "stream-over-cap"

    @property
    def scarce(self) -> bool:
        """Whether 90 % of the outside places are taken."""
        return self.outside * 10 >= self._outside_cap() * 9

    def _outside_cap(self) -> int:
        return min(self._limits.max_connections, self._limits.places - self._accepted_inside)

    def _displace(self) -> bool:
        for connection in self._useless.values():
            # Its place is free now; its descriptor is in the next round of the loop (see accepting.ACCEPT_BATCH).
            self.leave(connection)
            self._counters.add("stream-displaced")
            connection.abort()
            return True
        return False

    # -- being told ------------------------------------------------------------------------------------------------

    def take(self, connection: Tenant) -> None:
        """It begins; a second time is nothing."""
        if connection.counted:
            return
        connection.counted = True
        if not connection.listener.inside:
            self.outside += 1
            return
        self.inside += 1
        if connection.accepted:
            host = connection.remote[0]
            self._by_host[host] = self._by_host.get(host, 0) + 1
            self._accepted_inside += 1

    def leave(self, connection: Tenant) -> None:
        """It ends; a second time is nothing."""
        if not connection.counted:
            return
        connection.counted = False
        if not connection.listener.inside:
            self.outside -= 1
            self._useless.pop(connection.number, None)
            return
        self.inside -= 1
        if connection.accepted:
            host = connection.remote[0]
            self._by_host[host] -= 1
            self._accepted_inside -= 1
            if not self._by_host[host]:
                del self._by_host[host]

    def useless(self, connection: Tenant) -> None:
        """No use so far, and not idle just now: the last that has to give its place up."""
        if connection.counted and connection.accepted and not connection.listener.inside:
            self._useless.pop(connection.number, None)
            self._useless[connection.number] = connection

    def useful(self, connection: Tenant) -> None:
        """It has completed a message: nobody takes its place."""
        self._useless.pop(connection.number, None)
