"""The guard's own answers. RFC 3261 8.2.6, 18.2.1, 20.33; RFC 3581 4; DESIGN §3."""

from __future__ import annotations

import pytest
from hypothesis import given

from sipguard.wire.edits import mark_via
from sipguard.wire.head import read_head
from sipguard.wire.replies import reply
from tests.wire.generated import any_bytes
from tests.wire.messages import CASES, FROM, INVITE, TO, TWO_VIAS, VIA, Case, request


def test_a_503() -> None:
    out = reply(
        read_head(INVITE),
        503,
        b"Service Unavailable",
        to_tag=b"g1",
        received=b"192.0.2.10",
        rport=40000,
        server=b"sipguard",
        retry_after=17,
        extra=b"X-A: 1\r\n",
    )
    assert out == (
        b"SIP/2.0 503 Service Unavailable\r\n"
        b"Via: " + VIA + b"=40000;received=192.0.2.10\r\n"
        b"From: " + FROM + b"\r\n"
        b"To: " + TO + b";tag=g1\r\n"
        b"Call-ID: c1@192.0.2.10\r\n"
        b"CSeq: 1 INVITE\r\n"
        b"Retry-After: 17\r\n"
        b"Server: sipguard\r\n"
        b"X-A: 1\r\n"
        b"Content-Length: 0\r\n\r\n"
    )


def test_the_least_answer() -> None:
    out = reply(read_head(INVITE), 483, b"Too Many Hops", to_tag=None)
    assert out == (
        b"SIP/2.0 483 Too Many Hops\r\nVia: " + VIA + b"\r\nFrom: " + FROM + b"\r\nTo: " + TO + b"\r\n"
        b"Call-ID: c1@192.0.2.10\r\nCSeq: 1 INVITE\r\nContent-Length: 0\r\n\r\n"
    )


def test_a_to_tag_is_never_doubled() -> None:
    """RFC 3261 8.2.6.2: a tag is added only when there is none; an empty one, or one in an unclosed bracket, is one."""
    for to in (b"<sip:b@c>;tag=t", b"sip:b@c;tag=", b"<sip:b@c;tag=t"):
        assert read_head(reply(read_head(request(to=b"To: " + to)), 400, b"Bad Request", to_tag=b"g")).to == to


def test_every_via_in_order() -> None:
    out = read_head(
        reply(read_head(request(via=b"Via: " + b",".join(TWO_VIAS))), 503, b"x", to_tag=b"g", received=b"1.2.3.4")
    )
    assert out.vias == [TWO_VIAS[0] + b";received=1.2.3.4", TWO_VIAS[1]]


@pytest.mark.parametrize("case", [case for case in CASES if case.answerable], ids=lambda case: case.name)
def test_worst_kinds(case: Case) -> None:
    """The answer is well-formed and has the identities of the request; a fold has become a space, a bare CR as well."""
    head = read_head(case.data)
    out = reply(head, 503, b"Service Unavailable", to_tag=b"g", received=b"192.0.2.9", rport=9)
    back = read_head(out)
    assert out.count(b"\r") == out.count(b"\n") == out.count(b"\r\n")
    assert (back.status, back.problem) == (503, None)
    assert back.vias == [mark_via(case.vias[0], b"192.0.2.9", 9), *case.vias[1:]]
    assert case.to is not None
    to = case.to if case.to_tag is not None else case.to + b";tag=g"
    assert (back.from_, back.to, back.call_id, back.cseq) == (
        case.from_,
        to.replace(b"\r", b" "),
        case.call_id,
        case.cseq,
    )


def test_retransmissions_get_the_same_answer() -> None:
    """RFC 3261 8.2.7: stateless, hence the same bytes each time."""
    assert reply(read_head(INVITE), 503, b"x", to_tag=b"g") == reply(read_head(INVITE), 503, b"x", to_tag=b"g")


def test_many_reasons_do_not_grow_memory() -> None:
    for number in range(200):
        assert reply(read_head(INVITE), 503, b"%d" % number, to_tag=None).startswith(b"SIP/2.0 503 %d\r\n" % number)


@given(any_bytes)
def test_nothing_can_be_injected(data: bytes) -> None:
    """Never raises; whatever the bytes, the answer has the lines it should and no others, each ended by CRLF."""
    head = read_head(data)
    out = reply(head, 400, b"Bad Request", to_tag=b"g", received=b"192.0.2.9", rport=9, server=b"s", retry_after=5)
    assert out.count(b"\r") == out.count(b"\n") == out.count(b"\r\n") == 9 + max(1, len(head.vias))
    names = [line.partition(b":")[0] for line in out.split(b"\r\n")]
    vias = max(1, len(head.vias))
    assert names[1 : 1 + vias] == [b"Via"] * vias
    assert names[1 + vias :] == [
        b"From",
        b"To",
        b"Call-ID",
        b"CSeq",
        b"Retry-After",
        b"Server",
        b"Content-Length",
        b"",
        b"",
    ]
    if head.answerable:
        back = read_head(out)
        assert back.status == 400
        assert (back.call_id, back.cseq) == tuple(
            None if value is None else value.replace(b"\r", b" ").strip() for value in (head.call_id, head.cseq)
        )
