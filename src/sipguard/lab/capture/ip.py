"""IPv4 (RFC 791) and IPv6 with its extension headers (RFC 8200): what a packet carries, and between which offsets."""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

TCP, UDP, IPIP, IPV6_IN_IP, GRE, ESP = 6, 17, 4, 41, 47, 50

_V4 = Struct("!BxHHHxBxx4s4s").unpack_from
_V6 = Struct("!4xHBx16s16s").unpack_from
#: Hop-by-hop, routing, destination options, mobility, HIP, shim6: a next header and a length in units of 8 bytes.
_EXTENSIONS = frozenset((0, 43, 60, 135, 139, 140))
_FRAGMENT, _AUTHENTICATION = 44, 51
#: Extension headers read of one packet: RFC 8200 4.1 knows 8.
_MAX_EXTENSIONS = 12


class Datagram(NamedTuple):
    """An IP packet's load.

    protocol: of what begins at `start`. start, end: offsets of the load in the captured bytes; end goes no further than
    what was captured. cut: bytes of the load that were not captured (a short snap length). identity, first, more: of a
    fragment, its datagram's identification, where its load belongs in the whole one (bytes), whether more follows;
    identity is None for what is no fragment.
    """

    protocol: int
    source: bytes
    destination: bytes
    start: int
    end: int
    cut: int
    identity: int | None
    first: int
    more: bool


def read_ip(data: bytes, offset: int) -> Datagram | None:
    """The IP packet at `offset`; None when there is none or its headers are cut."""
    size = len(data)
    if size - offset < 20:
        return None
    version = data[offset] >> 4
    if version == 4:
        return _read_v4(data, offset, size)
    return _read_v6(data, offset, size) if version == 6 and size - offset >= 40 else None


def _read_v4(data: bytes, offset: int, size: int) -> Datagram | None:
    first, total, identity, fragment, protocol, source, destination = _V4(data, offset)
    header = (first & 15) * 4
    # Total length 0: captured before the card cut a large send into packets (TSO).
    end = offset + total if total else size
    start = offset + header
    if header < 20 or start > size or end < start:
        return None
    cut = max(0, end - size)
    at, more = (fragment & 0x1FFF) * 8, bool(fragment & 0x2000)
    of = identity if at or more else None
    return Datagram(protocol, source, destination, start, min(end, size), cut, of, at, more)


def _read_v6(data: bytes, offset: int, size: int) -> Datagram | None:
    length, protocol, source, destination = _V6(data, offset)
    start = offset + 40
    end = start + length if length else size
    cut = max(0, end - size)
    end = min(end, size)
    identity, at, more = None, 0, False
    for _ in range(_MAX_EXTENSIONS):
        if protocol in _EXTENSIONS:
            step = 8
            if end - start >= 2:
                step = (data[start + 1] + 1) * 8
        elif protocol == _AUTHENTICATION:
            step = (data[start + 1] + 2) * 4 if end - start >= 2 else 12
        elif protocol == _FRAGMENT:
            step = 8
        else:
            return Datagram(protocol, source, destination, start, end, cut, identity, at, more)
        if end - start < step:
            return None
        if protocol == _FRAGMENT:
            field = int.from_bytes(data[start + 2 : start + 4])
            at, more = field & 0xFFF8, bool(field & 1)
            # An "atomic" fragment is a whole packet (RFC 6946).
            identity = int.from_bytes(data[start + 4 : start + 8]) if at or more else None
        protocol = data[start]
        start += step
        if at:
            # Only the first fragment has the headers that follow.
            return Datagram(protocol, source, destination, start, end, cut, identity, at, more)
    return None
