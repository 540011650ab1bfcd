"""Captures of our own making: SIP messages, packets around them, files around those."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from ipaddress import ip_address

CLIENT, SERVER = "192.0.2.1", "192.0.2.9"
#: A whole second, so that windows and seconds begin with it.
EPOCH_NS = 1_700_000_000_000_000_000
ETHERNET, SLL, SLL2, RAW, NULL, LOOP = 1, 113, 276, 101, 0, 108

FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16


def sip(method: str, number: int = 1, body: bytes = b"", **headers: str) -> bytes:
    """A request as a client sends it; headers: further ones, _ for -."""
    more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    head = (
        f"{method} sip:bob@example.com SIP/2.0\r\n"
        f"Via: SIP/2.0/UDP 192.0.2.1:5060;branch=z9hG4bK{number}\r\n"
        f"Max-Forwards: 70\r\nFrom: <sip:alice@example.com>;tag=a{number}\r\nTo: <sip:bob@example.com>\r\n"
        f"Call-ID: {number}@192.0.2.1\r\nCSeq: 1 {method}\r\n{more}Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def response(status: int, number: int = 1, to_tag: str = "b", method: str = "INVITE") -> bytes:
    """A response to such a request."""
    return (
        f"SIP/2.0 {status} Whatever\r\nVia: SIP/2.0/UDP 192.0.2.1:5060;branch=z9hG4bK{number}\r\n"
        f"From: <sip:alice@example.com>;tag=a{number}\r\nTo: <sip:bob@example.com>;tag={to_tag}\r\n"
        f"Call-ID: {number}@192.0.2.1\r\nCSeq: 1 {method}\r\nContent-Length: 0\r\n\r\n"
    ).encode()


def ack(number: int = 1, to_tag: str = "b") -> bytes:
    """The ACK to such a response."""
    plain = sip("ACK", number)
    return plain.replace(b"To: <sip:bob@example.com>\r\n", b"To: <sip:bob@example.com>;tag=%b\r\n" % to_tag.encode())


def udp(payload: bytes, sport: int = 5060, dport: int = 5060) -> bytes:
    return struct.pack("!HHHH", sport, dport, 8 + len(payload), 0) + payload


def tcp(payload: bytes, sequence: int, flags: int = ACK, sport: int = 40000, dport: int = 5060) -> bytes:
    return struct.pack("!HHIIBBHHH", sport, dport, sequence % 2**32, 0, 5 << 4, flags, 65535, 0, 0) + payload


def ip(
    load: bytes,
    protocol: int,
    source: str = CLIENT,
    destination: str = SERVER,
    *,
    identity: int = 0,
    first: int = 0,
    more: bool = False,
) -> bytes:
    """An IPv4 or IPv6 packet, by its addresses. first, more: of an IPv4 fragment."""
    a, b = ip_address(source), ip_address(destination)
    if a.version == 4:
        field = first // 8 | (0x2000 if more else 0)
        head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(load), identity, field, 64, protocol, 0)
        return head + a.packed + b.packed + load
    return struct.pack("!IHBB", 6 << 28, len(load), protocol, 64) + a.packed + b.packed + load


def ethernet(packet: bytes, *tags: int) -> bytes:
    """An Ethernet frame; tags: the EtherTypes of VLAN tags before the packet."""
    kind = 0x0800 if packet[0] >> 4 == 4 else 0x86DD
    front = b"".join(struct.pack("!HH", tag, 7) for tag in tags)
    return bytes(12) + front + struct.pack("!H", kind) + packet


def udp4(
    payload: bytes, source: str = CLIENT, destination: str = SERVER, sport: int = 5060, dport: int = 5060
) -> bytes:
    """The most common frame of all."""
    return ethernet(ip(udp(payload, sport, dport), 17, source, destination))


def pcap(
    frames: Iterable[tuple[int, bytes]],
    link: int = ETHERNET,
    *,
    order: str = "<",
    nano: bool = False,
    snaplen: int = 65535,
) -> bytes:
    """A pcap file. frames: time in ns since EPOCH_NS, bytes."""
    magic, unit = (0xA1B23C4D, 1) if nano else (0xA1B2C3D4, 1000)
    parts = [struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, snaplen, link)]
    for at_ns, frame in frames:
        seconds, rest = divmod(EPOCH_NS + at_ns, 10**9)
        captured = frame[:snaplen]
        parts.append(struct.pack(order + "IIII", seconds, rest // unit, len(captured), len(frame)) + captured)
    return b"".join(parts)


def block(kind: int, body: bytes, order: str = "<") -> bytes:
    """A pcapng block."""
    body += bytes(-len(body) % 4)
    length = struct.pack(order + "I", len(body) + 12)
    return struct.pack(order + "I", kind) + length + body + length


def section(order: str = "<") -> bytes:
    return block(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1), order)


def interface(link: int, order: str = "<", resolution: int | None = None, offset_s: int = 0) -> bytes:
    """resolution: the if_tsresol byte."""
    options = b""
    if resolution is not None:
        options += struct.pack(order + "HHB3x", 9, 1, resolution)
    if offset_s:
        options += struct.pack(order + "HHq", 14, 8, offset_s)
    if options:
        options += bytes(4)
    return block(1, struct.pack(order + "HHI", link, 0, 0) + options, order)


def enhanced(units: int, frame: bytes, order: str = "<", number: int = 0) -> bytes:
    """units: the time in units of the interface's resolution."""
    head = struct.pack(order + "IIIII", number, units >> 32, units & 0xFFFFFFFF, len(frame), len(frame))
    return block(6, head + frame, order)
