"""TCP put together again from captures (issue 3 §1; RFC 9293, RFC 3261 18.3)."""

from __future__ import annotations

import random
import tracemalloc
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from sipguard.lab.capture.tcp import FIN, GAP_NS, MAX_BYTES, MAX_STREAMS, RST, SYN, StreamKey, TcpStreams
from tests.lab.packets import response, sip

KEY: StreamKey = (b"\xc0\0\2\1", 40000, b"\xc0\0\2\x09", 5060)
MESSAGES = [sip("REGISTER", 1), sip("INVITE", 2, body=b"v=0\r\n" * 300), response(200, 3), sip("BYE", 4)]
STREAM = b"".join(MESSAGES)


def cut(data: bytes, places: list[int]) -> list[tuple[int, bytes]]:
    """Segments: offset in the stream, bytes."""
    borders = [0, *sorted({place for place in places if 0 < place < len(data)}), len(data)]
    return [(a, data[a:b]) for a, b in pairwise(borders)]


def feed(
    streams: TcpStreams, segments: list[tuple[int, bytes]], initial: int = 1000, syn: bool = True, key: StreamKey = KEY
) -> list[bytes]:
    found: list[bytes] = []
    if syn:
        found += streams.add(key, initial, SYN, b"", 0)
    for number, (offset, data) in enumerate(segments):
        found += streams.add(key, (initial + 1 + offset) % 2**32, 16, data, number * 1000)
    return found


@given(
    st.lists(st.integers(1, len(STREAM) - 1), max_size=30),
    st.integers(0, 2**32 - 1),
    st.randoms(use_true_random=False),
    st.booleans(),
)
def test_segments_cut_anywhere_out_of_order_and_repeated(
    places: list[int], initial: int, chance: random.Random, overlap: bool
) -> None:
    """Any cuts, sequence numbers that wrap, segments displaced by a few, copies and overlapping retransmissions."""
    segments = cut(STREAM, places)
    if overlap:
        segments += [(max(0, a - 40), STREAM[max(0, a - 40) : a + 60]) for a, _ in segments if chance.random() < 0.4]
    segments += [each for each in segments if chance.random() < 0.3]
    order = sorted(range(len(segments)), key=lambda i: segments[i][0] + chance.randrange(2000))
    assert feed(TcpStreams(), [segments[i] for i in order], initial) == MESSAGES


def test_one_byte_at_a_time() -> None:
    assert feed(TcpStreams(), cut(STREAM, list(range(len(STREAM))))) == MESSAGES


def test_a_stream_whose_beginning_was_not_captured() -> None:
    """Reading begins with the next start line, wherever in a segment it stands; what is before it is no message."""
    for start in (0, 10, len(MESSAGES[0]), len(MESSAGES[0]) + 200):
        segments = [(offset + start, data) for offset, data in cut(STREAM[start:], list(range(100, 3000, 100)))]
        found = feed(TcpStreams(), segments, syn=False)
        whole = [message for i, message in enumerate(MESSAGES) if sum(map(len, MESSAGES[:i])) >= start]
        assert found == whole


def test_a_gap_loses_the_message_it_is_in() -> None:
    """A segment that was never captured: after the time a retransmission takes, reading goes on with the next start line."""
    segments = cut(STREAM, list(range(0, len(STREAM), 100)))
    lost = segments.pop(6)
    streams = TcpStreams()
    found = feed(streams, segments)
    assert found == MESSAGES[:1]
    assert streams.add(KEY, 1001 + len(STREAM), 16, sip("OPTIONS", 9), GAP_NS * 2) == [*MESSAGES[2:], sip("OPTIONS", 9)]
    assert streams.gaps == 1
    assert streams.unfinished == 1
    # The lost one, late: old by now.
    assert streams.add(KEY, 1001 + lost[0], 16, lost[1], GAP_NS * 2) == []


def test_at_the_end_what_waits_is_read() -> None:
    segments = cut(STREAM, list(range(0, len(STREAM), 100)))
    segments.pop(6)
    streams = TcpStreams()
    feed(streams, segments)
    assert streams.finish(0) == [(KEY, message) for message in MESSAGES[2:]]
    assert len(streams) == 0


def test_connections_one_after_the_other_on_the_same_ports() -> None:
    """Told apart by their SYN; a SYN seen twice, and the last segments after FIN seen again, change nothing."""
    streams = TcpStreams()
    segments = cut(STREAM, [500])
    assert feed(streams, segments, 1000) == MESSAGES
    assert streams.add(KEY, 1001 + len(STREAM), 16 | FIN, b"", 0) == []
    assert feed(streams, segments, 1000) == []
    assert feed(streams, segments, 77_000_000) == MESSAGES
    assert streams.add(KEY, 77_000_001 + len(STREAM), RST, b"", 0) == []
    # A third whose SYN was not captured, far from where the second ended.
    assert feed(streams, segments, 2_000_000_000, syn=False) == MESSAGES


def test_what_a_live_guard_would_close_is_read_no_further() -> None:
    """RFC 3261 18.3: a broken Content-Length ends the stream; what is no SIP from the start is passed over."""
    broken = sip("INVITE").replace(b"Content-Length: 0", b"Content-Length: x")
    streams = TcpStreams()
    assert feed(streams, [(0, broken), (len(broken), sip("BYE"))]) == []
    assert streams.broken == 1
    assert feed(TcpStreams(), [(0, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"), (27, sip("BYE"))]) == []


def test_a_body_over_the_limit_is_not_waited_for() -> None:
    big = sip("INVITE", body=b"x" * 1000)
    assert feed(TcpStreams(max_body=999), [(0, big)]) == []
    assert feed(TcpStreams(max_body=1000), [(0, big)]) == [big]


def test_streams_are_bounded_in_number_and_bytes() -> None:
    streams = TcpStreams()
    for number in range(MAX_STREAMS + 50):
        streams.add((number.to_bytes(4), 1, b"", 2), 1, SYN, b"", 0)
    assert len(streams) == MAX_STREAMS
    held = TcpStreams(max_body=65536)
    partial = sip("INVITE", body=b"x" * 60000)[:-1]
    early = b"e" * 60000
    tracemalloc.start()
    try:
        for number in range(1500):
            key = (number.to_bytes(4), 1, b"", 2)
            held.add(key, 1, SYN, b"", 0)
            held.add(key, 2, 16, bytes(partial), 0)
            held.add(key, 2 + len(partial) + 10, 16, bytes(bytearray(early)), 0)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1.5 * MAX_BYTES
    assert len(held) < 1500


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2**32 - 1) | st.integers(0, 3000),
            st.integers(0, 63),
            st.binary(max_size=30) | st.sampled_from(MESSAGES) | st.just(STREAM[:700]),
            st.integers(0, 30_000_000_000),
        ),
        max_size=60,
    )
)
def test_any_segments(segments: list[tuple[int, int, bytes, int]]) -> None:
    """Never an exception; at the end nothing is held."""
    streams = TcpStreams()
    for sequence, flags, data, at_ns in segments:
        streams.add(KEY, sequence, flags, data, at_ns)
    streams.finish(0)
    assert streams._bytes == 0
