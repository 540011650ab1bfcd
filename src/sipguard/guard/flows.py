"""Where bytes come from and go to: listeners, flows, upstreams. Names only; the sockets are the edge's."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Transport = Literal["udp", "tcp"]

#: The port of a URI or a Via that names none (RFC 3261 19.1.2, 18.1.1).
SIP_PORT = 5060
MAX_PORT = 65535

#: The `host` of a listener that takes packets to any local address.
WILDCARDS = ("0.0.0.0", "::")


def host_port(host: str, port: int) -> bytes:
    """`host:port` as SIP writes it, IPv6 in brackets (RFC 3261 25.1 hostport)."""
    return f"[{host}]:{port}".encode() if ":" in host else f"{host}:{port}".encode()


@dataclass(frozen=True, slots=True, eq=False)
class Listener:
    """One local address of the guard.

    id: 0 … 255, the same after a restart; signed tokens name it. host: numeric, without brackets, perhaps a
    wildcard. inside: the side of the protected servers (DESIGN §3: inside is a socket, never a source address).
    advertise: `host:port` to write in Via and Record-Route in place of the bound address (a NAT's outer address).
    """

    id: int
    transport: Transport
    host: str
    port: int
    inside: bool = False
    advertise: bytes | None = None
    wildcard: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "wildcard", self.host in WILDCARDS)

    def __repr__(self) -> str:
        return f"<listener {self.id} {self.transport}:{host_port(self.host, self.port).decode()}>"

    def sent_by(self, local: str) -> bytes:
        """`host:port` that a peer can answer to; local: the address it asked, on a wildcard bind."""
        return self.advertise or host_port((self.wildcard and local) or self.host, self.port)


#: A socket address as the socket module gives it: (host, port), for IPv6 (host, port, flow information, scope).
SocketAddress = tuple[str, int] | tuple[str, int, int, int]


class Flow(NamedTuple):
    """One peer on one listener: enough to answer it from the address it asked.

    stream: the connection's number, 0 for datagrams; on a stream listener 0 means "find or make a connection to remote".
    local: the local address the peer asked (wildcard binds only, else "").
    """

    listener: Listener
    remote: SocketAddress
    stream: int = 0
    local: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Upstream:
    """One protected server. id: two bytes that stay the same over restarts and reordering; signed tokens name it."""

    id: bytes
    transport: Transport
    host: str
    port: int
    weight: int
    flow: Flow

    def __repr__(self) -> str:
        return f"<upstream {self.id.hex()} {self.transport}:{host_port(self.host, self.port).decode()}>"


class Send(NamedTuple):
    """The one action: put these bytes on that flow."""

    data: bytes
    flow: Flow
