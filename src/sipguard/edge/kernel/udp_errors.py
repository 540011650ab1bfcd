"""The host's UDP error counters, which tell a full receive buffer from a filter (DESIGN §3).

A socket's own drop counter mixes causes. Of these counters a filter raises InErrors alone, a full buffer RcvbufErrors,
exhausted UDP memory MemErrors. They are of the whole network namespace: other sockets raise them too.

InCsumErrors is left alone on purpose: for a short datagram (76 octets) the kernel raises it before it looks for a
socket, so anybody could make filtered requests vanish from the sum with broken datagrams to any port.
Source: ``/proc/net/snmp``, ``/proc/net/snmp6``; ``net/ipv4/udp.c``, RFC 4113.
"""

from __future__ import annotations

import contextlib
import os
from typing import Final, NamedTuple

_MOST_BYTES: Final = 65536
_PATHS: Final = ("/proc/net/snmp", "/proc/net/snmp6")


class ErrorCounts(NamedTuple):
    """Datagrams of one address family lost since boot, by cause; as differences, since an earlier reading."""

    full: int = 0
    """RcvbufErrors: no room in the socket's receive buffer."""
    memory: int = 0
    """MemErrors: the host's limit for all UDP sockets (net.ipv4.udp_mem)."""

    def since(self, earlier: ErrorCounts) -> ErrorCounts:
        """Counter by counter; one that went back (32-bit hosts wrap) gives 0."""
        return ErrorCounts(*(max(0, now - then) for now, then in zip(self, earlier, strict=True)))


class UdpErrors:
    """Reads the counters; the two files stay open, so that a process out of descriptors can still read them."""

    __slots__ = ("_descriptors",)

    def __init__(self) -> None:
        """Never raises: a file that cannot be opened (not Linux, no IPv6) makes `read` raise for its family."""
        self._descriptors: list[int | None] = [_open(path) for path in _PATHS]

    def read_ipv4(self) -> ErrorCounts:
        """IPv4, datagrams for a dual-stack socket's IPv4 peers included. OSError."""
        return _parse_snmp(self._read(0))

    def read_ipv6(self) -> ErrorCounts:
        """IPv6. OSError."""
        return _parse_snmp6(self._read(1))

    def close(self) -> None:
        """Give the descriptors back; reading afterwards raises OSError."""
        for index, descriptor in enumerate(self._descriptors):
            if descriptor is not None:
                self._descriptors[index] = None
                os.close(descriptor)

    def _read(self, index: int) -> bytes:
        descriptor = self._descriptors[index]
        if descriptor is None:
            raise FileNotFoundError(f"{_PATHS[index]} cannot be read")
        return os.pread(descriptor, _MOST_BYTES, 0)


def _open(path: str) -> int | None:
    with contextlib.suppress(OSError):
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    return None


def _parse_snmp(text: bytes) -> ErrorCounts:
    """Two ``Udp:`` lines: the names, then their values. A name that an older kernel lacks counts 0."""
    lines = [line.split()[1:] for line in text.splitlines() if line.startswith(b"Udp:")]
    return _pick(dict(zip(*lines[:2], strict=False)) if len(lines) >= 2 else {}, b"")


def _parse_snmp6(text: bytes) -> ErrorCounts:
    """A name and a value on each line."""
    pairs = (line.split() for line in text.splitlines() if line.startswith(b"Udp6"))
    return _pick({pair[0]: pair[1] for pair in pairs if len(pair) == 2}, b"Udp6")


def _pick(values: dict[bytes, bytes], prefix: bytes) -> ErrorCounts:
    if prefix + b"RcvbufErrors" not in values:
        raise OSError("no UDP RcvbufErrors among the host's counters")
    return ErrorCounts(int(values[prefix + b"RcvbufErrors"]), int(values.get(prefix + b"MemErrors", b"0")))
