"""Link layers: where in a frame the IP header begins. Link types: the LINKTYPE_ registry of libpcap."""

from __future__ import annotations

NULL, ETHERNET, PPP, RAW, C_HDLC, LOOP, SLL, SLL2 = 0, 1, 9, 101, 104, 108, 113, 276
IPV4, IPV6 = 0x0800, 0x86DD

#: Link types that begin with the IP header: RAW and what some systems write for it, IPV4, IPV6.
_BARE_IP = frozenset((RAW, 12, 14, 228, 229))
_PPP_KINDS = frozenset((PPP, 50))
_PPPOE_KIND = 51
KNOWN = frozenset((NULL, ETHERNET, C_HDLC, LOOP, SLL, SLL2, _PPPOE_KIND)) | _BARE_IP | _PPP_KINDS

_TAGS = frozenset((0x8100, 0x88A8, 0x9100, 0x9200))  # 802.1Q, 802.1ad, older QinQ
_PPPOE, _MPLS = 0x8864, frozenset((0x8847, 0x8848))
_PPP_IP = frozenset((0x0021, 0x0057))
#: AF_INET, and AF_INET6 as the systems number it (Linux 10, NetBSD/OpenBSD 24, FreeBSD 28, macOS 30).
_FAMILIES = frozenset((2, 10, 24, 28, 30))
#: Tags and labels on one frame; more is no network.
_MAX_TAGS = 8


def ip_offset(link: int, data: bytes) -> int:
    """Offset of the IP header; -1 when the frame carries no IP or ends before it."""
    if link == ETHERNET:
        return _after_type(data, 12)
    if link in _BARE_IP:
        return _if_ip(data, 0)
    if link == SLL:
        return _after_type(data, 14)
    if link == SLL2:
        return _of_type(data, int.from_bytes(data[0:2]), 20)
    if link in (NULL, LOOP):
        # NULL is in the byte order of the machine that captured, which need not be the file's.
        family = data[:4]
        known = int.from_bytes(family) in _FAMILIES or int.from_bytes(family, "little") in _FAMILIES
        return _if_ip(data, 4) if known else -1
    if link in _PPP_KINDS:
        return _of_ppp(data, 2 if data[:2] == b"\xff\x03" else 0)
    if link == _PPPOE_KIND:
        return _of_ppp(data, 6)
    if link == C_HDLC:
        return _after_type(data, 2)
    return -1


def _after_type(data: bytes, offset: int) -> int:
    return _of_type(data, int.from_bytes(data[offset : offset + 2]), offset + 2)


def _of_type(data: bytes, ethertype: int, offset: int) -> int:
    """By the EtherType of what begins at `offset`: past VLAN tags, PPPoE and MPLS labels."""
    for _ in range(_MAX_TAGS):
        if ethertype in (IPV4, IPV6):
            return _if_ip(data, offset)
        if ethertype in _TAGS:
            ethertype = int.from_bytes(data[offset + 2 : offset + 4])
            offset += 4
        elif ethertype == _PPPOE:
            return _of_ppp(data, offset + 6)
        elif ethertype in _MPLS:
            bottom = data[offset + 2 : offset + 3]
            offset += 4
            if bottom and bottom[0] & 1:
                return _if_ip(data, offset)
        else:
            return -1
    return -1


def _of_ppp(data: bytes, offset: int) -> int:
    """A PPP protocol field of two bytes, or of one where it was compressed (RFC 1661 6.5)."""
    first = data[offset : offset + 1]
    if first and first[0] & 1:
        return _if_ip(data, offset + 1) if first[0] in _PPP_IP else -1
    return _if_ip(data, offset + 2) if int.from_bytes(data[offset : offset + 2]) in _PPP_IP else -1


def _if_ip(data: bytes, offset: int) -> int:
    version = data[offset : offset + 1]
    return offset if version and version[0] >> 4 in (4, 6) else -1
