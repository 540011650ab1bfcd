"""IP packets inside other packets: IP in IP, GRE, VXLAN, Geneve, GTP-U, and ESP that does not encrypt."""

from __future__ import annotations

from struct import Struct

from sipguard.lab.capture.ip import ESP, GRE, IPIP, IPV6_IN_IP, TCP, UDP, Datagram
from sipguard.lab.capture.link import ETHERNET, IPV4, IPV6, ip_offset

VXLAN_PORTS = frozenset((4789, 8472))  # RFC 7348; Linux's own default
GENEVE_PORT = 6081  # RFC 8926
GTPU_PORT = 2152  # 3GPP TS 29.281
#: Datagrams to these ports are looked into first.
UDP_PORTS = VXLAN_PORTS | {GENEVE_PORT, GTPU_PORT}

_BRIDGED, _ERSPAN = 0x6558, 0x88BE
_GPDU = 255
#: Lengths of the integrity check value behind an ESP packet: HMAC-96 (RFC 2403, 2404), SHA-256-128 (RFC 4868), others.
_ICV_LENGTHS = (12, 16, 24, 32, 0)
_PORTS_LENGTH = Struct("!HHHH").unpack_from


def in_ip(protocol: int, data: bytes, start: int, end: int) -> tuple[bytes, int] | None:
    """The bytes and the offset in them of the IP packet that an IP load carries; None when it carries none."""
    if protocol in (IPIP, IPV6_IN_IP):
        return (data[:end], start) if end - start >= 20 else None
    return _in_gre(data, start, end) if protocol == GRE else None


def in_udp(port: int, data: bytes, start: int, end: int) -> tuple[bytes, int] | None:
    """The same of a UDP datagram's payload, by its destination port (one of UDP_PORTS)."""
    if end - start < 8:
        return None
    if port == GTPU_PORT:
        return _in_gtpu(data, start, end)
    if port == GENEVE_PORT:
        inner = start + 8 + (data[start] & 0x3F) * 4
        if data[start] >> 6:
            return None
        kind = int.from_bytes(data[start + 2 : start + 4])
        return _of_type(kind, data, inner, end)
    return _of_type(_BRIDGED, data, start + 8, end) if data[start] & 0x08 else None


def in_esp(packet: Datagram, data: bytes) -> tuple[int, int, int] | None:
    """Protocol, start and end of what an ESP packet with NULL encryption carries (RFC 2410), as IMS uses it.

    Nothing in the packet says so: it is taken for unencrypted when trailer, padding and the header within all fit, TCP by
    its checksum (the reading of RFC 5879, with no need for a second packet).
    """
    start = packet.start + 8
    for icv in _ICV_LENGTHS:
        trailer = packet.end - icv - 2
        if trailer - start < 8:
            continue
        padding, protocol = data[trailer], data[trailer + 1]
        end = trailer - padding
        if protocol not in (TCP, UDP) or end - start < 8:
            continue
        if data[end:trailer] != bytes(range(1, padding + 1)):
            continue
        if protocol == UDP:
            if _PORTS_LENGTH(data, start)[2] == end - start:
                return protocol, start, end
        elif end - start >= 20 and _tcp_checksum_holds(packet, data[start:end]):
            return protocol, start, end
    return None


def is_esp(protocol: int) -> bool:
    return protocol == ESP


# -- inside ------------------------------------------------------------------------------------------------------------


def _of_type(kind: int, data: bytes, start: int, end: int) -> tuple[bytes, int] | None:
    """By an EtherType: IP, or an Ethernet frame with IP in it."""
    if kind == _BRIDGED:
        frame = data[start:end]
        offset = ip_offset(ETHERNET, frame)
        return (frame, offset) if offset >= 0 else None
    return (data[:end], start) if kind in (IPV4, IPV6) and end - start >= 20 else None


def _in_gre(data: bytes, start: int, end: int) -> tuple[bytes, int] | None:
    """RFC 2784, 2890; ERSPAN as switches mirror with it."""
    if end - start < 8 or data[start + 1] & 7:
        return None
    flags = data[start]
    kind = int.from_bytes(data[start + 2 : start + 4])
    inner = start + 4 + 4 * sum(bool(flags & bit) for bit in (0x80, 0x20, 0x10))
    if kind == _ERSPAN:
        # With a sequence number it is type II, which has a header of its own.
        return _of_type(_BRIDGED, data, inner + (8 if flags & 0x10 else 0), end)
    return _of_type(kind, data, inner, end)


def _in_gtpu(data: bytes, start: int, end: int) -> tuple[bytes, int] | None:
    """3GPP TS 29.281 5: version 1, G-PDU, extension headers."""
    flags = data[start]
    if flags >> 4 != 3 or data[start + 1] != _GPDU:
        return None
    inner = start + 8
    if flags & 7:
        inner += 4
        following = data[inner - 1] if inner <= end else 0
        while flags & 4 and following:
            length = data[inner] * 4 if inner < end else 0
            if not length or inner + length > end:
                return None
            inner += length
            following = data[inner - 1]
    return (data[:end], inner) if end - inner >= 20 else None


def _tcp_checksum_holds(packet: Datagram, segment: bytes) -> bool:
    """RFC 9293 3.1, with the pseudo header of the packet around it."""
    covered = packet.source + packet.destination + len(segment).to_bytes(4) + TCP.to_bytes(4) + segment
    if len(covered) % 2:
        covered += b"\0"
    # One's complement arithmetic: the sum of 16-bit words modulo 65535.
    return int.from_bytes(covered) % 65535 == 0
