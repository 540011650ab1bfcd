"""Where a message came from and where an answer goes."""

from __future__ import annotations

from typing import NamedTuple


class Peer(NamedTuple):
    """One end of a flow: transport "udp" or "tcp", numeric host (no brackets), port, and for a stream its number."""

    transport: str
    host: str
    port: int
    connection: int = 0
    """The stream's number, given by whoever owns the sockets; 0 for datagrams."""

    @property
    def reliable(self) -> bool:
        """A stream: no response is repeated for the transport's sake (RFC 3261 17.2.1)."""
        return self.transport != "udp"


class Send(NamedTuple):
    """One message to be sent, whole, to its destination."""

    data: bytes
    destination: Peer
