"""The kernel drop plane as the guard's port knows it: readings by listener (guard.ports.DropPlane)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sipguard.edge.kernel.plane import KernelDropPlane
from sipguard.edge.kernel.program import drop_program
from sipguard.edge.udp import UdpEndpoint
from sipguard.guard.ports import PlaneReading


class ListenerDropPlane:
    """The plane over the outside UDP endpoints. Fails open (see KernelDropPlane)."""

    def __init__(
        self, endpoints: Sequence[UdpEndpoint], methods: Sequence[str], exempt_uris: Sequence[str], sample_one_in: int
    ) -> None:
        self._endpoints = tuple(endpoints)
        program = drop_program(methods, exempt_uris, sample_one_in)
        self._plane = KernelDropPlane([endpoint.sock for endpoint in endpoints], program)
        self._attachments = 0
        #: Whether the last switch reached every socket.
        self._complete = True

    @property
    def filtering(self) -> bool:
        """Whether the filter is on."""
        return self._plane.filtering

    def apply(self, wanted: bool) -> None:
        """Attach or detach the filter on every outside UDP socket; a socket that is as wanted costs nothing."""
        before = self._plane.filtering
        self._complete = self._plane.apply(wanted)
        self._attachments += self._plane.filtering and not before

    def read(self) -> list[PlaneReading]:
        """What was dropped since the last reading, per listener."""
        if not self._endpoints:
            return []
        reading = self._plane.read([endpoint.take_taken() for endpoint in self._endpoints])
        return [
            PlaneReading(endpoint.listener, drops.filtered, drops.overflowed)
            for endpoint, drops in zip(self._endpoints, reading.sockets, strict=True)
        ]

    def status(self) -> dict[str, Any]:
        """available, attached, attachments, errors."""
        return {
            "available": bool(self._endpoints) and self._complete,
            "attached": self.filtering,
            "attachments": self._attachments,
            "errors": sum(self._plane.failures.values()),
            "last_error": self._plane.last_failure,
        }

    def close(self) -> None:
        """Filters off."""
        self._plane.close()
