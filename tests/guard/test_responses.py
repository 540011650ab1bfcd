"""Responses: from inside back to the client, from outside back to the server, and to nobody else (RFC 3261 16.7, DESIGN §3)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sipguard.guard.keys import Key, Keyring
from sipguard.wire.head import read_head
from tests.guard.messages import request, response_to, start_line, values
from tests.guard.rig import CLIENT6, SECRET, SERVER6, Rig, total


@pytest.mark.parametrize("status", [100, 180, 200, 302, 404, 486, 503, 600])
def test_a_servers_response_goes_to_the_flow_of_the_request_without_our_via(status: int) -> None:
    """RFC 3261 16.7 item 3, 16.11: popped and passed on, whatever its status."""
    rig = Rig()
    below = "SIP/2.0/UDP 203.0.113.9;branch=z9hG4bKb2"
    asked = rig.forwarded(request(vias=[below], via_params=";rport"))
    answer = response_to(asked.data, status, headers=["Contact: <sip:b@10.0.0.10:5080>", "Subject:  a,b ;x"])
    back = rig.sent(answer, rig.server())
    assert back.flow == rig.client()
    assert values(back.data, "Via") == [
        b"SIP/2.0/UDP 198.51.100.7:5062;branch=z9hG4bKa1;rport=5062;received=198.51.100.7",
        below.encode(),
    ]
    # Nothing else is touched.
    assert answer.replace(b"Via: " + values(answer, "Via")[0] + b"\r\n", b"") == back.data
    assert rig.counters.requests == {"INVITE": 1}
    assert (rig.counters.responses_inside, rig.counters.responses_outside) == (1, 0)


@pytest.mark.parametrize(
    ("host", "transport"), [("198.51.100.7", "udp"), ("198.51.100.7", "tcp"), (CLIENT6, "udp"), (CLIENT6, "tcp")]
)
def test_on_every_transport_and_family(host: str, transport: str) -> None:
    """Also where the families of both sides differ: an IPv6 client, an IPv4 server."""
    rig = Rig()
    client = rig.client(host, transport=transport)
    asked = rig.forwarded(request(transport=transport.upper()), client)
    assert rig.sent(response_to(asked.data), asked.flow).flow == client


def test_a_wildcard_binds_response_leaves_from_the_address_that_was_asked() -> None:
    """Issue 2 §4: the flow carries the local address."""
    rig = Rig(outside_host="0.0.0.0")
    client = rig.client(local="192.0.2.77")
    asked = rig.forwarded(request(), client)
    assert rig.sent(response_to(asked.data), asked.flow).flow == client
    refused = rig.answered(request(max_forwards=0), client)
    assert refused.flow == client


def test_two_vias_on_one_line_are_cut_apart() -> None:
    """RFC 3261 7.3.1: a server may answer with one Via line."""
    rig = Rig()
    asked = rig.forwarded(request())
    vias = values(asked.data, "Via")
    lines = response_to(asked.data).replace(b"\r\nVia: " + vias[1], b", " + vias[1])
    back = rig.sent(lines, rig.server())
    assert back.flow == rig.client()
    assert values(back.data, "Via") == [vias[1]]


@pytest.mark.parametrize("spelling", [b"v: ", b"VIA: ", b"via:", b"Via : "])
@pytest.mark.parametrize("extra", [b"", b";received=10.0.0.1", b";rport=5070;received=10.0.0.1"])
def test_our_via_is_known_in_any_spelling(spelling: bytes, extra: bytes) -> None:
    """RFC 3261 7.3.1, 7.3.3; a server behind a NAT of its own adds received to our Via."""
    rig = Rig()
    asked = rig.forwarded(request())
    ours = values(asked.data, "Via")[0]
    answer = response_to(asked.data).replace(b"Via: " + ours, spelling + ours + extra)
    assert rig.sent(answer, rig.server()).flow == rig.client()


def test_a_bare_lf_response_goes_back_too() -> None:
    rig = Rig()
    asked = rig.forwarded(request())
    assert rig.sent(response_to(asked.data).replace(b"\r\n", b"\n"), rig.server()).flow == rig.client()


def test_a_server_may_answer_from_another_address() -> None:
    """DESIGN §3: inside is a socket, never a source address; the signature in our Via is the proof."""
    rig = Rig()
    asked = rig.forwarded(request())
    assert rig.sent(response_to(asked.data), rig.server(port=9999)).flow == rig.client()


def test_responses_reach_their_flow_after_a_restart() -> None:
    """DESIGN §3: nothing is remembered, all is in our Via."""
    rig = Rig()
    asked = rig.forwarded(request())
    back = rig.restarted(Keyring(Key(SECRET))).receive(response_to(asked.data), rig.server(), 0)
    assert back is not None
    assert back.flow == rig.client()


def test_maddr_received_and_rport_in_our_via_are_ignored() -> None:
    """DESIGN §3, a documented deviation from RFC 3261 18.2.2: maddr would make the guard a reflector."""
    rig = Rig()
    for params in (b";maddr=203.0.113.66", b";received=203.0.113.66;rport=53", b";maddr=224.0.1.75;ttl=16"):
        asked = rig.forwarded(request(via_params=params.decode()))
        ours = values(asked.data, "Via")[0]
        assert rig.sent(response_to(asked.data), rig.server()).flow == rig.client()
        answer = response_to(asked.data).replace(ours, ours + params)
        assert rig.sent(answer, rig.server()).flow == rig.client()
        # The guard's own answers as well.
        assert rig.answered(request(via_params=params.decode(), max_forwards=0)).flow == rig.client()


# -- to nobody ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", ["inside", "outside"])
@pytest.mark.parametrize(
    ("vias", "reason"),
    [
        ([b"SIP/2.0/UDP 198.51.100.7:5062;branch=z9hG4bKa1"], "response-no-via"),
        ([b"SIP/2.0/UDP 198.51.100.7:5062;branch=z9hG4bKa1", b"SIP/2.0/UDP h;branch=z9hG4bKx"], "response-not-ours"),
        (
            [b"SIP/2.0/UDP 10.0.0.1:5070;branch=z9hG4bKabc;sg=AAAA", b"SIP/2.0/UDP h;branch=z9hG4bKx"],
            "response-not-ours",
        ),
        ([b"SIP/2.0/UDP 10.0.0.1:5070;branch=z9hG4bKabc;sg=", b"SIP/2.0/UDP h;branch=z9hG4bKx"], "response-not-ours"),
        ([b"SIP/2.0/UDP 10.0.0.1:5070;branch=abc;sg=AAAA", b"SIP/2.0/UDP h;branch=z9hG4bKx"], "response-not-ours"),
        ([], "response-malformed"),
        ([b"SIP/2.0/UDP"], "response-malformed"),
    ],
)
def test_a_response_without_a_via_of_ours_is_lost_and_counted(side: str, vias: list[bytes], reason: str) -> None:
    """RFC 3261 16.7 item 3 and 18.1.2: nothing of it is passed on, nothing is answered."""
    rig = Rig()
    lines = [b"SIP/2.0 200 OK", *(b"Via: " + via for via in vias), b"CSeq: 1 INVITE", b"Content-Length: 0", b"", b""]
    flow = rig.server() if side == "inside" else rig.client()
    assert rig.receive(b"\r\n".join(lines), flow) is None
    assert rig.counters.discards == {reason: 1}
    assert total(rig.counters.requests) == 0


def test_a_response_that_ends_at_the_guard_is_lost() -> None:
    """Only our Via: the request was never a client's."""
    rig = Rig()
    asked = rig.forwarded(request())
    below = values(asked.data, "Via")[1]
    alone = response_to(asked.data).replace(b"Via: " + below + b"\r\n", b"")
    assert rig.receive(alone, rig.server()) is None
    assert rig.counters.discards == {"response-no-via": 1}


def test_a_clients_response_goes_to_the_server_that_asked() -> None:
    """The other direction: a request from inside, its response from outside."""
    rig = Rig(servers=(("udp", "10.0.0.10", 5080, 1), ("udp", "10.0.0.11", 5080, 1), ("udp", SERVER6, 5080, 1)))
    for number in range(3):
        uri = f"sip:alice@[{CLIENT6}]" if number == 2 else "sip:alice@198.51.100.7:5062"
        asked = rig.forwarded(request("MESSAGE", uri, sent_by="server.example.com"), rig.server(number))
        back = rig.sent(response_to(asked.data), asked.flow)
        assert back.flow == rig.server(number)
        assert values(back.data, "Via") == [b"SIP/2.0/UDP server.example.com;branch=z9hG4bKa1"]
        assert start_line(back.data) == b"SIP/2.0 200 Whatever"
    assert (rig.counters.responses_inside, rig.counters.responses_outside) == (0, 3)


def test_responses_never_count_and_pass_in_every_state() -> None:
    """SPEC M2, V1: the answers to what was let in must get out, also under a silent drop."""
    rig = Rig()
    asked = rig.forwarded(request("OPTIONS"))
    outward = rig.forwarded(request("MESSAGE", "sip:alice@198.51.100.7:5062"), rig.server())
    rig.into(type(rig.controller.state).CRITICAL)
    before = (dict(rig.counters.requests), rig.controller.allowed)
    for _ in range(200):
        assert rig.sent(response_to(asked.data), rig.server()).flow == rig.client()
        assert rig.sent(response_to(outward.data), rig.client()).flow == rig.server()
    assert (dict(rig.counters.requests), rig.controller.allowed) == before
    rig.tick()
    assert rig.controller.rps == 0


# -- the short way -----------------------------------------------------------------------------------------------------

PIECES = [
    b"",
    b"\r",
    b"\n",
    b"\r\n",
    b" ",
    b"\t",
    b",",
    b";",
    b":",
    b"<",
    b'"',
    b"Via: ",
    b"v: x",
    b"\r\n ",
    b";sg=",
    b"z9hG4bK",
    b"\xff",
]


@settings(max_examples=1500, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 700), st.integers(0, 9), st.sampled_from(PIECES)), max_size=3),
    st.booleans(),
)
def test_the_short_way_of_a_response_gives_what_the_long_way_gives(
    cuts: list[tuple[int, int, bytes]], body: bool
) -> None:
    """`wire.front` cuts our Via off without reading the rest. Where the long way passes a response on, the bytes are the same;
    but for octets before the start line and after the body, which a server does not send."""
    short, long = Rig(), Rig()
    asked = short.forwarded(request(vias=["SIP/2.0/UDP h2;branch=z9hG4bKb2"]))
    data = response_to(asked.data, headers=["Contact: <sip:b@c>", "Subject: a,b"])
    if body:
        data = data.replace(b"Content-Length: 0\r\n\r\n", b"Content-Length: 5\r\n\r\n12345")
    for at, length, piece in cuts:
        cut = at % len(data)
        data = data[:cut] + piece + data[cut + length :]
    # A CRLF before the start line is passed over (RFC 3261 7.5), and by the long way alone.
    one, other = short.receive(data, short.server()), long.receive(b"\r\n" + data, long.server())
    head = read_head(data)
    if other is not None and len(head.data) - head.body_offset == (head.content_length or 0):
        assert one is not None
        assert one.data.lstrip(b"\r\n") == other.data
    if one is not None:
        assert one.flow == short.client()
