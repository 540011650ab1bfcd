"""Counting what arrives without reading it, so that both servers are counted the same way and the load's core stays free.

A socket filter that keeps nothing makes the kernel throw each datagram away at the socket and count it as a drop there.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from sipguard.edge.kernel.bpf import RET, Instruction, K
from sipguard.edge.kernel.socketfilter import attach, drops, drops_between

_KEEP_NOTHING: Final = (Instruction(RET | K, k=0),)


class Sink:
    """Sockets that swallow. Made after their last ordinary read: from then on they receive nothing."""

    __slots__ = ("_bases", "_sockets")

    def __init__(self, sockets: Sequence[socket.socket]) -> None:
        self._sockets = tuple(sockets)
        for sock in sockets:
            attach(sock, _KEEP_NOTHING)
        self._bases = [drops(sock) for sock in sockets]

    @property
    def count(self) -> int:
        """Datagrams that have arrived since it was made."""
        return sum(drops_between(base, drops(sock)) for base, sock in zip(self._bases, self._sockets, strict=True))


def dropped_at(port: int) -> int:
    """The drop counters of all UDP sockets bound to an IPv4 port, by whichever process (last column of /proc/net/udp)."""
    wanted = f":{port:04X}"
    total = 0
    for line in Path("/proc/net/udp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[1].endswith(wanted):
            total += int(fields[-1])
    return total
