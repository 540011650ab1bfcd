"""Clients and servers on plain sockets: what attacks the edge, and what it protects. Each call ends within its patience."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import time
from typing import NamedTuple

PATIENCE_S = 10.0
"""No test depends on it: it only ends one that would wait for ever."""

QUIET_S = 0.15
"""How long "nothing comes" is looked at."""


class Address(NamedTuple):
    """A socket address without what IPv6 adds."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """From `host:port`, a transport before it or not, IPv6 in brackets."""
        front, _, port = text.rpartition(":")
        host = front.removeprefix("udp:").removeprefix("tcp:").strip("[]")
        return cls(host, int(port))

    @property
    def text(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def at(self, host: str) -> Address:
        """The same port on another address."""
        return Address(host, self.port)


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


class UdpPeer:
    """A UDP socket of a client or of a server."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        self.sock = socket.socket(_family(host), socket.SOCK_DGRAM)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * 1024 * 1024)
        self.sock.bind((host, port))
        self.sock.settimeout(PATIENCE_S)

    def __enter__(self) -> UdpPeer:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    @property
    def address(self) -> Address:
        return Address(*self.sock.getsockname()[:2])

    def send(self, data: bytes, to: Address) -> None:
        self.sock.sendto(data, to)

    def receive(self) -> tuple[bytes, Address]:
        """The next datagram and where it came from."""
        data, remote = self.sock.recvfrom(65535)
        return data, Address(*remote[:2])

    def read(self) -> bytes:
        """The next datagram."""
        return self.receive()[0]

    def drain(self) -> list[bytes]:
        """All that has come until now."""
        found = []
        while select.select([self.sock], [], [], 0)[0]:
            found.append(self.sock.recv(65535))
        return found

    def silent(self) -> bool:
        """Whether nothing comes for QUIET_S."""
        return not select.select([self.sock], [], [], QUIET_S)[0]


class StreamPeer:
    """One TCP connection; reads whole messages by Content-Length."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.sock.settimeout(PATIENCE_S)
        self._buffer = b""

    @classmethod
    def connect(cls, to: Address, *, receive_buffer: int = 0, host: str = "") -> StreamPeer:
        sock = socket.socket(_family(to.host), socket.SOCK_STREAM)
        if receive_buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        if host:
            sock.bind((host, 0))
        sock.settimeout(PATIENCE_S)
        sock.connect(to)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return cls(sock)

    def __enter__(self) -> StreamPeer:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    @property
    def address(self) -> Address:
        return Address(*self.sock.getsockname()[:2])

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def send_until_full(self, data: bytes, limit_bytes: int, quiet_s: float = 0.5) -> int:
        """Write `data` again and again until the other side has taken nothing for `quiet_s`, or `limit_bytes` are out.

        Whole copies of `data` only are begun; the number of bytes that went.
        """
        self.sock.setblocking(False)
        sent, rest = 0, b""
        last_s = time.monotonic()
        while sent < limit_bytes and time.monotonic() - last_s < quiet_s:
            rest = rest or data * 64
            try:
                n = self.sock.send(rest)
            except BlockingIOError:
                select.select([], [self.sock], [], 0.05)
                continue
            except (ConnectionResetError, BrokenPipeError):
                break
            sent, rest, last_s = sent + n, rest[n:], time.monotonic()
        self.sock.settimeout(PATIENCE_S)
        return sent

    def read(self) -> bytes:
        """The next message, CRLFs before it left out. ConnectionError when the stream ends first."""
        while True:
            self._buffer = self._buffer.lstrip(b"\r\n")
            head, empty, _ = self._buffer.partition(b"\r\n\r\n")
            if empty:
                size = len(head) + 4 + _content_length(head)
                if len(self._buffer) >= size:
                    data, self._buffer = self._buffer[:size], self._buffer[size:]
                    return data
            self._more()

    def read_exactly(self, n: int) -> bytes:
        """The next n bytes, whatever they are."""
        while len(self._buffer) < n:
            self._more()
        data, self._buffer = self._buffer[:n], self._buffer[n:]
        return data

    def ended(self) -> bool:
        """Whether the other side closes within the patience, and sends nothing more before."""
        try:
            return not self._buffer and self.sock.recv(65536) == b""
        except ConnectionResetError:
            return True

    def silent(self) -> bool:
        """Whether nothing comes, an end of the stream included, for QUIET_S."""
        return not self._buffer and not select.select([self.sock], [], [], QUIET_S)[0]

    def reset(self) -> None:
        """Close with a RST."""
        with contextlib.suppress(OSError):
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def _more(self) -> None:
        data = self.sock.recv(65536)
        if not data:
            raise ConnectionError(f"the stream ended; held: {self._buffer!r}")
        self._buffer += data


class StreamServer:
    """A listening TCP socket: an upstream."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0, *, receive_buffer: int = 0) -> None:
        self.sock = socket.socket(_family(host), socket.SOCK_STREAM)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if receive_buffer:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.sock.bind((host, port))
        self.sock.listen(128)
        self.sock.settimeout(PATIENCE_S)

    def __enter__(self) -> StreamServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    @property
    def address(self) -> Address:
        return Address(*self.sock.getsockname()[:2])

    def accept(self) -> StreamPeer:
        return StreamPeer(self.sock.accept()[0])

    def asked(self) -> bool:
        """Whether a connection waits to be accepted."""
        return bool(select.select([self.sock], [], [], 0)[0])


def _content_length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.strip() in (b"content-length", b"l"):
            return int(value)
    return 0


def dead_port(host: str = "127.0.0.1") -> Address:
    """An address on which nobody listens, UDP and TCP (until somebody takes it)."""
    with StreamServer(host) as server, contextlib.suppress(OSError), UdpPeer(host, server.address.port):
        return server.address
    return dead_port(host)
