"""INVITE: provisional answers, the 200 and its repetition, ACK, CANCEL, refusals (RFC 3261 9.2, 12.1.1, 13.3.1, 14.2, 17.2.1)."""

from __future__ import annotations

import pytest

from sipguard.uas.agent import UserAgentServer
from sipguard.wire.head import read_head
from tests.uas.messages import (
    CLIENT,
    OFFER,
    SECOND,
    STREAM,
    body,
    heads,
    only,
    request,
    server,
    set_up,
    statuses,
    values,
)

T1 = SECOND // 2


def run_timers(agent: UserAgentServer, until_ns: int) -> list[tuple[int, int]]:
    """(time ns, status) of all that is sent until then, each at its own deadline."""
    sent = []
    while (deadline_ns := agent.next_deadline()) is not None and deadline_ns <= until_ns:
        sent += [(deadline_ns, status) for status in statuses(agent.tick(deadline_ns))]
    return sent


def test_100_then_180_then_200_after_ringing() -> None:
    agent = server(ring_ns=SECOND)
    trying, ringing = heads(agent.receive(request("INVITE", body=OFFER), CLIENT, 0))
    assert (trying.status, ringing.status) == (100, 180)
    assert trying.to_tag is None
    assert ringing.to_tag
    assert agent.next_deadline() == SECOND
    assert agent.tick(SECOND - 1) == []
    accepted = only(agent.tick(SECOND))
    assert accepted.status == 200
    assert accepted.to_tag == ringing.to_tag
    assert values(accepted, "Contact") == [b"<sip:sipguard@192.0.2.1:5080>"]
    assert values(accepted, "Content-Type") == [b"application/sdp"]
    assert accepted.content_length == len(body(accepted)) > 0


def test_answers_echo_what_rfc_3261_8_2_6_2_names() -> None:
    data = request(
        "INVITE", via="SIP/2.0/UDP 192.0.2.9:5060;branch=z9hG4bKx;rport, SIP/2.0/TCP 10.0.0.1;branch=z9hG4bKy"
    )
    for head in heads(server().receive(data, CLIENT, 0)):
        asked = read_head(data)
        assert head.vias[0] == b"SIP/2.0/UDP 192.0.2.9:5060;branch=z9hG4bKx;rport=5070;received=192.0.2.7"
        assert head.vias[1:] == asked.vias[1:]
        assert (head.from_, head.call_id, head.cseq) == (asked.from_, asked.call_id, asked.cseq)


def test_timestamp_is_copied_into_the_100_only() -> None:
    # RFC 3261 8.2.6.1.
    trying, ringing = heads(server().receive(request("INVITE", extra=b"Timestamp: 54.2\r\n"), CLIENT, 0))
    assert values(trying, "Timestamp") == [b"54.2"]
    assert values(ringing, "Timestamp") == []


def test_record_route_is_copied_whole_and_in_order() -> None:
    # RFC 3261 12.1.1: all values, their URI and header parameters, in order.
    routes = b'Record-Route: "a, b" <sip:p1.example.com;lr;x=1>;y=2, <sip:p2.example.com;lr>\r\nRecord-Route: <sip:p3;lr>\r\n'
    agent = server(ring_ns=0)
    ringing = heads(agent.receive(request("INVITE", extra=routes), CLIENT, 0))[1]
    accepted = only(agent.tick(0))
    wanted = [b'"a, b" <sip:p1.example.com;lr;x=1>;y=2', b"<sip:p2.example.com;lr>", b"<sip:p3;lr>"]
    assert ringing.record_routes == wanted
    assert accepted.record_routes == wanted


@pytest.mark.parametrize(
    ("uri", "routes", "contact"),
    [
        ("sips:bob@192.0.2.1", b"", b"<sips:sipguard@192.0.2.1:5080>"),
        ("sip:bob@192.0.2.1", b"Record-Route: <sips:p1;lr>, <sip:p2;lr>\r\n", b"<sips:sipguard@192.0.2.1:5080>"),
        ("sip:bob@192.0.2.1", b"Record-Route: <sip:p1;lr>, <sips:p2;lr>\r\n", b"<sip:sipguard@192.0.2.1:5080>"),
    ],
)
def test_contact_is_sips_where_12_1_1_says_so(uri: str, routes: bytes, contact: bytes) -> None:
    ringing = heads(server().receive(request("INVITE", uri=uri, extra=routes), CLIENT, 0))[1]
    assert values(ringing, "Contact") == [contact]


def test_200_is_repeated_from_t1_doubling_to_t2_until_64_t1() -> None:
    # RFC 3261 13.3.1.4; times in units of T1 = 0.5 s after the first 200.
    agent = server(ring_ns=0)
    agent.receive(request("INVITE"), CLIENT, 0)
    sent = run_timers(agent, 100 * SECOND)
    assert [status for _, status in sent] == [200] * 11
    assert [at_ns / T1 for at_ns, _ in sent] == [0, 1, 3, 7, 15, 23, 31, 39, 47, 55, 63]
    assert agent.abandoned == 1
    assert agent.next_deadline() is None


def test_200_is_repeated_over_streams_too() -> None:
    # RFC 3261 13.3.1.4: "independent of whatever transport protocols are used".
    agent = server(ring_ns=0)
    agent.receive(request("INVITE"), STREAM, 0)
    assert len(run_timers(agent, 2 * SECOND)) == 3


def test_ack_ends_the_repetition() -> None:
    agent = server()
    set_up(agent)
    assert run_timers(agent, 100 * SECOND) == []
    assert agent.abandoned == 0


def test_ack_with_another_cseq_does_not() -> None:
    agent = server(ring_ns=0)
    agent.receive(request("INVITE", cseq=4), CLIENT, 0)
    tag = (only(agent.tick(0)).to_tag or b"").decode()
    agent.receive(request("ACK", cseq=3, to_tag=tag), CLIENT, 0)
    assert run_timers(agent, SECOND) == [(T1, 200)]
    agent.receive(request("ACK", cseq=4, to_tag=tag), CLIENT, SECOND)
    assert run_timers(agent, 100 * SECOND) == []


def test_a_repeated_invite_gets_the_last_answer_again() -> None:
    agent = server(ring_ns=SECOND)
    invite = request("INVITE")
    ringing = agent.receive(invite, CLIENT, 0)[1]
    assert agent.receive(invite, CLIENT, T1) == [ringing]
    accepted = agent.tick(SECOND)
    assert agent.receive(invite, CLIENT, SECOND) == accepted
    assert agent.repeated == 2


def test_cancel_before_the_200() -> None:
    # RFC 3261 9.2: 200 to CANCEL with the INVITE's To tag, 487 to INVITE.
    agent = server(ring_ns=60 * SECOND)
    ringing = heads(agent.receive(request("INVITE", branch="z9hG4bKc"), CLIENT, 0))[1]
    cancelled, terminated = heads(agent.receive(request("CANCEL", branch="z9hG4bKc"), CLIENT, SECOND))
    assert (cancelled.status, cancelled.cseq) == (200, b"1 CANCEL")
    assert (terminated.status, terminated.cseq) == (487, b"1 INVITE")
    assert cancelled.to_tag == terminated.to_tag == ringing.to_tag
    assert terminated.vias == ringing.vias


def test_487_is_repeated_over_udp_until_its_ack() -> None:
    # RFC 3261 17.2.1: timers G and H; then timer I absorbs further ACKs.
    agent = server(ring_ns=60 * SECOND)
    agent.receive(request("INVITE", branch="z9hG4bKc"), CLIENT, 0)
    terminated = heads(agent.receive(request("CANCEL", branch="z9hG4bKc"), CLIENT, 0))[1]
    assert run_timers(agent, 2 * SECOND) == [(T1, 487), (3 * T1, 487)]
    tag = (terminated.to_tag or b"").decode()
    assert agent.receive(request("ACK", branch="z9hG4bKc", to_tag=tag), CLIENT, 2 * SECOND) == []
    assert run_timers(agent, 200 * SECOND) == []


def test_487_is_not_repeated_over_streams() -> None:
    agent = server(ring_ns=60 * SECOND)
    agent.receive(request("INVITE", branch="z9hG4bKc"), STREAM, 0)
    agent.receive(request("CANCEL", branch="z9hG4bKc"), STREAM, 0)
    assert run_timers(agent, 200 * SECOND) == []
    assert agent.next_deadline() is None


def test_cancel_after_the_200_changes_nothing() -> None:
    agent = server(ring_ns=0)
    agent.receive(request("INVITE", branch="z9hG4bKc"), CLIENT, 0)
    agent.tick(0)
    assert statuses(agent.receive(request("CANCEL", branch="z9hG4bKc"), CLIENT, 1)) == [200]
    assert run_timers(agent, T1) == [(T1, 200)]


def test_cancel_of_nothing_is_481() -> None:
    assert only(server().receive(request("CANCEL"), CLIENT, 0)).status == 481


def test_cancel_matches_an_rfc_2543_invite() -> None:
    # RFC 3261 17.2.3: without the magic cookie the request itself is the identity.
    agent = server(ring_ns=60 * SECOND)
    agent.receive(request("INVITE", branch="1"), CLIENT, 0)
    assert statuses(agent.receive(request("CANCEL", branch="1"), CLIENT, 0)) == [200, 487]


def test_the_user_ring_rings_for_a_minute() -> None:
    agent = server()
    agent.receive(request("INVITE", uri="sip:ring@192.0.2.1"), CLIENT, 0)
    assert agent.next_deadline() == 60 * SECOND


def test_reinvite_is_answered_at_once_and_its_session_moves_on() -> None:
    agent = server()
    tag = set_up(agent)
    again = only(agent.receive(request("INVITE", cseq=2, to_tag=tag, body=OFFER), CLIENT, 2 * SECOND))
    assert (again.status, again.to_tag) == (200, tag.encode())
    assert b" 2 IN IP4 192.0.2.1\r\n" in body(again)  # RFC 3264 8: the o= version is one higher
    agent.receive(request("ACK", cseq=2, to_tag=tag), CLIENT, 2 * SECOND)
    assert run_timers(agent, 100 * SECOND) == []


def test_reinvite_while_the_first_rings_is_500_with_retry_after() -> None:
    # RFC 3261 14.2.
    agent = server(ring_ns=60 * SECOND)
    ringing = heads(agent.receive(request("INVITE"), CLIENT, 0))[1]
    tag = (ringing.to_tag or b"").decode()
    refused = only(agent.receive(request("INVITE", cseq=2, to_tag=tag), CLIENT, 1))
    assert refused.status == 500
    assert 0 <= int(values(refused, "Retry-After")[0]) <= 10


def test_reinvite_in_an_unknown_dialog_is_481() -> None:
    assert only(server().receive(request("INVITE", to_tag="nobody"), CLIENT, 0)).status == 481


@pytest.mark.parametrize(
    ("extra", "content", "status", "header"),
    [
        (b"Content-Type: text/plain\r\n", b"hello", 415, ("Accept", b"application/sdp")),
        (b"Content-Type: application/sdp\r\n", b"hello", 488, None),
        (b"Require: path, 100rel\r\nRequire: foo\r\n", b"", 420, ("Unsupported", b"100rel, foo")),
    ],
)
def test_an_invite_that_cannot_be_taken(
    extra: bytes, content: bytes, status: int, header: tuple[str, bytes] | None
) -> None:
    # RFC 3261 8.2.2.3, 8.2.3, 13.3.1.3; the refusal is a final of the INVITE transaction: repeated, then acknowledged.
    agent = server()
    refused = only(agent.receive(request("INVITE", branch="z9hG4bKr", extra=extra, body=content), CLIENT, 0))
    assert refused.status == status
    if header is not None:
        assert values(refused, header[0]) == [header[1]]
    assert run_timers(agent, T1) == [(T1, status)]
    agent.receive(request("ACK", branch="z9hG4bKr", to_tag=(refused.to_tag or b"").decode()), CLIENT, T1)
    assert run_timers(agent, 100 * SECOND) == []


def test_bye_while_ringing_ends_the_invite_too() -> None:
    # RFC 3261 15.1.2.
    agent = server(ring_ns=60 * SECOND)
    ringing = heads(agent.receive(request("INVITE"), CLIENT, 0))[1]
    tag = (ringing.to_tag or b"").decode()
    assert statuses(agent.receive(request("BYE", cseq=2, to_tag=tag), CLIENT, 1)) == [200, 487]


def test_tags_differ_by_call_and_by_key() -> None:
    def tag(agent: UserAgentServer, call: str) -> bytes | None:
        return heads(agent.receive(request("INVITE", call=call), CLIENT, 0))[1].to_tag

    tags = {tag(server(), "a"), tag(server(), "b"), tag(UserAgentServer(key=b"another"), "a")}
    assert len(tags) == 3
