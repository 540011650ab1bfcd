"""Clients share the guard's streams to a server: none can put words into another's, and none can end it for the others.

RFC 3261 18.3, 20.14, 7.3.1. Each case here was carried out against Kamailio 5.6 behind a guard that did not do this yet.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sipguard.guard.flows import Flow, Send
from sipguard.wire.framing import MESSAGE, StreamFramer
from tests.guard.messages import lines_of, request, response_to, start_line, value, values
from tests.guard.rig import Rig
from tests.wire.naive import assert_sealed, naive_lengths
from tests.wire.test_seal import smuggling

MESSAGE_ = request("MESSAGE", transport="TCP", via_params=";rport", headers=["X-Last: 1"], body=b"ABCDEFGHIJ")
OWN = b"Content-Length: 10"


def changed(old: bytes, new: bytes, data: bytes = MESSAGE_) -> bytes:
    assert data.count(old) == 1
    return data.replace(old, new)


SMUGGLED = {
    "a folded Content-Length before ours": changed(OWN, b"X:\r\n Content-Length: 460\r\n" + OWN),
    "a folded Content-Length behind ours": changed(OWN, OWN + b"\r\nX: q\r\n Content-Length: 460"),
    "a folded l": changed(OWN, b"X: a\r\n l: 99\r\n" + OWN),
    "folded by a tab": changed(OWN, OWN + b"\r\nX:\r\n\tContent-Length: 99"),
    "a folded value": changed(OWN, b"Content-Length:\r\n 10"),
    "an empty fold behind the value": changed(OWN, OWN + b"\r\n "),
    "two that agree": changed(OWN, OWN + b"\r\nl: 10"),
    "white space before the colon": changed(OWN, b"Content-Length \t : 10"),
    "more zeros than a number holds": changed(OWN, b"Content-Length: " + b"0" * 40 + b"10"),
    "any case": changed(OWN, b"cOnTeNt-LeNgTh: 10"),
    "bare LFs": MESSAGE_.replace(b"\r\n", b"\n"),
    "one bare LF": changed(OWN, b"X: y\n" + OWN + b"\nZ: 1"),
    "it is nothing but what it should be": MESSAGE_,
}


@pytest.mark.parametrize("name", SMUGGLED)
def test_one_end_on_the_stream_to_the_server(name: str) -> None:
    """RFC 3261 20.14: right behind the start line, and the body goes on whole."""
    rig = Rig()
    data = SMUGGLED[name]
    assert [frame.data for frame in StreamFramer().feed(data, 1) if frame.kind == MESSAGE] == [data]
    out = rig.forwarded(data, rig.client(transport="tcp"))
    assert out.flow == rig.servers[1].flow
    assert_sealed(out.data)
    assert lines_of(out.data)[0] == OWN
    assert naive_lengths(out.data)[1] == b"ABCDEFGHIJ"
    # And the other lines are there.
    assert values(out.data, "X-Last") == [b"1"]


@pytest.mark.parametrize("name", SMUGGLED)
def test_a_datagram_goes_on_byte_for_byte(name: str) -> None:
    """Issue 2 §3: but for our lines at the top, the mark in the client's Via and Max-Forwards."""
    rig = Rig()
    data = SMUGGLED[name]
    out = rig.forwarded(data).data
    marked = data.replace(b";rport", b";rport=5062;received=198.51.100.7", 1).replace(
        b"Max-Forwards: 70", b"Max-Forwards: 69"
    )
    assert out.endswith(marked.partition(b"\n")[2])


def test_a_message_without_content_length_gets_one() -> None:
    """RFC 3261 20.14 demands one on a stream; without it Kamailio closes the connection."""
    rig = Rig()
    client = rig.client(transport="tcp")
    for length, extra in ((b"", b""), (b"", b"X:\r\n Content-Length: 460\r\n")):
        out = rig.forwarded(request("MESSAGE").replace(b"Content-Length: 0\r\n", extra + length), client)
        assert_sealed(out.data)
        assert lines_of(out.data)[0] == b"Content-Length: 0"


def test_two_clients_requests_on_one_stream_stay_two() -> None:
    """The attack itself: the folded length would have made the victim's REGISTER a part of the attacker's body."""
    rig = Rig()
    evil = rig.forwarded(SMUGGLED["a folded Content-Length before ours"], rig.client(port=6000, transport="tcp"))
    victim = rig.forwarded(
        request("REGISTER", headers=['Authorization: Digest username="victim"']), rig.client(port=6001, transport="tcp")
    )
    assert evil.flow == victim.flow
    for message in (evil.data, victim.data):
        assert_sealed(message)
    frames = StreamFramer().feed(evil.data + victim.data, 1)
    assert [frame.data for frame in frames] == [evil.data, victim.data]


# -- responses, and requests of servers --------------------------------------------------------------------------------


def asked_outward(rig: Rig, client: Flow, server: int = 1) -> Send:
    """A server's request on its way to that client, by the Route of an earlier one."""
    first = rig.forwarded(request(transport="TCP"), client)
    routes = [route.decode() for route in values(first.data, "Record-Route")]
    asked = request("BYE", to_tag="x", sent_by="10.0.0.10:5080", transport="TCP", branch="z9hG4bKs1", routes=routes)
    return rig.forwarded(changed(b"To:", b"X:\r\n l: 99\r\nTo:", asked), rig.server(server, stream=9))


def test_a_servers_request_is_sealed_toward_the_client() -> None:
    rig = Rig()
    client = rig.client(transport="tcp")
    out = asked_outward(rig, client)
    assert out.flow == client
    assert_sealed(out.data)


@pytest.mark.parametrize(
    "length", [b"Content-Length: 0\r\n", b"", b"l:\r\n 0\r\n", b"X:\r\n Content-Length: 9\r\nl: 0\r\n"]
)
def test_a_servers_response_is_sealed_by_both_ways(length: bytes) -> None:
    """Cut in one step where our Via stands first and another `Via:` follows, read whole where it does not."""
    rig = Rig()
    client = rig.client(transport="tcp")
    asked = rig.forwarded(MESSAGE_, client)
    response = response_to(asked.data).replace(b"Content-Length: 0\r\n", length)
    for answer in (response, response.replace(b"\r\nVia: ", b"\r\nVIA: ")):
        out = rig.sent(answer, asked.flow._replace(stream=9))
        assert out.flow == client
        assert_sealed(out.data)
        assert len(naive_lengths(out.data)[0]) == 1
        assert value(out.data, "Via").startswith(b"SIP/2.0/TCP 198.51.100.7:5062;branch=z9hG4bKa1")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"To:", b"nonsense\r\nTo:"),
        (b"To:", b": value\r\nTo:"),
        (b"From:", b"Form:"),
        (b"Call-ID:", b"Call:"),
        (b"<sip:bob@example.com>", b'"<sip:bob@example.com>'),
        (b"SIP/2.0 200 Whatever", b"SIP/2.0 200"),
    ],
)
def test_a_clients_response_that_would_end_the_stream_is_lost(old: bytes, new: bytes) -> None:
    """A response is never answered; it is counted."""
    rig = Rig()
    client = rig.client(transport="tcp")
    asked = asked_outward(rig, client)
    response = response_to(asked.data)
    assert rig.receive(changed(old, new, response), client) is None
    assert rig.counters.discards == {"response-malformed": 1}
    back = rig.sent(response, client)
    assert back.flow.listener is rig.inside_tcp
    assert_sealed(back.data)


# -- what a server closes a stream for ---------------------------------------------------------------------------------

POISON = [
    ("bad-header-line", changed(b"Call-ID", b"nonsense line\r\nCall-ID")),
    ("bad-header-line", changed(b"Call-ID", b": value\r\nCall-ID")),
    ("bad-address", changed(b"To: <sip:bob@example.com>", b'To: "')),
    ("bad-address", changed(b"From: <sip:alice@example.com>;tag=af1", b"From: <<<")),
    ("bad-via", changed(b"Max-Forwards", b"Via: SIP/2.0/XX ;;;\r\nMax-Forwards")),
    ("bad-via", changed(b"Max-Forwards", b'Via: SIP/2.0/TCP h;x="\r\nMax-Forwards')),
    ("bad-start-line", changed(b"MESSAGE sip:bob", b"MESSAGE sip:\tbob")),
]


@pytest.mark.parametrize(("reason", "data"), POISON)
def test_poison_is_answered_on_a_stream_and_passed_on_as_a_datagram(reason: str, data: bytes) -> None:
    """RFC 3261 16.3, 21.4.1; the client keeps its connection, since its framing is not lost."""
    rig = Rig()
    client = rig.client(transport="tcp")
    answer = rig.answered(data, client)
    assert answer.flow == client
    assert start_line(answer.data) == b"SIP/2.0 400 Bad Request"
    assert_sealed(answer.data)
    assert rig.counters.outcomes == {reason: 1}
    assert rig.counters.sent == {}
    assert rig.forwarded(MESSAGE_, client).flow == rig.servers[1].flow
    assert rig.forwarded(data).flow == rig.servers[0].flow


@settings(max_examples=300, deadline=None)
@given(smuggling(), st.sampled_from(["tcp", "udp"]), st.booleans())
def test_whatever_goes_out_on_a_stream_has_one_end(data: bytes, transport: str, inside: bool) -> None:
    """Requests, responses and the guard's own answers; from either side, from datagrams too."""
    rig = Rig(servers=(("tcp", "10.0.0.10", 5080, 1), ("udp", "10.0.0.10", 5080, 1)))
    client = rig.client(transport="tcp")
    sender = rig.server(0 if transport == "tcp" else 1) if inside else rig.client(transport=transport)
    asked = rig.forwarded(MESSAGE_, client) if inside else asked_outward(rig, client, 0)
    top = b"Via: " + values(asked.data, "Via")[0]
    for message in (data, data.replace(b"\nVia:", b"\n" + top + b"\r\nVia:", 1)):
        for frame in StreamFramer().feed(message, 1):
            action = rig.receive(frame.data, sender) if frame.kind == MESSAGE else None
            if action is not None and action.flow.listener.transport == "tcp":
                assert_sealed(action.data)
