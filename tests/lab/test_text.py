"""Rows of a compressed or hostile file: what is whole is used, lines are bounded, zstd says when it is cut."""

from __future__ import annotations

import gzip
import io
import random
import tracemalloc
import zlib
from collections.abc import Callable

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from sipguard.lab.capture.source import CHUNK, Source
from sipguard.lab.capture.text import MAX_LINE, text_lines
from sipguard.lab.replay import RowError, read_events


def source_of(data: bytes) -> Source:
    return Source(io.BytesIO(data), "test")


@given(st.text(st.sampled_from('ab,"\r\n\x0b\x1c\u2028é'), max_size=200))
def test_lines_are_those_of_pythons_own_reader(text: str) -> None:
    data = text.encode()
    expected = list(io.TextIOWrapper(io.BytesIO(data), encoding="utf-8", newline=""))
    assert list(text_lines(source_of(data))) == expected


def test_lines_over_the_borders_of_what_is_read_at_once() -> None:
    rows = [f"{number},INVITE\r\n" for number in range(3 * CHUNK // 12)]
    data = b"\xef\xbb\xbf" + "".join(rows).encode()
    assert len(data) > 2 * CHUNK
    assert list(text_lines(source_of(data))) == rows
    # CR LF with the border in between.
    data = b"x" * 100 + b"\n" * (CHUNK - 101) + b"\r\nend"
    assert data[CHUNK - 1 : CHUNK + 1] == b"\r\n"
    assert list(text_lines(source_of(data)))[-2:] == ["\r\n", "end"]


@pytest.mark.parametrize("data", [b"x" * (MAX_LINE + 1) + b"\n", b"x" * (CHUNK * 2)])
def test_a_line_without_end_is_refused_by_its_number(data: bytes) -> None:
    with pytest.raises(RowError, match=r"^line 3: line = 'x+…: allowed is a line of at most 65536 bytes"):
        list(text_lines(source_of(b"1,INVITE\n2,INVITE\n" + data)))


def test_a_line_of_gigabytes_costs_no_memory() -> None:
    """A small gzip of one very long line."""
    data = gzip.compress(b"1,INVITE\n" + bytes(b"x" * (200 << 20)), 1)
    tracemalloc.start()
    try:
        with pytest.raises(RowError):
            list(read_events(text_lines(source_of(data))))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * CHUNK


ROWS = "".join(f"{number},INVITE\n" for number in range(30_000)).encode()
NOISE = b"".join(b"%d,x%s\n" % (number, random.Random(number).randbytes(6).hex().encode()) for number in range(60_000))


def zlib_only(data: bytes) -> bytes:
    """gzip without what Python puts around it: another maker."""
    maker = zlib.compressobj(wbits=31)
    return maker.compress(data) + maker.flush()


@pytest.mark.parametrize("compress", [gzip.compress, zlib_only, zstandard.ZstdCompressor().compress])
@pytest.mark.parametrize("content", [ROWS, NOISE])
def test_a_cut_file_gives_its_whole_lines_and_one_damage(compress: Callable[[bytes], bytes], content: bytes) -> None:
    whole = compress(content)
    for length in (1, 2, 3, 4, 9, 20, len(whole) // 2, len(whole) - 9, len(whole) - 1):
        source = source_of(whole[:length])
        lines = list(text_lines(source))
        text = "".join(lines).encode()
        assert content.startswith(text)
        assert not text or text.endswith(b"\n")
        (damage,) = source.damages
        assert "breaks off" in damage.reason
        # The offset is where the content ends; less than a line before it was left out.
        assert 0 <= damage.offset - len(text) < 20
        if len(whole) // 2 <= length and content is NOISE:
            assert lines
    source = source_of(whole)
    assert b"".join(line.encode() for line in text_lines(source)) == content
    assert source.damages == []


def test_a_file_that_is_not_cut_may_end_without_a_line_end() -> None:
    assert list(text_lines(source_of(b"1,INVITE\n2,BYE"))) == ["1,INVITE\n", "2,BYE"]
    assert list(text_lines(source_of(gzip.compress(b"1,INVITE\n2,BYE")))) == ["1,INVITE\n", "2,BYE"]


def frames(*contents: bytes) -> bytes:
    return b"".join(map(zstandard.ZstdCompressor(write_checksum=True).compress, contents))


def skippable(data: bytes, number: int = 0) -> bytes:
    """RFC 8878 3.1.2."""
    return bytes((0x50 + number,)) + b"\x2a\x4d\x18" + len(data).to_bytes(4, "little") + data


def content_of(data: bytes) -> tuple[bytes, list[tuple[int, str]]]:
    source = source_of(data)
    parts = []
    while piece := source.read():
        parts.append(piece)
    return b"".join(parts), [(damage.offset, damage.reason) for damage in source.damages]


def test_zstd_of_several_frames_and_of_skippable_ones() -> None:
    assert content_of(frames(ROWS, b"", NOISE)) == (ROWS + NOISE, [])
    assert content_of(skippable(b"index") + frames(ROWS) + skippable(bytes(5000), 7)) == (ROWS, [])


def test_zstd_cut_between_frames_is_whole_and_within_one_is_not() -> None:
    first, second = frames(ROWS), frames(NOISE)
    assert content_of(first) == (ROWS, [])
    for cut in (1, 3, 4, 12, len(second) - 1):
        content, damages = content_of(first + second[:cut])
        assert content.startswith(ROWS)
        assert [offset for offset, _ in damages] == [len(content)]
        assert "breaks off or is damaged (zstd frame ended before its end mark" in damages[0][1]
    content, damages = content_of(first + skippable(b"index")[:6])
    assert (content, len(damages)) == (ROWS, 1)


def test_zstd_with_something_else_behind_it_or_spoilt_is_damage() -> None:
    assert content_of(frames(ROWS) + b"something else")[0] == ROWS
    assert len(content_of(frames(ROWS) + b"something else")[1]) == 1
    spoilt = bytearray(frames(NOISE))
    spoilt[len(spoilt) // 2] ^= 0xFF
    content, damages = content_of(bytes(spoilt))
    assert len(damages) == 1
    assert len(content) <= len(NOISE)


def test_a_zstd_bomb_comes_in_bounded_pieces() -> None:
    """RFC 8878 3.1.1.2: a block of 4 bytes may hold 128 KiB."""
    bomb = zstandard.ZstdCompressor(level=19).compress(bytes(1 << 28))
    assert len(bomb) < 20_000
    source = source_of(bomb)
    most = total = 0
    while piece := source.read():
        most, total = max(most, len(piece)), total + len(piece)
    assert (total, source.damages) == (1 << 28, [])
    assert most < 18 << 20
