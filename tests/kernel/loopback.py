"""A UDP sender and receiver on loopback, and the plain model of what the drop program must do."""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager

from sipguard.edge.kernel.socketfilter import drops, drops_between

NINE = ("REGISTER", "SUBSCRIBE", "MESSAGE", "INVITE", "OPTIONS", "INFO", "UPDATE", "REFER", "PRACK")  # SPEC V1
SCHEMES = (b"sip:", b"sips:", b"tel:", b"urn:")
SHORTEST_PAYLOAD = 12
FAMILIES = (socket.AF_INET, socket.AF_INET6)
_ADDRESSES = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}
_PATIENCE_S = 5.0


def would_drop(payload: bytes, methods: tuple[str, ...] = NINE, exempt_uris: tuple[str, ...] = ()) -> bool:
    """DESIGN §3 in plain Python: METHOD SP, one of four schemes, no exempt prefix, at least 12 octets."""
    if len(payload) < SHORTEST_PAYLOAD:
        return False
    for method in methods:
        line = method.encode() + b" "
        uri = payload.removeprefix(line)
        if payload.startswith(line) and uri.startswith(SCHEMES):
            return not any(uri.lower().startswith(prefix.encode().lower()) for prefix in exempt_uris)
    return False


def datagram(payload: bytes, source_port: int = 5060, port: int = 5060) -> bytes:
    """The payload behind a UDP header (checksum 0: not used, RFC 768), as a filter sees it."""
    return struct.pack("!4H", source_port, port, 8 + len(payload), 0) + payload


class Pair:
    """A receiver, not blocking, and a sender connected to it."""

    def __init__(self, family: socket.AddressFamily = socket.AF_INET) -> None:
        self.receiver = socket.socket(family, socket.SOCK_DGRAM)
        self.receiver.bind((_ADDRESSES[family], 0))
        self.receiver.setblocking(False)
        self.sender = socket.socket(family, socket.SOCK_DGRAM)
        self.sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        self.sender.connect(self.receiver.getsockname())

    def close(self) -> None:
        self.receiver.close()
        self.sender.close()

    def send(self, payload: bytes, times: int = 1) -> None:
        for _ in range(times):
            self.sender.send(payload)

    def outcome(self, payload: bytes) -> bytes | None:
        """What arrives of `payload`; None if the socket's drop counter went up by one instead."""
        before = drops(self.receiver)
        self.sender.send(payload)
        end_s = time.monotonic() + _PATIENCE_S
        while time.monotonic() < end_s:
            if select.select([self.receiver], [], [], 0.001)[0]:
                return self.receiver.recv(65536)
            if dropped := drops_between(before, drops(self.receiver)):
                assert dropped == 1
                return None
        raise AssertionError("the datagram neither arrived nor was it counted as dropped")

    def drain(self) -> list[bytes]:
        """All that stands in the receive queue."""
        payloads: list[bytes] = []
        while True:
            try:
                payloads.append(self.receiver.recv(65536))
            except BlockingIOError:
                return payloads

    def settled(self, sent: int, received: int, dropped_before: int = 0) -> bool:
        """Wait until every datagram sent was received or counted; loopback is nearly synchronous, but not by contract."""
        end_s = time.monotonic() + _PATIENCE_S
        while time.monotonic() < end_s:
            if received + drops_between(dropped_before, drops(self.receiver)) >= sent:
                return True
            time.sleep(0.001)
        return False


def available(family: socket.AddressFamily) -> bool:
    """Whether loopback has this family."""
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.bind((_ADDRESSES[family], 0))
    except OSError:
        return False
    return True


@contextmanager
def pair(family: socket.AddressFamily = socket.AF_INET) -> Iterator[Pair]:
    both = Pair(family)
    try:
        yield both
    finally:
        both.close()
