"""The kernel drop plane as the guard's port knows it: readings by listener (guard.ports.DropPlane)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sipguard.edge.kernel.bpf import Program
from sipguard.edge.kernel.plane import KernelDropPlane
from sipguard.edge.kernel.program import drop_program
from sipguard.edge.udp import UdpEndpoint
from sipguard.guard.ports import PlaneReading

#: Samples a second that are enough for the figures by method. Each costs a wake-up, so under a fast flood one datagram in
#: more than the guard's 64 passes: a flood must not raise the process above idle.
ENOUGH_SAMPLES = 64

#: The sparsest sampling: powers of two above the guard's own, up to this.
MAX_SAMPLE_ONE_IN = 4096


class ListenerDropPlane:
    """The plane over the outside UDP endpoints. Fails open (see KernelDropPlane)."""

    def __init__(
        self, endpoints: Sequence[UdpEndpoint], methods: Sequence[str], exempt_uris: Sequence[str], sample_one_in: int
    ) -> None:
        self._endpoints = tuple(endpoints)
        self._methods, self._exempt_uris = tuple(methods), tuple(exempt_uris)
        self._programs: dict[int, Program] = {}
        self._densest = self._one_in = sample_one_in
        self._plane = KernelDropPlane([endpoint.sock for endpoint in endpoints], self._program(sample_one_in))
        self._attachments = 0
        #: Whether the last switch reached every socket.
        self._complete = True

    @property
    def filtering(self) -> bool:
        """Whether the filter is on."""
        return self._plane.filtering

    def apply(self, wanted: bool, rps: int) -> None:
        """Attach or detach the filter on every outside UDP socket; a socket that is as wanted costs nothing.

        rps: the rate it will meet, requests/s; it decides how many pass as samples.
        """
        before = self._plane.filtering
        if wanted:
            self._fit(rps)
        self._complete = self._plane.apply(wanted)
        self._attachments += self._plane.filtering and not before

    def _fit(self, rps: int) -> None:
        """Choose the sampling for a rate. While the filter is on, a factor of four off is near enough: no swap."""
        samples = rps // self._one_in
        if self._plane.filtering and ENOUGH_SAMPLES // 4 <= samples <= ENOUGH_SAMPLES * 4:
            return
        one_in = self._densest
        while rps > one_in * ENOUGH_SAMPLES and one_in < MAX_SAMPLE_ONE_IN:
            one_in *= 2
        if one_in != self._one_in:
            self._one_in = one_in
            self._plane.load(self._program(one_in))

    def _program(self, one_in: int) -> Program:
        """The filter with this sampling; made once, there are few."""
        if one_in not in self._programs:
            self._programs[one_in] = drop_program(self._methods, self._exempt_uris, one_in)
        return self._programs[one_in]

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
        """available, attached, attachments, sample_one_in, errors, last_error."""
        return {
            "available": bool(self._endpoints) and self._complete,
            "attached": self.filtering,
            "attachments": self._attachments,
            "sample_one_in": self._one_in,
            "errors": sum(self._plane.failures.values()),
            "last_error": self._plane.last_failure,
        }

    def close(self) -> None:
        """Filters off."""
        self._plane.close()
