"""The other methods, dialogs and malformed requests (RFC 3261 8.2, 10.3, 11.2, 12.2.2, 15.1.2; RFC 3428, 3903, 6665)."""

from __future__ import annotations

import pytest

from sipguard.uas.peer import Peer
from sipguard.uas.request import ALLOW
from tests.uas.messages import CLIENT, OFFER, SECOND, STREAM, body, only, request, server, set_up, statuses, values

ALLOWED = ALLOW.removeprefix(b"Allow: ").strip()


@pytest.mark.parametrize(
    "method",
    ["OPTIONS", "REGISTER", "MESSAGE", "SUBSCRIBE", "NOTIFY", "PUBLISH", "INFO", "UPDATE", "REFER", "PRACK"],
)
def test_answered_with_200_outside_of_a_dialog(method: str) -> None:
    answer = only(server().receive(request(method), CLIENT, 0))
    assert answer.status == 200
    assert answer.to_tag
    assert answer.content_length == 0


def test_an_unknown_method_is_501_with_allow() -> None:
    answer = only(server().receive(request("FROBNICATE"), CLIENT, 0))
    assert (answer.status, values(answer, "Allow")) == (501, [ALLOWED])


def test_methods_are_case_sensitive() -> None:
    # RFC 3261 7.1, SPEC V1.
    assert only(server().receive(request("Options"), CLIENT, 0)).status == 501


def test_options_tells_what_11_2_asks() -> None:
    answer = only(server().receive(request("OPTIONS"), STREAM, 0))
    assert values(answer, "Allow") == [ALLOWED]
    assert values(answer, "Accept") == [b"application/sdp"]
    assert values(answer, "Supported") == [b"path"]
    assert values(answer, "Contact") == [b"<sip:sipguard@192.0.2.1:5081;transport=tcp>"]


def test_register_echoes_its_contacts_with_expires() -> None:
    # RFC 3261 10.3 step 8: own expires parameter before the Expires header; a removed binding is not listed.
    extra = (
        b'Contact: "A, a" <sip:a@192.0.2.8;x=1>;q=0.5;expires=60, sip:b@192.0.2.8;expires=0\r\n'
        b"m: <sip:c@192.0.2.8>;expires=99999999\r\nExpires: 120\r\n"
    )
    answer = only(server().receive(request("REGISTER", extra=extra), CLIENT, 0))
    assert values(answer, "Contact") == [
        b"<sip:alice@192.0.2.7:5070>;expires=120",
        b'"A, a" <sip:a@192.0.2.8;x=1>;q=0.5;expires=60',
        b"<sip:c@192.0.2.8>;expires=3600",
    ]


def test_register_repeats_path() -> None:
    # RFC 3327 5.3.
    extra = b"Path: <sip:p1;lr>\r\nRequire: path\r\n"
    answer = only(server().receive(request("REGISTER", extra=extra), CLIENT, 0))
    assert (answer.status, values(answer, "Path")) == (200, [b"<sip:p1;lr>"])


@pytest.mark.parametrize(("asked", "granted"), [(b"60", b"60"), (b"0", b"0"), (b"99999", b"3600"), (b"soon", b"3600")])
def test_subscribe_grants_no_more_than_asked(asked: bytes, granted: bytes) -> None:
    # RFC 6665 4.2.1.1.
    data = request("SUBSCRIBE", extra=b"Event: presence\r\nExpires: %b\r\nRecord-Route: <sip:p;lr>\r\n" % asked)
    answer = only(server().receive(data, CLIENT, 0))
    assert values(answer, "Expires") == [granted]
    assert answer.record_routes == [b"<sip:p;lr>"]
    assert values(answer, "Contact") != []


def test_subscribe_makes_a_dialog() -> None:
    agent = server()
    tag = (only(agent.receive(request("SUBSCRIBE"), CLIENT, 0)).to_tag or b"").decode()
    assert statuses(agent.receive(request("SUBSCRIBE", cseq=2, to_tag=tag), CLIENT, 1)) == [200]
    assert statuses(agent.receive(request("SUBSCRIBE", cseq=3, to_tag="other"), CLIENT, 2)) == [481]


def test_publish_gives_an_etag() -> None:
    # RFC 3903 6: SIP-ETag and Expires.
    answer = only(server().receive(request("PUBLISH", extra=b"Expires: 30\r\n"), CLIENT, 0))
    assert len(values(answer, "SIP-ETag")) == 1
    assert values(answer, "Expires") == [b"30"]


def test_message_has_no_contact() -> None:
    # RFC 3428 7.
    assert values(only(server().receive(request("MESSAGE", body=b"hi"), CLIENT, 0)), "Contact") == []


def test_bye_ends_the_dialog_and_its_copy_gets_the_same_answer() -> None:
    # RFC 3261 15.1.2, 17.2.2.
    agent = server()
    tag = set_up(agent)
    bye = request("BYE", cseq=2, to_tag=tag)
    first = agent.receive(bye, CLIENT, SECOND)
    assert statuses(first) == [200]
    assert agent.receive(bye, CLIENT, 2 * SECOND) == first
    assert statuses(agent.receive(request("BYE", cseq=3, to_tag=tag), CLIENT, 3 * SECOND)) == [481]


def test_an_answer_is_forgotten_after_timer_j() -> None:
    agent = server()
    tag = set_up(agent)
    bye = request("BYE", cseq=2, to_tag=tag)
    agent.receive(bye, CLIENT, SECOND)
    assert statuses(agent.receive(bye, CLIENT, 34 * SECOND)) == [481]


@pytest.mark.parametrize("method", ["BYE", "INFO", "NOTIFY", "PRACK", "REFER", "SUBSCRIBE", "UPDATE"])
def test_an_unknown_dialog_is_481(method: str) -> None:
    # RFC 3261 12.2.2.
    assert only(server().receive(request(method, to_tag="nobody"), CLIENT, 0)).status == 481


def test_bye_without_a_dialog_is_481() -> None:
    assert only(server().receive(request("BYE"), CLIENT, 0)).status == 481


def test_a_dialog_needs_both_tags() -> None:
    agent = server()
    tag = set_up(agent)
    assert only(agent.receive(request("INFO", cseq=2, to_tag=tag, from_tag="mallory"), CLIENT, 0)).status == 481
    assert only(agent.receive(request("INFO", cseq=3, to_tag=tag), CLIENT, 0)).status == 200


def test_a_lower_cseq_in_a_dialog_is_500() -> None:
    # RFC 3261 12.2.2.
    agent = server()
    tag = set_up(agent)
    assert only(agent.receive(request("INFO", cseq=9, to_tag=tag), CLIENT, 0)).status == 200
    assert only(agent.receive(request("INFO", cseq=8, to_tag=tag), CLIENT, 0)).status == 500


def test_update_answers_an_offer() -> None:
    # RFC 3311 5.2.
    agent = server()
    tag = set_up(agent)
    update = request("UPDATE", cseq=2, to_tag=tag, extra=b"Content-Type: application/sdp\r\n", body=OFFER)
    answer = only(agent.receive(update, CLIENT, 0))
    assert answer.status == 200
    assert b"m=audio 9 RTP/AVP 8 101\r\n" in body(answer)


# -- where answers go ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("via", "port", "top"),
    [
        ("SIP/2.0/UDP 192.0.2.7:5070;branch=z9hG4bKa", 5070, b"SIP/2.0/UDP 192.0.2.7:5070;branch=z9hG4bKa"),
        ("SIP/2.0/UDP 192.0.2.7;branch=z9hG4bKa", 5060, b"SIP/2.0/UDP 192.0.2.7;branch=z9hG4bKa"),
        (
            "SIP/2.0/UDP pc.example.com:9;branch=z9hG4bKa;maddr=192.0.2.66",
            9,
            b"SIP/2.0/UDP pc.example.com:9;branch=z9hG4bKa;maddr=192.0.2.66;received=192.0.2.7",
        ),
        (
            "SIP/2.0/UDP 192.0.2.7:9;rport;branch=z9hG4bKa",
            4321,
            b"SIP/2.0/UDP 192.0.2.7:9;rport=4321;branch=z9hG4bKa;received=192.0.2.7",
        ),
    ],
)
def test_answers_go_to_the_source_address(via: str, port: int, top: bytes) -> None:
    # RFC 3261 18.2.1, 18.2.2 (maddr not obeyed), RFC 3581 4.
    send = server().receive(request("OPTIONS", via=via), Peer("udp", "192.0.2.7", 4321), 0)[0]
    assert send.destination == Peer("udp", "192.0.2.7", port)
    assert only([send]).vias == [top]


def test_answers_on_a_stream_stay_on_it() -> None:
    send = server().receive(request("OPTIONS", via="SIP/2.0/TCP 10.0.0.1:9;branch=z9hG4bKa"), STREAM, 0)[0]
    assert send.destination == STREAM


def test_an_ipv6_source_is_not_taken_for_another_host() -> None:
    peer = Peer("udp", "2001:db8::7", 5070)
    same = only(server().receive(request("OPTIONS", via="SIP/2.0/UDP [2001:db8::7]:5070;branch=z9hG4bKa"), peer, 0))
    assert same.vias == [b"SIP/2.0/UDP [2001:db8::7]:5070;branch=z9hG4bKa"]
    asked = only(server().receive(request("OPTIONS", via="SIP/2.0/UDP [2001:db8::7]:9;rport;branch=z9hG4bKa"), peer, 0))
    assert asked.vias == [b"SIP/2.0/UDP [2001:db8::7]:9;rport=5070;branch=z9hG4bKa;received=2001:db8::7"]


# -- malformed -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (request("OPTIONS", cseq_method="INVITE"), 400),
        (request("INVITE", extra=b"Max-Forwards: 300\r\n"), 400),
        (request("OPTIONS").replace(b"Content-Length: 0", b"Content-Length: 10"), 400),
        (request("OPTIONS").replace(b"SIP/2.0\r\n", b"SIP/7.0\r\n", 1), 505),
    ],
)
def test_malformed_but_answerable(data: bytes, status: int) -> None:
    assert statuses(server().receive(data, CLIENT, 0)) == [status]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\r\n\r\n",
        b"SIP/2.0 200 OK\r\nVia: SIP/2.0/UDP 192.0.2.7;branch=z9hG4bKa\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x00\x01\x00\x00\x21\x12\xa4\x42",
        b"OPTIONS sip:a SIP/2.0\r\n\r\n",
        request("ACK"),
        request("ACK", cseq_method="INVITE"),
    ],
)
def test_not_answerable_is_not_answered(data: bytes) -> None:
    assert server().receive(data, CLIENT, 0) == []
