"""Hostile input: nothing raises, nothing grows without bound (DESIGN §2), header values break no lines."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sipguard.uas.agent import UserAgentServer
from sipguard.uas.fields import read_fields
from sipguard.uas.invites import LIFE_NS
from sipguard.uas.sdp import MAX_MEDIA, MAX_OFFER_BYTES, make_answer, make_offer
from sipguard.uas.table import BoundedTable
from sipguard.wire.head import read_head
from tests.uas.messages import CLIENT, OFFER, SECOND, STREAM, request, server, set_up, statuses

SEEDS = [
    request("INVITE", extra=b"Content-Type: application/sdp\r\nRecord-Route: <sip:p;lr>\r\n", body=OFFER),
    request("REGISTER", extra=b"Expires: 60\r\nContact: *\r\n"),
    request("CANCEL"),
    request("ACK", to_tag="x"),
    request("UPDATE", to_tag="x", body=OFFER),
    request("SUBSCRIBE", extra=b"Event: presence\r\nRequire: a, b\r\n"),
]


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A request with pieces cut out, doubled or replaced."""
    data = bytearray(draw(st.sampled_from(SEEDS)))
    for _ in range(draw(st.integers(0, 6))):
        at = draw(st.integers(0, len(data)))
        end = min(len(data), at + draw(st.integers(0, 12)))
        data[at:end] = draw(
            st.one_of(st.binary(max_size=12), st.sampled_from([b'"', b"<", b"\r\n", b"\n ", b",", b"\x00"]))
        )
    return bytes(data)


@given(st.lists(st.tuples(st.one_of(mutated(), st.binary(max_size=200)), st.booleans()), max_size=12))
@settings(max_examples=300, deadline=None)
def test_never_raises_and_every_answer_is_sip(messages: list[tuple[bytes, bool]]) -> None:
    agent = server(max_invites=3, max_dialogs=3, max_answers=3)
    sends = []
    for n, (data, stream) in enumerate(messages):
        sends += agent.receive(data, STREAM if stream else CLIENT, n * SECOND)
    sends += agent.tick(LIFE_NS)
    for send in sends:
        head = read_head(send.data)
        assert 100 <= head.status < 700
        assert head.problem is None
        assert head.content_length == len(head.data) - head.body_offset


def test_a_flood_of_ringing_invites_stays_within_its_caps() -> None:
    agent = server(max_invites=10, max_dialogs=10, max_answers=10)
    for n in range(2000):
        agent.receive(request("INVITE", call=f"c{n}", uri="sip:ring@192.0.2.1"), CLIENT, n)
        agent.receive(request("OPTIONS", call=f"c{n}"), CLIENT, n)
    assert repr(agent) == "<UserAgentServer invites=10 dialogs=10 answers=10>"
    assert len(agent._invites._heap) <= 4 * 10 + 65
    assert sorted(statuses(agent.tick(61 * SECOND))) == [200] * 10


def test_a_forgotten_invite_is_answered_no_more() -> None:
    agent = server(max_invites=1)
    agent.receive(request("INVITE", call="a", branch="z9hG4bKa"), CLIENT, 0)
    agent.receive(request("INVITE", call="b"), CLIENT, 0)
    assert len(agent.tick(SECOND)) == 1
    assert statuses(agent.receive(request("CANCEL", call="a", branch="z9hG4bKa"), CLIENT, SECOND)) == [481]


def test_calls_come_and_go_without_a_trace() -> None:
    agent = server()
    for n in range(50):
        tag = set_up(agent, now_ns=n * SECOND, call=f"c{n}")
        assert statuses(agent.receive(request("BYE", call=f"c{n}", cseq=2, to_tag=tag), CLIENT, n * SECOND)) == [200]
    agent.tick(200 * SECOND)
    agent.receive(request("OPTIONS"), CLIENT, 200 * SECOND)
    assert repr(agent) == "<UserAgentServer invites=0 dialogs=0 answers=1>"


def test_values_with_line_breaks_are_not_repeated() -> None:
    data = request("REGISTER", extra=b"Path: <sip:p>\x00Evil: 1\r\nContact: <sip:a>\x00\r\n")
    answer = server().receive(data, CLIENT, 0)[0].data
    assert b"Evil" not in answer
    assert b"\x00" not in answer


def test_table_forgets_the_oldest_by_count_and_by_bytes() -> None:
    table: BoundedTable[str, int] = BoundedTable(3, 100)
    assert [table.put(key, value, 10) for value, key in enumerate("abc")] == [[], [], []]
    assert table.put("d", 3, 10) == [0]
    assert table.put("e", 4, 85) == [1, 2]
    assert table.put("f", 5, 500) == [3, 4]
    assert (len(table), table.get("f"), table.get("a"), table.evicted) == (1, 5, None, 5)
    assert table.put("f", 6, 1) == []
    assert table.pop("f") == 6
    assert table.pop("f") is None


@pytest.mark.parametrize(("entries", "size"), [(0, 1), (1, 0)])
def test_table_without_room_is_refused(entries: int, size: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        BoundedTable(entries, size)


# -- SDP (RFC 3264) ------------------------------------------------------------------------------------------------


def test_answer_keeps_the_offers_lines_and_timing() -> None:
    offer = (
        b"v=0\no=- 1 1 IN IP4 192.0.2.7\ns=-\nt=3 4\nm=audio 4000/2 RTP/AVP 96 8\na=rtpmap:96 opus/48000/2\n"
        b"a=fmtp:96 useinbandfec=1\na=sendrecv\nm=video 0 RTP/AVP 99\na=rtpmap:99 VP8/90000\nm=audio 5 RTP/SAVP 0\n"
    )
    assert make_answer(offer, b"192.0.2.1", 7, 2) == (
        b"v=0\r\no=- 7 2 IN IP4 192.0.2.1\r\ns=-\r\nc=IN IP4 192.0.2.1\r\nt=3 4\r\n"
        b"m=audio 9 RTP/AVP 96 8\r\na=rtpmap:96 opus/48000/2\r\na=fmtp:96 useinbandfec=1\r\na=inactive\r\n"
        b"m=video 0 RTP/AVP 99\r\nm=audio 0 RTP/SAVP 0\r\n"
    )


def test_offer_of_our_own_over_ipv6() -> None:
    offer = make_offer(b"2001:db8::1", 7, 1)
    assert b"c=IN IP6 2001:db8::1\r\n" in offer
    assert make_answer(offer, b"192.0.2.1", 1, 1) is not None


@pytest.mark.parametrize(
    "offer",
    [
        b"hello",
        b"v=0\r\nm=audio 0 RTP/AVP 0\r\n",
        b"v=0\r\nm=audio 9 RTP/SAVPF 0\r\n",
        b"v=0\r\nm=audio\r\n",
        b"v=0\r\ns=\x00\r\nm=audio 9 RTP/AVP 0\r\n",
        b"v=0\r\n" + b"m=audio 9 RTP/AVP 0\r\n" * (MAX_MEDIA + 1),
        b"v=0\r\n" + b"a=x\r\n" * (MAX_OFFER_BYTES // 5),
    ],
)
def test_what_cannot_be_answered(offer: bytes) -> None:
    assert make_answer(offer, b"192.0.2.1", 1, 1) is None


@given(st.binary(max_size=400))
def test_any_bytes_as_an_offer(offer: bytes) -> None:
    answer = make_answer(b"v=0\r\n" + offer, b"192.0.2.1", 1, 1)
    assert answer is None or answer.startswith(b"v=0\r\n")


@given(st.binary(max_size=400))
def test_any_bytes_as_header_fields(data: bytes) -> None:
    for found in read_fields(data, len(data)).values():
        assert all(b"\r" not in value and b"\n" not in value and b"\x00" not in value for value in found)


def test_fields_unfold() -> None:
    data = b"OPTIONS sip:a SIP/2.0\r\nExpires :\r\n 60\r\nCONTACT: <sip:a>,\n\t<sip:b>\r\nX: 1\r\n\r\nExpires: 2\r\n"
    fields = read_fields(data, data.index(b"\r\n\r\n") + 4)
    assert fields == {b"expires": [b"60"], b"contact": [b"<sip:a>, <sip:b>"]}


def test_a_key_over_64_bytes_is_refused_when_made() -> None:
    with pytest.raises(ValueError, match="key"):
        UserAgentServer(key=b"k" * 65)
