"""The classic pcap container: both byte orders, µs and ns (draft-ietf-opsawg-pcap).

Not read through a library: dpkt's reader gives times as floats, no offsets, and asks the file for whatever length a damaged
record names (measured: 358,000 packets/s against over a million of this walk). dpkt is the tests' independent second reading.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from sipguard.lab.capture.records import MAX_RECORD, Packet
from sipguard.lab.capture.source import Source

_SECOND_NS = 1_000_000_000
_HEADER = 24
_RECORD = 16
#: Magic as read in the file: the byte order, what one unit of the fraction is in ns, bytes of the record header beyond 16.
_MAGICS = {
    b"\xa1\xb2\xc3\xd4": (">", 1000, 0),
    b"\xd4\xc3\xb2\xa1": ("<", 1000, 0),
    b"\xa1\xb2\x3c\x4d": (">", 1, 0),
    b"\x4d\x3c\xb2\xa1": ("<", 1, 0),
    # "Modified" (Kuznetzov): interface index, protocol, packet type behind each record header.
    b"\xa1\xb2\xcd\x34": (">", 1000, 8),
    b"\x34\xcd\xb2\xa1": ("<", 1000, 8),
}


def is_pcap(head: bytes) -> bool:
    """Whether a file that begins so is one of these."""
    return head[:4] in _MAGICS


def read_pcap(source: Source) -> Iterator[Packet]:
    """The packets, in the file's order; what stops it early is in `source.damage`. The magic must be one of ours."""
    buffer = source.read()
    order, unit_ns, more = _MAGICS[buffer[:4]]
    if len(buffer) < _HEADER:
        source.spoil(0, "cut off within the file header")
        return
    # The upper bits may carry the length of a frame check sequence.
    link = Struct(order + "I").unpack_from(buffer, 20)[0] & 0xFFFF
    unpack = Struct(order + "IIII").unpack_from
    header = _RECORD + more
    limit = _SECOND_NS // unit_ns
    position, size = _HEADER, len(buffer)
    while True:
        while size - position >= header:
            seconds, fraction, captured, _ = unpack(buffer, position)
            if captured > MAX_RECORD or fraction >= limit:
                source.spoil(
                    source.offset - size + position,
                    f"no record header (captured length {captured}, fraction of a second {fraction})",
                )
                return
            start = position + header
            end = start + captured
            if end > size:
                break
            yield seconds * _SECOND_NS + fraction * unit_ns, link, buffer[start:end]
            position = end
        chunk = source.read()
        if not chunk:
            break
        buffer = buffer[position:] + chunk
        position, size = 0, len(buffer)
    if position < size:
        source.spoil(source.offset - size + position, "cut off within a record")
