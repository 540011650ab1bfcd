"""Tier 1: the fields of a message. RFC 3261 7.3, 8.1.1, 20; RFC 4475 in our own words."""

from __future__ import annotations

import pytest

from sipguard.wire.head import PROBLEMS, read_head
from sipguard.wire.names import EXTRA
from tests.wire.messages import CASES, INVITE, NOT_SIP, RESPONSE, VIA, Case, joined, request


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_worst_kinds(case: Case) -> None:
    head = read_head(case.data)
    assert (head.method, head.status) == (case.method, 0)
    assert head.vias == case.vias
    assert (head.from_, head.to, head.call_id, head.cseq) == (case.from_, case.to, case.call_id, case.cseq)
    assert head.to_tag == case.to_tag
    assert head.problem == case.problem
    assert head.answerable is case.answerable


@pytest.mark.parametrize("name", NOT_SIP)
def test_not_sip(name: str) -> None:
    head = read_head(NOT_SIP[name])
    assert (head.method, head.status, head.problem, head.answerable) == (None, 0, "bad-start-line", False)


def test_a_plain_request() -> None:
    head = read_head(INVITE)
    assert (head.method, head.uri, head.version) == ("INVITE", b"sip:bob@example.net", b"SIP/2.0")
    assert (head.cseq_number, head.cseq_method) == (1, b"INVITE")
    assert (head.max_forwards, head.content_length) == (70, 4)
    assert head.data[head.body_offset :] == b"body"
    assert (head.from_tag, head.to_tag) == (b"f1", None)
    assert (head.routes, head.record_routes) == ([], [])
    assert head.top_via is head.top_via
    assert head.top_via is not None
    assert head.top_via.sent_by == b"192.0.2.10:5060"
    assert repr(head) == (
        "Head('INVITE', b'sip:bob@example.net', call_id=b'c1@192.0.2.10', cseq=b'1 INVITE', problem=None)"
    )


def test_a_response() -> None:
    head = read_head(RESPONSE)
    assert (head.method, head.status, head.version, head.uri) == (None, 180, b"SIP/2.0", b"")
    assert (head.to_tag, head.problem, head.answerable) == (b"t1", None, False)


@pytest.mark.parametrize("code", [b"99", b"099", b"700", b"4294967301", b"2x0", b""])
def test_a_status_that_is_none(code: bytes) -> None:
    """RFC 3261 7.2, RFC 4475 3.1.2.19: three digits, 100-699."""
    head = read_head(RESPONSE.replace(b"180", code))
    assert (head.method, head.status, head.problem) == (None, 0, "bad-start-line")


def test_response_with_a_reason_of_any_bytes() -> None:
    for reason in (b"", "Занято".encode(), b"a  b"):
        assert read_head(RESPONSE.replace(b"Ringing", reason)).problem is None


def test_routes_in_order() -> None:
    """RFC 3261 20.34, 20.30: lists on one line and over several are one list; commas inside < > and quotes do not split."""
    head = read_head(
        request(
            b'Route: <sip:a;x="1,2">, "N, M" <sip:b,c;lr>',
            b"Record-Route: <sip:r1;lr>,<sip:r2;lr>",
            b"ROUTE :<sip:d>",
            b"record-route: <sip:r3>",
        )
    )
    assert head.routes == [b'<sip:a;x="1,2">', b'"N, M" <sip:b,c;lr>', b"<sip:d>"]
    assert head.record_routes == [b"<sip:r1;lr>", b"<sip:r2;lr>", b"<sip:r3>"]


def test_leading_crlfs_are_not_data() -> None:
    head = read_head(b"\r\n\n" + INVITE)
    assert head.data == INVITE
    assert head.data[head.body_offset :] == b"body"


@pytest.mark.parametrize(
    ("data", "body"),
    [
        (INVITE, b"body"),
        (INVITE.replace(b"\r\n", b"\n"), b"body"),
        (request(b"A: 1\n")[:-2] + b"body", b"body"),  # the last line ends in a bare LF
        (request()[:-2], b""),
        (joined(b"INVITE sip:b SIP/2.0"), b""),
        (b"INVITE sip:b SIP/2.0", b""),
        (b"INVITE sip:b SIP/2.0\n\n\n", b"\n"),
    ],
)
def test_where_the_body_begins(data: bytes, body: bytes) -> None:
    head = read_head(data)
    assert head.data[head.body_offset :] == body


def test_extra_header() -> None:
    """The extra name is found in any case; one that is read anyway keeps its meaning."""
    for name in (b"X-Guard-Source", b"x-guard-source", b"X-GUARD-source "):
        data = request(name + b": 1")
        assert read_head(data, b"x-guard-source").line_of[EXTRA] > 0
        assert read_head(data).line_of[EXTRA] == 0
    assert read_head(INVITE, b"via").vias == [VIA]
    assert read_head(INVITE, b"contact").line_of[EXTRA] > 0
    for number in range(40):  # the tables are keyed by configuration, and bounded all the same
        assert read_head(request(b"x-%d: 1" % number), b"x-%d" % number).line_of[EXTRA] > 0


def test_problems_are_a_closed_set() -> None:
    assert {case.problem for case in CASES if case.problem} == set(PROBLEMS)


def test_both_ways_of_reading_agree() -> None:
    """One fold anywhere sends the message the careful way: it must read the same."""
    head, slow = read_head(INVITE), read_head(INVITE.replace(b"Test, 1.0", b"Test,\r\n 1.0"))
    for name in (
        "method",
        "uri",
        "vias",
        "from_",
        "to",
        "call_id",
        "cseq",
        "max_forwards",
        "content_length",
        "problem",
    ):
        assert getattr(head, name) == getattr(slow, name)
    assert slow.data[slow.body_offset :] == b"body"
