"""Opening the guard's sockets. Errors are OSError with the address in the text: a start-up matter, never per packet."""

from __future__ import annotations

import socket

#: Connections that may wait for accept.
BACKLOG = 1024

# Linux constants the socket module has no names for.
IP_PKTINFO = 8
IP_RECVERR = 11
IPV6_RECVERR = 25


def open_udp(host: str, port: int, *, wildcard: bool, inside: bool) -> socket.socket:
    """A bound, non-blocking UDP socket.

    wildcard: each packet tells the local address it came to (IP_PKTINFO, RFC 3542 6.1). inside: refusals of a dead upstream
    are queued to be counted (IP_RECVERR). Neither SO_REUSEADDR nor SO_REUSEPORT: two guards on one port would share its
    packets silently.
    """
    sock = socket.socket(_family(host), socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        if sock.family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        if wildcard and sock.family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
        elif wildcard:
            sock.setsockopt(socket.IPPROTO_IP, IP_PKTINFO, 1)
        if inside and sock.family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, IPV6_RECVERR, 1)
        elif inside:
            sock.setsockopt(socket.IPPROTO_IP, IP_RECVERR, 1)
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        raise OSError(error.errno, f"udp:{host}:{port}: {error.strerror}") from error
    return sock


def open_tcp(host: str, port: int) -> socket.socket:
    """A listening, non-blocking TCP socket."""
    sock = socket.socket(_family(host), socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        # For a restart while old connections are in TIME_WAIT; two listeners on one port are still refused on Linux.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if sock.family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind((host, port))
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        raise OSError(error.errno, f"tcp:{host}:{port}: {error.strerror}") from error
    return sock


def local_address_towards(host: str, port: int) -> str:
    """The local address that packets to host leave from: asked of the routing table, nothing is sent."""
    with socket.socket(_family(host), socket.SOCK_DGRAM) as probe:
        probe.connect((host, port))
        address: str = probe.getsockname()[0]
        return address


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
