"""Containers: pcap and pcapng in every form, compressed, cut off, damaged (issue 3 §1). dpkt is the second reader."""

from __future__ import annotations

import gzip
import io
import os
import random
import struct
import tracemalloc
from pathlib import Path

import dpkt  # type: ignore[import-untyped,unused-ignore]
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from sipguard.lab.capture.files import Captures, Input, packets_of
from sipguard.lab.capture.records import CaptureError, Packet
from sipguard.lab.capture.source import CHUNK, Source
from tests.lab.packets import (
    EPOCH_NS,
    ETHERNET,
    RAW,
    SLL,
    block,
    enhanced,
    interface,
    pcap,
    section,
    sip,
    udp4,
)

FRAMES = [(number * 1_234_567_891, udp4(sip("OPTIONS", number))) for number in range(50)]


def read(data: bytes) -> tuple[list[Packet], list[tuple[int, str]]]:
    source = Source(io.BytesIO(data), "test")
    packets = list(packets_of(source))
    return packets, [(damage.offset, damage.reason) for damage in source.damages]


def expected(unit_ns: int = 1, link: int = ETHERNET) -> list[Packet]:
    return [(EPOCH_NS + at_ns // unit_ns * unit_ns, link, frame) for at_ns, frame in FRAMES]


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("nano", [False, True])
def test_pcap_in_both_orders_and_resolutions(order: str, nano: bool) -> None:
    assert read(pcap(FRAMES, order=order, nano=nano)) == (expected(1 if nano else 1000), [])


@pytest.mark.parametrize("nano", [False, True])
@pytest.mark.parametrize("order", ["<", ">"])
def test_dpkt_reads_the_same(order: str, nano: bool) -> None:
    data = pcap(FRAMES, order=order, nano=nano)
    # Of a ns file its times are Decimal, else float.
    digits = 9 if nano else 6
    second = [(round(at * 10**digits), frame) for at, frame in dpkt.pcap.Reader(io.BytesIO(data))]
    assert [(at_ns // 10 ** (9 - digits), frame) for at_ns, _, frame in read(data)[0]] == second
    ng = section(order) + interface(ETHERNET, order, 9 if nano else 6)
    ng += b"".join(enhanced(at_ns // (1 if nano else 1000), frame, order) for at_ns, frame in FRAMES)
    # Its times are floats: good to some 200 ns of the Unix time, to less than 1 µs here.
    third = [(at, frame) for at, frame in dpkt.pcapng.Reader(io.BytesIO(ng))]
    for (at_ns, _, frame), (at, second_frame) in zip(read(ng)[0], third, strict=True):
        assert frame == second_frame
        assert abs(at_ns / 1e9 - at) < 1e-6


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize(
    ("resolution", "units", "at_ns"),
    [
        (None, 1_700_000_000_123_456, 1_700_000_000_123_456_000),
        (3, 1_700_000_000_123, 1_700_000_000_123_000_000),
        (9, 1_700_000_000_123_456_789, 1_700_000_000_123_456_789),
        (12, 1_700_000_000_123_456, 1_700_000_000_123),
        (0x80 | 10, 1_700_000_000 * 1024 + 512, 1_700_000_000_500_000_000),
    ],
)
def test_pcapng_times(order: str, resolution: int | None, units: int, at_ns: int) -> None:
    """draft-ietf-opsawg-pcapng, if_tsresol and if_tsoffset."""
    data = section(order) + interface(RAW, order, resolution, 100) + enhanced(units, b"x", order)
    assert read(data) == ([(at_ns + 100 * 10**9, RAW, b"x")], [])


def test_pcapng_sections_interfaces_and_other_blocks() -> None:
    """Two interfaces, a simple and an obsolete packet block, an unknown block larger than what is read at once, a second
    section in the other byte order with interfaces of its own."""
    old = struct.pack("<HHIIII", 1, 0, 0, 7, 3, 3) + b"old"
    data = (
        section()
        + interface(ETHERNET)
        + interface(RAW, resolution=9)
        + enhanced(5, b"first", number=1)
        + block(3, struct.pack("<I", 6) + b"simple")
        + block(2, old)
        + block(0x0BAD, bytes(3 * CHUNK))
        + enhanced(9, b"last")
        + section(">")
        + interface(SLL, ">")
        + enhanced(11, b"other", ">")
    )
    assert read(data) == (
        [
            (5, RAW, b"first"),
            (5, ETHERNET, b"simple"),
            (7, RAW, b"old"),
            (9000, ETHERNET, b"last"),
            (11000, SLL, b"other"),
        ],
        [],
    )


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.ZstdCompressor().compress])
def test_compressed_files(tmp_path: Path, compress: type[bytes]) -> None:
    data = pcap(FRAMES, nano=True)
    assert read(compress(data)) == (expected(), [])
    # Members and frames one after the other, as log rotation appends them.
    half = len(data) // 2
    assert read(compress(data[:half]) + compress(data[half:])) == (expected(), [])


@given(st.integers(0, 2000), st.booleans())
def test_a_file_cut_off_anywhere_gives_what_is_whole_and_says_where(cut: int, ng: bool) -> None:
    """What is readable is used, the rest reported with its offset."""
    frames = [frame for _, frame in FRAMES[:4]]
    if ng:
        begin = section() + interface(ETHERNET)
        parts = [begin, *(enhanced(1, frame) for frame in frames)]
    else:
        begin = pcap([])
        parts = [begin, *(pcap([(0, frame)])[24:] for frame in frames)]
    data = b"".join(parts)[:cut]
    cut = len(data)
    borders = [sum(map(len, parts[: i + 1])) for i in range(len(parts))]
    whole = sum(border <= cut for border in borders[1:])
    if cut < 12:
        return
    packets, damages = read(data)
    assert [packet[2] for packet in packets] == frames[:whole]
    sound = [0, *([len(section())] if ng else []), *borders]
    last = max(border for border in sound if border <= cut)
    assert [offset for offset, _ in damages] == ([] if cut == last and cut > 0 else [last])


def test_a_cut_gzip_gives_what_came_before() -> None:
    frames = [(at_ns, udp4(os.urandom(1000))) for at_ns, _ in FRAMES * 40]
    data = gzip.compress(pcap(frames, nano=True), 1)
    packets, damages = read(data[: len(data) // 2])
    assert 800 < len(packets) < 1100
    assert packets == [(EPOCH_NS + at_ns, ETHERNET, frame) for at_ns, frame in frames[: len(packets)]]
    assert "breaks off" in damages[0][1]


def test_damage_in_the_middle_loses_one_record() -> None:
    """A record header overwritten: reading goes on with the next."""
    for data, header in ((pcap(FRAMES, nano=True), 16), (ng_file(), 28)):
        record = data.index(FRAMES[20][1]) - header
        spoilt = data[:record] + b"\xff" * 16 + data[record + 16 :]
        packets, damages = read(spoilt)
        assert packets == expected()[:20] + expected()[21:]
        assert [offset for offset, _ in damages] == [record]
        assert "reading goes on at offset" in damages[0][1]


@pytest.mark.parametrize("field", [0, 4, 8, 12])
def test_any_spoilt_field_of_a_record_header(field: int) -> None:
    """Seconds and lengths that are possible cannot be told from true ones; impossible ones are damage, and cost one record."""
    data = bytearray(pcap(FRAMES, nano=True))
    record = bytes(data).index(FRAMES[20][1]) - 16
    data[record + field : record + field + 4] = b"\xff\xff\xff\xff"
    packets, damages = read(bytes(data))
    if field in (4, 8):
        assert packets == expected()[:20] + expected()[21:]
        assert [offset for offset, _ in damages] == [record]
    else:
        assert [frame for _, _, frame in packets] == [frame for _, frame in FRAMES]
        assert damages == []


@pytest.mark.parametrize("ng", [False, True])
def test_behind_much_damage_reading_goes_on(ng: bool) -> None:
    """More of it than is read at once."""
    data = ng_file() if ng else pcap(FRAMES, nano=True)
    begin = data.index(FRAMES[20][1]) - (28 if ng else 16)
    junk = b"\xff" * 16 + random.Random(5).randbytes(2 * CHUNK + 4 * 5)
    packets, damages = read(data[:begin] + junk + data[begin:])
    assert packets == expected()
    assert [offset for offset, _ in damages] == [begin]


def ng_file() -> bytes:
    begin = section() + interface(ETHERNET, resolution=9)
    return begin + b"".join(enhanced(EPOCH_NS + at_ns, frame) for at_ns, frame in FRAMES)


@given(st.data())
def test_any_bytes_are_packets_or_damage(data: st.DataObject) -> None:
    """Hostile bytes never raise; a length field never makes it read or keep more than there is."""
    original = data.draw(st.sampled_from([pcap(FRAMES[:3]), ng_file()[:1500], gzip.compress(pcap(FRAMES[:3]))]))
    spoilt = bytearray(original)
    for _ in range(data.draw(st.integers(1, 6))):
        spoilt[data.draw(st.integers(12, len(spoilt) - 1))] = data.draw(st.integers(0, 255))
    try:
        packets, damages = read(bytes(spoilt))
    except CaptureError:
        assert original[:2] == b"\x1f\x8b"  # nothing came out of it
        return
    assert sum(len(frame) for _, _, frame in packets) <= 2000
    assert all(0 <= offset <= 4000 for offset, _ in damages)


@pytest.mark.parametrize("length", [0xFFFFFFFC, 0x7FFFFFFC, 8])
def test_a_length_of_gigabytes_costs_nothing(length: int) -> None:
    data = ng_file() + struct.pack("<II", 6, length) + bytes(100)
    old = pcap(FRAMES) + struct.pack("<IIII", 1_700_000_000, 0, length, length) + bytes(100)
    for each in (data, old) if length > 8 else (data,):
        tracemalloc.start()
        try:
            packets, damages = read(each)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert len(packets) == len(FRAMES)
        assert len(damages) == 1
        assert peak < 4 * CHUNK


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "long.pcap"
    body = pcap(FRAMES)[24:]
    with path.open("wb") as file:
        file.write(pcap([]))
        for _ in range(1200):
            file.write(body)
    assert path.stat().st_size > 20 * CHUNK
    tracemalloc.start()
    try:
        count = sum(1 for _ in Captures([Input(str(path))]).packets())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == 1200 * len(FRAMES)
    assert peak < 5 * CHUNK


def test_several_files_are_one_stream_by_time(tmp_path: Path) -> None:
    """A ring given in the wrong order, and a capture taken beside it: earlier packets first."""
    pieces = {"b.pcap": FRAMES[20:40], "a.pcap": FRAMES[:20], "c.pcap": FRAMES[40:], "side.pcap": FRAMES[5:45:3]}
    for name, frames in pieces.items():
        (tmp_path / name).write_bytes(pcap(frames, nano=True))
    told: list[int] = []
    inputs = [Input(str(tmp_path / name)) for name in pieces]
    packets = list(Captures(inputs, told.append).packets())
    assert packets == sorted(expected() + expected()[5:45:3])
    assert told[-1] == sum(path.stat().st_size for path in tmp_path.iterdir())


def test_what_a_file_is(tmp_path: Path) -> None:
    contents = {
        "capture": [pcap([]), ng_file(), gzip.compress(pcap([])), zstandard.ZstdCompressor().compress(ng_file())],
        "csv": [b"time_ms,method\n", b"\xef\xbb\xbf5,INVITE", b"\n5,INVITE"],
        "empty": [b"", gzip.compress(b""), b"\x1f\x8b", b"\x28\xb5", b"\n"],
        "jsonl": [b'{"time_ms": 1}', gzip.compress(b'\n {"time_ms": 1}')],
    }
    path = tmp_path / "file"
    for kind, samples in contents.items():
        for data in samples:
            path.write_bytes(data)
            assert Input(str(path)).kind == kind
    path.write_bytes(b"\x7fELF\0\0\0")
    with pytest.raises(CaptureError, match="neither pcap, pcapng, CSV nor JSONL"):
        Input(str(path))
