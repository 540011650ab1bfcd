"""The live edge: sockets, timer and drop plane around one guard. It takes no decision."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sipguard.edge.connections import Connections
from sipguard.edge.counters import EdgeCounters
from sipguard.edge.kernel.receive_buffer import receive_buffer, request_receive_buffer
from sipguard.edge.limits import StreamLimits
from sipguard.edge.plane import ListenerDropPlane
from sipguard.edge.ticker import Ticker
from sipguard.edge.udp import UdpEndpoint
from sipguard.guard.flows import Listener, Send, host_port
from sipguard.guard.guard import Guard
from sipguard.guard.ports import ChangeListener, DropPlane, Sender
from sipguard.guard.sampling import SAMPLE_ONE_IN


@dataclass(frozen=True, slots=True)
class EdgeSettings:
    """receive_buffer_bytes: asked for on each UDP socket."""

    receive_buffer_bytes: int = 4_194_304
    streams: StreamLimits = field(default_factory=StreamLimits)


class Edge:
    """Runs one guard on bound sockets, one per listener, until `stop`."""

    def __init__(
        self,
        guard: Guard,
        sockets: Sequence[tuple[Listener, socket.socket]],
        settings: EdgeSettings,
        on_change: ChangeListener,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._guard = guard
        self._settings = settings
        self._on_change = on_change
        self.counters = EdgeCounters()
        self._connections = Connections(self._loop, guard, self.deliver, settings.streams, self.counters)
        self._sockets = tuple(sockets)
        self._listening = [(listener, sock) for listener, sock in sockets if listener.transport == "tcp"]
        self._endpoints = [self._endpoint(listener, sock) for listener, sock in sockets if listener.transport == "udp"]
        #: By listener id: how to send on it.
        self._send: dict[int, Sender] = {e.listener.id: e.send for e in self._endpoints}
        self._send.update({listener.id: self._connections.send for listener, _ in self._listening})
        self._granted = [
            (e.listener, request_receive_buffer(e.sock, settings.receive_buffer_bytes)) for e in self._endpoints
        ]
        self._outside = [e for e in self._endpoints if not e.listener.inside]
        self._plane: DropPlane = ListenerDropPlane(
            self._outside,
            sorted(guard.controller.policy.drop_methods),
            guard.exempt_uris,
            SAMPLE_ONE_IN,
        )
        self._asked = False
        self._ticker = Ticker(self._loop, guard.next_deadline, self._tick)

    def _endpoint(self, listener: Listener, sock: socket.socket) -> UdpEndpoint:
        after = _nothing if listener.inside else self._follow_guard
        return UdpEndpoint(sock, listener, self._guard, self.deliver, after, self.counters)

    # -- life ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to read, accept and evaluate."""
        for endpoint in self._endpoints:
            self._loop.add_reader(endpoint, endpoint.readable)
        self._connections.start(self._listening)
        self._ticker.start()

    def stop(self) -> None:
        """Close everything; nothing more is evaluated."""
        self._ticker.stop()
        for endpoint in self._endpoints:
            self._loop.remove_reader(endpoint)
        self._connections.stop()
        self._plane.close()
        for endpoint in self._endpoints:
            endpoint.close()
        for _, sock in self._listening:
            sock.close()

    # -- work ------------------------------------------------------------------------------------------------------

    def deliver(self, action: Send) -> None:
        """Put an action's bytes on their way; what cannot go is counted."""
        self._send[action.flow.listener.id](action)

    def _tick(self, now_ns: int) -> None:
        for endpoint in self._outside:
            endpoint.look()
        # In this order (DESIGN §3): what the kernel dropped belongs to the window that ends now.
        changes = self._guard.tick(now_ns, self._plane.read())
        self._switch_plane()
        for change in changes:
            self._on_change(change)

    def _follow_guard(self) -> None:
        """After a batch: under excess the window's allowance may be spent now."""
        if self._guard.drops_in_kernel is not self._asked:
            self._switch_plane()

    def _switch_plane(self) -> None:
        """The filter as the guard wants it. A switch that failed is tried again at each tick, not at each batch."""
        self._asked = self._guard.drops_in_kernel
        self._plane.apply(self._asked, self._guard.controller.rps)
        self._guard.kernel_filters = self._plane.filtering

    # -- looking at it ---------------------------------------------------------------------------------------------

    def addresses(self, *, inside: bool) -> list[str]:
        """`transport:host:port` of one side's listeners."""
        return [
            f"{listener.transport}:{host_port(listener.host, listener.port).decode()}"
            for listener, _ in self._sockets
            if listener.inside is inside
        ]

    def short_buffers(self) -> list[tuple[Listener, int]]:
        """Listeners whose receive buffer is smaller than asked for, and what was granted."""
        wanted = self._settings.receive_buffer_bytes
        return [(listener, granted) for listener, granted in self._granted if granted < wanted]

    def status(self) -> dict[str, Any]:
        """The edge's part of the status."""
        kernel = self._plane.status()
        kernel["sampled"] = self._guard.counters.kernel_sampled
        return {
            "evaluation": self._ticker.lateness.status(),
            "kernel": kernel,
            "connections": self._connections.status(),
            "edge": dict(self.counters),
            "listeners": [
                {
                    "transport": listener.transport,
                    "address": host_port(listener.host, listener.port).decode(),
                    "inside": listener.inside,
                    "receive_buffer": receive_buffer(sock) if listener.transport == "udp" else None,
                }
                for listener, sock in self._sockets
            ],
        }


def _nothing() -> None:
    """Inside sockets change nothing the drop plane follows."""
