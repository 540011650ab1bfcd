"""The pcapng container: sections in either byte order, any number of interfaces (draft-ietf-opsawg-pcapng)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from struct import Struct
from typing import NamedTuple

from sipguard.lab.capture.records import MAX_RECORD, Packet
from sipguard.lab.capture.source import Source

_SECOND_NS = 1_000_000_000
_SECTION, _INTERFACE, _OLD_PACKET, _SIMPLE, _ENHANCED = 0x0A0D0D0A, 1, 2, 3, 6
_OURS = frozenset((_SECTION, _INTERFACE, _OLD_PACKET, _SIMPLE, _ENHANCED))
_SECTION_MAGIC = b"\x0a\x0d\x0d\x0a"
#: The types of our blocks in either byte order.
_OUR_KINDS = re.compile(rb"[\1\2\3\6]\0\0\0|\0\0\0[\1\2\3\6]|\n\r\r\n")
_ORDERS = {b"\x1a\x2b\x3c\x4d": ">", b"\x4d\x3c\x2b\x1a": "<"}
_END_OF_OPTIONS, _TSRESOL, _TSOFFSET = 0, 9, 14
#: Blocks of these kinds must fit in memory; others are skipped at any length.
_MAX_BLOCK = MAX_RECORD + 65536
#: A file with more is damage: each costs memory.
_MAX_INTERFACES = 65536


_Word = Callable[[bytes, int], tuple[int]]


class _Interface(NamedTuple):
    """One interface of a section; a time is so many units."""

    link: int
    snaplen: int
    multiplier: int
    divisor: int
    offset_ns: int

    def time_ns(self, units: int) -> int:
        return units * self.multiplier // self.divisor + self.offset_ns


class _Section:
    """What holds until the next section: byte order and interfaces."""

    __slots__ = ("enhanced", "interfaces", "old", "order", "word")

    def __init__(self, order: str) -> None:
        self.order = order
        self.word = Struct(order + "I").unpack_from
        self.enhanced = Struct(order + "IIIII").unpack_from
        self.old = Struct(order + "HHIIII").unpack_from
        self.interfaces: list[_Interface] = []


def is_pcapng(head: bytes) -> bool:
    """Whether a file that begins so is one of these; its byte order may be damaged."""
    return head[:4] == _SECTION_MAGIC and (head[8:12] in _ORDERS or b"\0" in head)


def is_cut_pcapng(head: bytes) -> bool:
    """Whether all there is of a file may be the beginning of such a section header."""
    return _SECTION_MAGIC.startswith(head) or (head[:4] == _SECTION_MAGIC and len(head) < 12)


def read_pcapng(source: Source) -> Iterator[Packet]:
    """The packets, in the file's order; what could not be read is in `source.damages`.

    A Simple Packet Block has no time: it gets that of the packet before it.
    """
    section = _Section("<")
    last_ns = 0
    for kind, block, position, length, offset in _blocks(source):
        if kind == _ENHANCED and length >= 32:
            number, high, low, captured, _ = section.enhanced(block, position + 8)
            if number >= len(section.interfaces) or captured > length - 32:
                source.spoil(offset, f"a packet block that does not fit (interface {number}, length {captured})")
                continue
            interface = section.interfaces[number]
            last_ns = interface.time_ns(high << 32 | low)
            start = position + 28
            yield last_ns, interface.link, block[start : start + captured]
        elif kind == _SECTION:
            section = _Section(_ORDERS[block[position + 8 : position + 12]])
        elif kind == _INTERFACE and length >= 20:
            if len(section.interfaces) >= _MAX_INTERFACES:
                source.spoil(offset, f"more than {_MAX_INTERFACES} interfaces in a section")
                continue
            section.interfaces.append(_interface(block[position : position + length], section.order))
        elif kind in (_SIMPLE, _OLD_PACKET) and length >= (16 if kind == _SIMPLE else 32):
            found = _rare(kind, block[position : position + length], section, last_ns)
            if found is None:
                source.spoil(offset, "a packet block that does not fit")
                continue
            last_ns = found[0]
            yield found


def _blocks(source: Source) -> Iterator[tuple[int, bytes, int, int, int]]:
    """Each block: kind, the buffer it is in, its position there, its length, its offset in the content.

    Of a block that is none of ours the buffer may not hold the body.
    """
    buffer = b""
    position = 0
    word = Struct("<I").unpack_from
    while True:
        size = len(buffer)
        while size - position >= 12:
            offset = source.offset - size + position
            if buffer[position : position + 4] == _SECTION_MAGIC:
                word = Struct(_ORDERS.get(buffer[position + 8 : position + 12], "<") + "I").unpack_from
            kind, length = word(buffer, position)[0], word(buffer, position + 4)[0]
            wrong = _wrong(buffer, position, kind, length, word)
            if wrong:
                buffer, position = _resume(source, buffer[position + 4 :], word), 0
                size = len(buffer)
                where = f"reading goes on at offset {source.offset - size}" if buffer else "and none after it"
                source.spoil(offset, f"{wrong} (type {kind:#x}, length {length}); {where}")
                continue
            if length > size - position:
                if kind in _OURS:
                    break
                buffer, position = _skip(source, length - (size - position)), 0
                if not buffer:
                    return
                size = len(buffer)
                continue
            yield kind, buffer, position, length, offset
            position += length
        chunk = source.read()
        if not chunk:
            if position < size:
                offset = source.offset - size + position
                source.cut_off(offset, "a block" if offset else "the file header")
            return
        buffer = buffer[position:] + chunk
        position = 0


def _wrong(buffer: bytes, position: int, kind: int, length: int, word: _Word) -> str:
    """What is wrong with the block here, as far as the buffer has it; "" for nothing."""
    if length < 12 or length % 4 or (kind in _OURS and length > _MAX_BLOCK):
        return "no block"
    if kind == _SECTION and buffer[position + 8 : position + 12] not in _ORDERS:
        return "a section header without a byte order"
    if length <= len(buffer) - position and word(buffer, position + length - 4)[0] != length:
        return "a block whose two lengths differ"
    return ""


def _resume(source: Source, buffer: bytes, word: _Word) -> bytes:
    """From the next block of ours that is whole and sound on, in the same byte order or a new section; b"": there is none.

    Blocks stand at multiples of 4, and `buffer` begins at one.
    """
    position = 0
    while True:
        size = len(buffer)
        while position <= size - 12:
            found = _OUR_KINDS.search(buffer, position)
            position = found.start() if found else size - 11
            if position > size - 12:
                break
            if position % 4 == 0:
                at = word
                if buffer[position : position + 4] == _SECTION_MAGIC:
                    at = Struct(_ORDERS.get(buffer[position + 8 : position + 12], "<") + "I").unpack_from
                kind, length = at(buffer, position)[0], at(buffer, position + 4)[0]
                if kind in _OURS and not _wrong(buffer, position, kind, length, at):
                    if length <= size - position:
                        return buffer[position:]
                    break
            position += 1
        chunk = source.read()
        if not chunk:
            return b""
        position -= position % 4
        buffer = buffer[position:] + chunk
        position = 0


def _skip(source: Source, length: int) -> bytes:
    """Read over `length` bytes; what came after them in the last piece. b"": the content ended."""
    begun = source.offset
    while chunk := source.read():
        if len(chunk) > length:
            return chunk[length:]
        length -= len(chunk)
        if not length:
            return source.read()
    source.cut_off(begun, f"a block, {length} bytes before its end")
    return b""


def _interface(block: bytes, order: str) -> _Interface:
    """An Interface Description Block: link type, snap length, resolution and offset of its times."""
    link, _, snaplen = Struct(order + "HHI").unpack_from(block, 8)
    multiplier, divisor, offset_ns = 1000, 1, 0  # µs unless it says otherwise
    option = Struct(order + "HH").unpack_from
    position, end = 16, len(block) - 4
    while position + 4 <= end:
        code, length = option(block, position)
        value = block[position + 4 : min(position + 4 + length, end)]
        if code == _END_OF_OPTIONS:
            break
        if code == _TSRESOL and value:
            power = value[0] & 0x7F
            multiplier, divisor = _SECOND_NS, (2 if value[0] & 0x80 else 10) ** power
            if divisor <= _SECOND_NS and _SECOND_NS % divisor == 0:
                multiplier, divisor = _SECOND_NS // divisor, 1
        elif code == _TSOFFSET and len(value) == 8:
            offset_ns = Struct(order + "q").unpack(value)[0] * _SECOND_NS
        position += 4 + (length + 3 & ~3)
    return _Interface(link, snaplen, multiplier, divisor, offset_ns)


def _rare(kind: int, block: bytes, section: _Section, last_ns: int) -> Packet | None:
    """A Simple Packet Block or the obsolete Packet Block; None when it does not fit."""
    if kind == _SIMPLE:
        if not section.interfaces:
            return None
        interface = section.interfaces[0]
        captured = min(section.word(block, 8)[0], interface.snaplen or MAX_RECORD)
        if captured > len(block) - 16:
            return None
        return last_ns, interface.link, block[12 : 12 + captured]
    number, _, high, low, captured, _ = section.old(block, 8)
    if number >= len(section.interfaces) or captured > len(block) - 32:
        return None
    interface = section.interfaces[number]
    return interface.time_ns(high << 32 | low), interface.link, block[28 : 28 + captured]
