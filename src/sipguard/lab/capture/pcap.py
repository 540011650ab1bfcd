"""The classic pcap container: both byte orders, µs and ns (draft-ietf-opsawg-pcap).

Not read through a library: dpkt's reader gives times as floats, no offsets, and asks the file for whatever length a damaged
record names (measured: 358,000 packets/s against over a million of this walk). dpkt is the tests' independent second reading.
"""

from __future__ import annotations

import re
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
#: Behind damage, a record header is believed when its time is within a day of the last good one, and the next's as well.
_BELIEVED_S = 86_400


def is_pcap(head: bytes) -> bool:
    """Whether a file that begins so is one of these."""
    return head[:4] in _MAGICS


def is_cut_pcap(head: bytes) -> bool:
    """Whether all there is of a file may be the beginning of such a magic."""
    return any(magic.startswith(head) for magic in _MAGICS)


def read_pcap(source: Source) -> Iterator[Packet]:
    """The packets, in the file's order; what could not be read is in `source.damages`. The magic must be one of ours."""
    buffer = source.read()
    order, unit_ns, more = _MAGICS[buffer[:4]]
    if len(buffer) < _HEADER:
        source.cut_off(0, "the file header")
        return
    # The upper bits may carry the length of a frame check sequence.
    link = Struct(order + "I").unpack_from(buffer, 20)[0] & 0xFFFF
    headers = _Headers(order, _SECOND_NS // unit_ns, _RECORD + more)
    unpack, header, limit = headers.unpack, headers.length, headers.limit
    position, size, seconds = _HEADER, len(buffer), 0
    while True:
        while size - position >= header:
            at_s, fraction, captured, _ = unpack(buffer, position)
            if captured > MAX_RECORD or fraction >= limit:
                offset = source.offset - size + position
                buffer = headers.resume(source, buffer[position:], seconds)
                if buffer:
                    reason = f"no record header; reading goes on at offset {source.offset - len(buffer)}"
                else:
                    reason = "no record header, and none after it"
                source.spoil(offset, f"{reason} (captured length {captured}, fraction of a second {fraction})")
                position, size = 0, len(buffer)
                continue
            start = position + header
            end = start + captured
            if end > size:
                break
            seconds = at_s
            yield at_s * _SECOND_NS + fraction * unit_ns, link, buffer[start:end]
            position = end
        chunk = source.read()
        if not chunk:
            break
        buffer = buffer[position:] + chunk
        position, size = 0, len(buffer)
    if position < size:
        source.cut_off(source.offset - size + position, "a record")


class _Headers:
    """The record headers of one file. length: in bytes; limit: the fraction of a second is less."""

    __slots__ = ("_order", "length", "limit", "unpack")

    def __init__(self, order: str, limit: int, length: int) -> None:
        self._order = order
        self.unpack = Struct(order + "IIII").unpack_from
        self.limit = limit
        self.length = length

    def resume(self, source: Source, buffer: bytes, seconds: int) -> bytes:
        """From the next two believable record headers on; b"" when there are none. seconds: the last good time; 0: none."""
        near, shift = self._near(seconds)
        position, ended, searched = 1, False, 0
        while True:
            size = len(buffer)
            while position <= size - self.length:
                found = near.search(buffer, position + shift)
                position = found.start() - shift if found else size - self.length + 1
                if position > size - self.length:
                    break
                following = self._believed(buffer, position, seconds)
                if following and following + self.length <= size:
                    if self._believed(buffer, following, seconds):
                        return buffer[position:]
                elif following and not ended:
                    break
                elif following and following <= size:
                    # The last record of all has none behind it.
                    return buffer[position:]
                position += 1
            searched += position
            if ended or (not seconds and searched > MAX_RECORD):
                return b""
            chunk = source.read()
            ended = not chunk
            buffer = buffer[position:] + chunk
            position = 0

    def _near(self, seconds: int) -> tuple[re.Pattern[bytes], int]:
        """What the upper half of a time near `seconds` looks like, and where in the header it is: found at the speed of C."""
        shift = 2 if self._order == "<" else 0
        if not seconds:
            return re.compile(b"", re.DOTALL), 0
        halves = {at_s >> 16 & 0xFFFF for at_s in (seconds - _BELIEVED_S, seconds, seconds + _BELIEVED_S)}
        halves |= {half + 1 & 0xFFFF for half in halves}
        spelt = (half.to_bytes(2, "little" if shift else "big") for half in halves)
        return re.compile(b"|".join(map(re.escape, spelt)), re.DOTALL), shift

    def _believed(self, buffer: bytes, position: int, seconds: int) -> int:
        """Where the record that may begin here ends; 0 when none does."""
        at_s, fraction, captured, original = self.unpack(buffer, position)
        if not 0 < captured <= original <= MAX_RECORD or fraction >= self.limit:
            return 0
        if seconds and abs(at_s - seconds) > _BELIEVED_S:
            return 0
        return position + self.length + int(captured)
