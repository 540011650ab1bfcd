"""Messages for a shared stream have one end only, whoever reads them. RFC 3261 7.3.1, 18.3, 20.14."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sipguard.wire.edits import forward_request, pop_via
from sipguard.wire.framing import BROKEN, MESSAGE, StreamFramer
from sipguard.wire.front import pop_front_via
from sipguard.wire.head import read_head
from sipguard.wire.seal import seal
from tests.wire.generated import any_bytes
from tests.wire.messages import CASES, INVITE, RESPONSE, joined, request
from tests.wire.naive import assert_sealed, naive_lengths

START = b"INVITE sip:bob@example.net SIP/2.0"
OURS = b"Via: SIP/2.0/TCP 192.0.2.1:5070;branch=z9hG4bKsg0\r\nRecord-Route: <sip:192.0.2.1;lr>\r\n"


def sealed_lines(*lines: bytes, body: bytes = b"") -> tuple[list[bytes], bytes]:
    """The lines behind ours and the body, after the seal."""
    head, _, rest = seal(joined(START, *lines, body=body)).partition(b"\r\n\r\n")
    start, length, *others = head.split(b"\r\n")
    assert start == START
    assert length == b"Content-Length: %d" % len(rest)
    return others, rest


@pytest.mark.parametrize(
    ("lines", "kept"),
    [
        pytest.param([b"X: a", b"Y:  b "], [b"X: a", b"Y:  b "], id="no Content-Length: there is one now"),
        pytest.param([b"X: a", b"Content-Length: 4"], [b"X: a"], id="one at the end"),
        pytest.param([b"l: 4", b"X: a"], [b"X: a"], id="the compact name"),
        pytest.param([b"L:4"], [], id="in upper case"),
        pytest.param([b"cOnTeNt-LeNgTh \t: 4"], [], id="any case, white space before the colon"),
        pytest.param([b"Content-Length: 4", b"l:  0004"], [], id="two that agree"),
        pytest.param([b"Content-Length:", b" 4"], [], id="its value folded"),
        pytest.param([b"Content-Length", b" : 4"], [], id="its colon folded"),
        pytest.param([b"l: 4", b"X:", b" Content-Length: 460"], [b"X: Content-Length: 460"], id="a fold that looks like one"),
        pytest.param([b"X: a", b"\tl: 99", b"l: 4"], [b"X: a l: 99"], id="a fold by a tab"),
        pytest.param([b"X: a  ", b" \t", b"  b\t", b"\tc"], [b"X: a b c"], id="each fold is one space"),
        pytest.param([b"l: 4", b" "], [], id="an empty fold"),
        pytest.param([b"X: 1\nContent-Length: 4\nY: 2"], [b"X: 1", b"Y: 2"], id="bare LFs"),
        pytest.param([b"X: 1\rl: 99"], [b"X: 1 l: 99"], id="a bare CR"),
        pytest.param([b"\rl: 99"], [], id="a CR before the name"),
        pytest.param([b"X: 1\r\r"], [b"X: 1"], id="more than one CR at the end"),
        pytest.param([b"\x0bl: 99", b"l\0: 98", b"Content- Length: 97", b"\xa0l: 96"], [], id="names with what no name has"),
        pytest.param([b"L-X: 1", b"XL: 2", b"ll: 3"], [b"L-X: 1", b"XL: 2", b"ll: 3"], id="longer names stay"),
        pytest.param([b"nothing", b"l 4"], [b"nothing", b"l 4"], id="lines without a colon stay"),
    ],
)  # fmt: skip
def test_what_is_left_of_the_lines(lines: list[bytes], kept: list[bytes]) -> None:
    assert sealed_lines(*lines, body=b"body") == (kept, b"body")
    assert_sealed(seal(joined(START, *lines, body=b"body")))


def test_an_empty_line_without_cr_ends_the_head() -> None:
    """As in `framing`: what follows is the body, CRLFCRLF in it or not."""
    assert seal(START + b"\nX: 1\n\na\r\n\r\nl: 9") == START + b"\r\nContent-Length: 9\r\nX: 1\r\n\r\na\r\n\r\nl: 9"
    assert seal(START + b"\r\nX: 1\n\r\nbody") == START + b"\r\nContent-Length: 4\r\nX: 1\r\n\r\nbody"


def test_octets_beyond_the_body_do_not_go_along() -> None:
    """RFC 3261 18.3, for what a datagram brought."""
    assert seal(request(body=b"body") + b"more") == seal(request(body=b"body"))
    # A name that is none says nothing about the body.
    assert naive_lengths(seal(request(b"\x0bl: 1", length=None, body=b"body"))) == ([b"4"], b"body")


def test_a_message_as_it_should_be_keeps_its_lines() -> None:
    without = INVITE.replace(b"Content-Length: 4\r\n", b"")
    assert seal(INVITE) == without.replace(b"\r\n", b"\r\nContent-Length: 4\r\n", 1)
    assert seal(b"\r\n\r\n" + INVITE) == seal(INVITE)
    assert seal(START + b"\r\n\r\n") == START + b"\r\nContent-Length: 0\r\n\r\n"


def test_a_status_line_keeps_its_space() -> None:
    """RFC 3261 7.2: the reason may be empty, the space before it is there; Kamailio closes without it."""
    for fold in (b"", b"\r\n c"):
        assert seal(b"SIP/2.0 200 \r\nX: b%b\r\n\r\n" % fold).startswith(b"SIP/2.0 200 \r\nContent-Length: 0\r\nX: b")


@given(any_bytes)
def test_any_bytes(data: bytes) -> None:
    """Never raises; behind a start line whatever comes is sealed, and what is sealed stays as it is."""
    seal(data)
    once = seal(START + b"\r\n" + data)
    assert_sealed(once)
    assert seal(once) == once


SMUGGLED = [
    b"\r\n Content-Length: 460",
    b"\r\n\tl: 99",
    b"\nContent-Length: 7",
    b"\r\nl : 0",
    b"\r\nContent-Length:\r\n 4",
    b"\r\ncontent-length\t: 5",
    b"\rContent-Length: 3",
    b"\r\n\x0bContent-Length: 2",
    b"\r\n \r\n",
    b"\n\n",
    b"\n\r\n",
]


@st.composite
def smuggling(draw: st.DrawFn) -> bytes:
    """A message with lines put in that another reader may take for its length or its end."""
    data = draw(st.one_of(any_bytes, st.sampled_from([INVITE, RESPONSE, *(case.data for case in CASES)])))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.one_of(st.integers(0, len(data)), st.sampled_from([data.find(b"\r\n"), data.rfind(b"\r\nC")])))
        at = max(0, at)
        data = data[:at] + draw(st.sampled_from(SMUGGLED)) + data[at:]
    return data


def framed(data: bytes) -> list[bytes]:
    return [frame.data for frame in StreamFramer().feed(data, 1) if frame.kind == MESSAGE]


def sent_on(message: bytes) -> list[bytes]:
    """What goes out for one message on a stream: as a request, as a response, by the short way too."""
    head = read_head(message)
    ways = [
        forward_request(head, OURS, received=b"192.0.2.9", rport=9, drop_routes=1),
        forward_request(head, b"", received=None, rport=None, drop_routes=0),
        pop_via(head),
    ]
    popped = pop_front_via(message, b"Via: ")
    if popped is not None:
        ways.append(popped[0])
    return [seal(way) for way in ways]


@given(smuggling())
def test_whatever_the_framer_takes_goes_out_with_one_length(data: bytes) -> None:
    """RFC 3261 20.14: one Content-Length however carelessly it is looked for, and the body that the framer saw."""
    for message in framed(data):
        body = read_head(message).data[read_head(message).body_offset :]
        for sent in sent_on(message):
            assert_sealed(sent)
            assert naive_lengths(sent)[1] == body


@given(st.lists(smuggling(), min_size=1, max_size=4))
def test_sealed_messages_come_apart_again(data: list[bytes]) -> None:
    """RFC 3261 18.3: one behind the other on one stream, they are the same messages at its other end."""
    sent = [
        one for whole in data for message in framed(whole) if read_head(message).start_ok for one in sent_on(message)
    ]
    frames = StreamFramer().feed(b"".join(sent), 1)
    assert [frame.data for frame in frames] == sent
    assert BROKEN not in {frame.kind for frame in frames}
