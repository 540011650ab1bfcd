"""Messages out of a byte stream. RFC 3261 18.3, 20.14, 7.5; RFC 5626 4.4.1; RFC 4475 3.1.1.8."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sipguard.wire.framing import BROKEN, BROKEN_REASONS, MESSAGE, PING, StreamFramer
from sipguard.wire.head import read_head
from sipguard.wire.scan import request_method
from tests.wire.generated import any_bytes
from tests.wire.messages import CASES, INVITE, NOT_SIP, RESPONSE, Case, joined, request

Found = list[tuple[str, bytes, str]]

BYE = request(method=b"BYE")


def frames_of(data: bytes, cuts: list[int] | None = None, max_head: int = 65536, max_body: int = 65536) -> Found:
    framer = StreamFramer(max_head=max_head, max_body=max_body)
    found: Found = []
    edges = [0, *(cuts or []), len(data)]
    for start, end in pairwise(edges):
        found += [(frame.kind, frame.data, frame.reason) for frame in framer.feed(data[start:end], 7)]
    return found


def every_byte(data: bytes) -> list[int]:
    return list(range(1, len(data)))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_worst_kinds(case: Case) -> None:
    whole = frames_of(case.data)
    messages = [data for kind, data, _ in whole if kind == MESSAGE]
    lost = [reason for kind, _, reason in whole if kind == BROKEN]
    assert (len(messages), "".join(lost)) == case.stream
    assert frames_of(case.data, every_byte(case.data)) == whole


@pytest.mark.parametrize("name", NOT_SIP)
def test_not_sip(name: str) -> None:
    """Something else on the port is found out at its first line end, before any limit."""
    found = frames_of(NOT_SIP[name])
    assert [kind for kind, _, _ in found if kind == MESSAGE] == []
    if b"\r\n" in NOT_SIP[name].strip(b"\r\n"):
        assert found == [(BROKEN, b"", "bad-start-line")]


def test_messages_back_to_back() -> None:
    data = INVITE + BYE + b"\r\n" + RESPONSE + b"\r\n\r\n" + INVITE.replace(b"\r\n", b"\n")
    found = frames_of(data)
    assert found == [
        (MESSAGE, INVITE, ""),
        (MESSAGE, BYE, ""),
        (MESSAGE, RESPONSE, ""),
        (PING, b"", ""),
        (MESSAGE, INVITE.replace(b"\r\n", b"\n"), ""),
    ]
    assert frames_of(data, every_byte(data)) == found


def test_pings() -> None:
    """RFC 5626 4.4.1: CRLFCRLF between messages is a ping; RFC 3261 7.5: a single CRLF is nothing."""
    assert frames_of(b"\r\n") == []
    assert frames_of(b"\r\n\r\n\r\n") == [(PING, b"", "")]
    assert frames_of(b"\r\n" * 8, every_byte(b"\r\n" * 8)) == [(PING, b"", "")] * 4
    assert frames_of(b"\r\n" + BYE + b"\r\n") == [(MESSAGE, BYE, "")]
    assert frames_of(b"\n\r\r\n\r\n") == [(PING, b"", "")]


def test_nothing_follows_a_lost_stream() -> None:
    framer = StreamFramer()
    assert [frame.reason for frame in framer.feed(b"GET / HTTP/1.1\r\n\r\n" + INVITE, 1)] == ["bad-start-line"]
    assert framer.feed(INVITE, 2) == []
    assert framer.partial_since_ns is None


@pytest.mark.parametrize(
    "length", [b"-1", b"+1", b"x", b"", b"1 1", b"0x1", b"1,1", b"1\r\nl: 2", b"1\r\nContent-Length: x", b"9" * 40]
)
def test_broken_content_length(length: bytes) -> None:
    """The head is handed over, so that a 400 may be tried before the stream is closed."""
    data = request(length=b"Content-Length: " + length)
    assert frames_of(data + INVITE) == [(BROKEN, data, "bad-content-length")]
    assert read_head(data).problem == "bad-content-length"


@pytest.mark.parametrize(
    "length", [b"Content-Length: 3", b"l:3", b"L \t:  003 ", b"cONTENT-lENGTH:3\r\nl: 3", b"Content-Length:\r\n 3"]
)
def test_content_length_in_every_spelling(length: bytes) -> None:
    data = request(length=length)
    assert frames_of(data + b"abc" + BYE) == [(MESSAGE, data + b"abc", ""), (MESSAGE, BYE, "")]


def test_limits() -> None:
    head = len(BYE)
    assert frames_of(BYE, max_head=head) == [(MESSAGE, BYE, "")]
    assert frames_of(BYE, max_head=head - 1) == [(BROKEN, b"", "head-too-large")]
    assert frames_of(INVITE, max_body=4) == [(MESSAGE, INVITE, "")]
    assert frames_of(INVITE, max_body=3) == [(BROKEN, INVITE[:-4], "body-too-large")]
    assert frames_of(b"INVITE sip:" + b"x" * 65536) == [(BROKEN, b"", "head-too-large")]


def test_partial_since() -> None:
    """The time the unfinished message began; line ends between messages begin none."""
    framer = StreamFramer()
    framer.feed(b"\r\n", 1)
    assert framer.partial_since_ns is None
    framer.feed(INVITE[:10], 2)
    framer.feed(INVITE[10:-1], 3)
    assert framer.partial_since_ns == 2
    framer.feed(INVITE[-1:] + b"BY", 4)
    assert framer.partial_since_ns == 4
    framer.feed(BYE[2:], 5)
    assert framer.partial_since_ns is None


def test_what_is_held_is_bounded() -> None:
    framer = StreamFramer(max_head=1000, max_body=1000)
    for _ in range(300):
        framer.feed(b"INVITE sip:b SIP/2.0\r\nX: ", 1)
        assert len(framer._buffer) < 1100
    framer = StreamFramer(max_head=1000, max_body=1000)
    framer.feed(joined(b"INVITE sip:b SIP/2.0", b"l: 1000"), 1)
    for _ in range(999):
        framer.feed(b"x", 1)
    assert len(framer._buffer) < 2000
    framer.feed(b"\r\n\r\n" * 300, 1)
    assert len(framer._buffer) == 0
    for _ in range(300):
        framer.feed(b"\r\n\n\n", 1)
    assert len(framer._buffer) == 0
    assert len(framer._gap) <= 3


pieces = st.lists(
    st.one_of(
        st.sampled_from([INVITE, BYE, RESPONSE, b"\r\n", b"\r\n\r\n", b"\n", b"\r", *(case.data for case in CASES)]),
        any_bytes,
    ),
    max_size=6,
).map(b"".join)


@given(pieces, st.data())
def test_any_split_gives_the_same_frames(data: bytes, choice: st.DataObject) -> None:
    max_head = choice.draw(st.sampled_from([65536, 400, 60]))
    max_body = choice.draw(st.sampled_from([65536, 3]))
    whole = frames_of(data, [], max_head, max_body)
    cuts = choice.draw(st.lists(st.integers(0, len(data)), max_size=8).map(sorted))
    assert frames_of(data, cuts, max_head, max_body) == whole
    assert frames_of(data, every_byte(data), max_head, max_body) == whole


@given(pieces)
def test_frames_are_messages(data: bytes) -> None:
    """Each frame is one message by itself, in order; a lost stream ends with the only BROKEN."""
    rest = data
    for kind, message, reason in frames_of(data):
        assert (kind == BROKEN) is (reason in BROKEN_REASONS)
        at = rest.find(message)
        assert at >= 0
        if kind == MESSAGE:
            assert not rest[:at].strip(b"\r\n")
            rest = rest[at + len(message) :]
            head = read_head(message)
            assert request_method(message) is not None or head.version
            assert head.data == message
            assert len(message) - head.body_offset == (head.content_length or 0)


@given(
    st.lists(st.tuples(st.sampled_from([b"", b"\r\n", b"\n"]), st.sampled_from([INVITE, BYE, RESPONSE])), max_size=6),
    st.data(),
)
def test_a_sound_stream_loses_nothing(messages: list[tuple[bytes, bytes]], choice: st.DataObject) -> None:
    data = b"".join(gap + message for gap, message in messages)
    cuts = choice.draw(st.lists(st.integers(0, len(data)), max_size=8).map(sorted))
    assert frames_of(data, cuts) == [(MESSAGE, message, "") for _, message in messages]
