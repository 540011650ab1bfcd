"""Bytes made to hurt: nothing raises, and nothing takes more than linear time.

There is no clock here: each input is so large that anything quadratic in it would run into pytest's timeout.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from sipguard.wire.edits import forward_request, pop_via
from sipguard.wire.framing import MESSAGE, StreamFramer
from sipguard.wire.head import Head, read_head
from sipguard.wire.replies import reply
from sipguard.wire.scan import is_response, request_line, request_method
from sipguard.wire.values import read_uri, read_via
from tests.wire.generated import any_bytes, mutated
from tests.wire.messages import INVITE, VIA, joined, request

BIG = 1 << 20  # well over the 64 KiB a datagram or a head can have


def everything(data: bytes) -> Head:
    """Every reader and writer of this room, once."""
    request_method(data)
    is_response(data)
    request_line(data)
    head = read_head(data, b"x-guard-source")
    assert (head.problem, head.answerable, head.from_tag, head.to_tag) is not None
    for value in (*head.vias[:2], *head.routes[:2], head.uri, head.to or b"", head.from_ or b""):
        read_via(value)
        read_uri(value)
    reply(head, 503, b"x", to_tag=b"g", received=b"192.0.2.9", rport=9)
    forward_request(head, b"Via: x\r\n", received=b"192.0.2.9", rport=9, drop_routes=1)
    pop_via(head)
    StreamFramer(max_head=2 * BIG, max_body=BIG).feed(data, 1)
    return head


BIG_VALUES = {
    "quotes": b'"' * BIG,
    "an unterminated quote": b'"' + b"a" * BIG,
    "escaped quotes": b'\\"' * (BIG // 2),
    "a quote of escapes": b'"' + b"\\" * BIG,
    "pairs of quotes": b'""' * (BIG // 2),
    "brackets": b"<" * BIG,
    "closed brackets": b"<>" * (BIG // 2),
    "brackets in quotes": b'"<"' * (BIG // 3),
    "closing brackets": b">" * BIG,
    "commas": b"," * BIG,
    "commas and more": b"a," * (BIG // 2),
    "semicolons": b";" * BIG,
    "tags": b";tag=" * (BIG // 5),
    "rports": b";rport" * (BIG // 6),
    "spaces": b" " * BIG,
    "spaces, then a byte": b" " * BIG + b"x",
    "tabs and spaces": b" \t" * (BIG // 2),
    "digits": b"9" * BIG,
    "zeros": b"0" * BIG,
    "colons": b":" * BIG,
    "slashes": b"/" * BIG,
    "a Via of one class": b"SIP/2.0/UDP " + b"a" * BIG,
    "a Via of backslashes": b'SIP/2.0/UDP h;x="' + b"\\" * BIG,
    "NULs": b"\0" * BIG,
    "bare CRs": b"\r" * BIG,
    "ats": b"sip:" + b"@" * BIG,
}


@pytest.mark.parametrize(
    "header", [b"Via", b"To", b"From", b"Route", b"CSeq", b"Content-Length", b"Max-Forwards", b"X-Guard-Source"]
)
@pytest.mark.parametrize("name", BIG_VALUES)
def test_big_values(name: str, header: bytes) -> None:
    data = request(header + b": " + BIG_VALUES[name])
    assert everything(data).method == "INVITE"


@pytest.mark.parametrize("name", BIG_VALUES)
def test_big_start_lines(name: str) -> None:
    value = BIG_VALUES[name]
    for start in (value, b"INVITE " + value, b"INVITE sip:b " + value, value + b" SIP/2.0", b"SIP/2.0 " + value):
        everything(start)
        everything(joined(start))
        everything(joined(start, b" folded " + value))


def test_ten_thousand_vias() -> None:
    lines = [b"Via: SIP/2.0/UDP h%d;branch=z9hG4bK%d" % (number, number) for number in range(10_000)]
    one_line = b"Via: " + b",".join(line[5:] for line in lines)
    for data in (request(*lines), request(one_line), request(one_line.replace(b",", b",\r\n "))):
        head = everything(data)
        assert head.vias == [VIA, *(line[5:] for line in lines)]
        back = read_head(reply(head, 503, b"x", to_tag=b"g"))
        assert back.vias == head.vias
        assert len(read_head(pop_via(head)).vias) == 10_000


def test_a_hundred_thousand_lines() -> None:
    for line in (b"X: y", b"Route: <sip:a>", b"X-Guard-Source: a", b"To: a", b"no colon", b"l: 0", b":", b"X:\r\n y"):
        everything(request(*[line] * 100_000))
    everything(b"INVITE sip:b SIP/2.0\n" + b"\n " * 100_000)
    everything(request(b"X:" + b"\r\n " * 100_000))


@pytest.mark.parametrize(
    ("data", "messages"),
    [
        (INVITE, 1),
        (b"INVITE sip:b SIP/2.0\n\n", 1),
        (b"INVITE sip:b SIP/2.0\r\n\r\n\r\n", 1),
        (b"\r\n", 0),
        (b"INVITE sip:b\r\n ", 0),
        (b"x" * 60, 0),
    ],
)
def test_a_stream_byte_by_byte(data: bytes, messages: int) -> None:
    framer = StreamFramer()
    times = 300_000 // len(data)
    found = 0
    for byte in data * times:
        found += sum(frame.kind == MESSAGE for frame in framer.feed(bytes((byte,)), 1))
    assert found == messages * times


@settings(max_examples=300)
@given(any_bytes)
def test_any_bytes(data: bytes) -> None:
    everything(data)


@settings(max_examples=300)
@given(mutated())
def test_mutated_messages(data: bytes) -> None:
    """Tier 1 never contradicts tier 0, and what can be answered has what an answer needs."""
    head = everything(data)
    assert head.method == request_method(data)
    assert 0 <= head.body_offset <= len(head.data)
    if head.problem is None:
        assert b"\r" not in head.data[: head.body_offset].replace(b"\r\n", b"")
        assert head.top_via is not None
    if head.problem is None and head.method not in (None, "ACK"):
        assert head.answerable
        assert head.cseq_number is not None
