"""A request on its way in: what the guard changes, and that it changes nothing else (RFC 3261 16.6, RFC 3581, DESIGN §3)."""

from __future__ import annotations

import pytest

from sipguard.guard.keys import Key, Keyring
from tests.guard.messages import (
    ack_of,
    body_of,
    cancel_of,
    lines_of,
    param,
    request,
    response_to,
    start_line,
    value,
    values,
)
from tests.guard.rig import CLIENT6, OTHER_SECRET, SECRET, SERVER6, Rig


def branch_of(data: bytes) -> bytes:
    """The branch of the top Via."""
    branch = param(values(data, "Via")[0], "branch")
    assert branch is not None
    return branch


# -- what stays and what is added --------------------------------------------------------------------------------------


def test_all_but_the_hop_fields_passes_byte_for_byte() -> None:
    """DESIGN §3 and issue 2 §3: a valid message passes through with every byte that we need not change unchanged."""
    rig = Rig()
    odd = [
        "Subject:   two  spaces, and a trailing one ",
        "s: short",
        'X-Odd :\tvalue;a="b,c"',
        "Contact: <sip:a@198.51.100.7:5062>",
    ]
    asked = request(headers=odd, body=b"v=0\r\no=\x00\xff\r\n\r\nnot a header: 1\r\n")
    sent = rig.forwarded(asked)

    assert sent.flow == rig.servers[0].flow
    assert start_line(sent.data) == start_line(asked)
    assert body_of(sent.data) == body_of(asked)
    ours = [line for line in lines_of(sent.data) if line not in lines_of(asked)]
    assert [line.split(b":")[0] for line in ours] == [
        b"Via",
        b"Record-Route",
        b"Record-Route",
        b"X-Guard-Source",
        b"Max-Forwards",
    ]
    gone = [line for line in lines_of(asked) if line not in lines_of(sent.data)]
    assert gone == [b"Max-Forwards: 70"]
    kept = [line for line in lines_of(asked) if line not in gone]
    assert [line for line in lines_of(sent.data) if line not in ours] == kept


def test_our_via_stands_on_top_with_the_inside_address() -> None:
    """RFC 3261 16.6 item 8; DESIGN §3: own Via with the inside address."""
    sent = Rig().forwarded(request(vias=["SIP/2.0/UDP 203.0.113.9;branch=z9hG4bKb2"]))
    vias = values(sent.data, "Via")
    assert len(vias) == 3
    assert vias[0].startswith(b"SIP/2.0/UDP 10.0.0.1:5070;branch=z9hG4bK")
    assert vias[1:] == [b"SIP/2.0/UDP 198.51.100.7:5062;branch=z9hG4bKa1", b"SIP/2.0/UDP 203.0.113.9;branch=z9hG4bKb2"]


# -- the branch --------------------------------------------------------------------------------------------------------


def test_retransmission_cancel_and_ack_carry_the_branch_of_the_invite() -> None:
    """RFC 3261 16.11: a stateless proxy's branch is the same for every copy; 9.1, 17.1.1.3: for CANCEL and non-2xx ACK too."""
    rig = Rig()
    invite = request()
    first = rig.forwarded(invite)
    rig.now_ns += 500_000_000
    again = rig.forwarded(invite)
    assert again == first

    branch = branch_of(first.data)
    cancel = rig.forwarded(cancel_of(invite))
    back = rig.sent(response_to(first.data, 486), rig.server())
    ack = rig.forwarded(ack_of(invite, back.data))
    assert branch_of(cancel.data) == branch
    assert branch_of(ack.data) == branch
    assert values(cancel.data, "Via")[0] == values(ack.data, "Via")[0] == values(first.data, "Via")[0]
    assert cancel.flow == ack.flow == first.flow


@pytest.mark.parametrize(
    "other",
    [
        {"branch": "z9hG4bKa2"},
        {"sent_by": "198.51.100.7:5063"},
        {"call_id": "c2@198.51.100.7"},
        {"cseq": 2},
        {"branch": None, "cseq": 2},
    ],
    ids=["branch", "sent-by", "call-id", "cseq", "no-branch"],
)
def test_another_transaction_has_another_branch(other: dict[str, object]) -> None:
    """RFC 3261 17.2.3: top branch, sent-by, Call-ID and CSeq number tell transactions apart."""
    rig = Rig()
    one, two = rig.forwarded(request()), rig.forwarded(request(**other))  # type: ignore[arg-type]
    assert branch_of(one.data) != branch_of(two.data)


def test_a_client_of_rfc_2543_without_a_branch_keeps_one_branch_per_transaction() -> None:
    """RFC 3261 17.2.3: without the magic cookie the other parts identify the transaction."""
    rig = Rig()
    one = rig.forwarded(request(branch=None))
    assert rig.forwarded(request(branch=None)) == one
    assert branch_of(rig.forwarded(cancel_of(request(branch=None))).data) == branch_of(one.data)


def test_the_branch_outlives_a_restart_and_hangs_on_the_key() -> None:
    """DESIGN §3: a keyed hash, so a restart breaks nothing; another key gives another branch."""
    rig = Rig()
    before = rig.forwarded(request())
    again = rig.restarted(Keyring(Key(SECRET))).receive(request(), rig.client(), 0)
    other = rig.restarted(Keyring(Key(OTHER_SECRET))).receive(request(), rig.client(), 0)
    assert again == before
    assert other is not None
    assert branch_of(other.data) != branch_of(before.data)


# -- received and rport ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent_by", "params", "expected"),
    [
        ("198.51.100.7:5062", "", b"SIP/2.0/UDP 198.51.100.7:5062;branch=z9hG4bKa1"),
        ("10.9.9.9:5062", "", b"SIP/2.0/UDP 10.9.9.9:5062;branch=z9hG4bKa1;received=198.51.100.7"),
        ("phone.example.com", "", b"SIP/2.0/UDP phone.example.com;branch=z9hG4bKa1;received=198.51.100.7"),
        ("10.9.9.9:5062", ";rport", b"SIP/2.0/UDP 10.9.9.9:5062;branch=z9hG4bKa1;rport=5062;received=198.51.100.7"),
        # RFC 3581 4: with rport, received stands there even where it says nothing new.
        ("198.51.100.7:9", ";rport", b"SIP/2.0/UDP 198.51.100.7:9;branch=z9hG4bKa1;rport=5062;received=198.51.100.7"),
    ],
    ids=["same", "nat", "name", "rport", "rport-same-host"],
)
def test_received_and_rport(sent_by: str, params: str, expected: bytes) -> None:
    """RFC 3261 18.2.1, RFC 3581 4."""
    sent = Rig().forwarded(request(sent_by=sent_by, via_params=params))
    assert values(sent.data, "Via")[1] == expected


@pytest.mark.parametrize("sent_by", ["198.51.100.7:5062", "10.9.9.9:5062"])
@pytest.mark.parametrize(
    "forged", [";received=203.0.113.66", ";Received=203.0.113.66", ";rport=9;received=203.0.113.66"]
)
def test_a_received_written_by_the_client_is_never_believed(sent_by: str, forged: str) -> None:
    """DESIGN §3: received is ours to write; the server behind must not see another address than the packet's."""
    rig = Rig()
    for answer in (rig.forwarded(request(sent_by=sent_by, via_params=forged)).data,):
        via = values(answer, "Via")[1]
        assert b"203.0.113.66" not in via
        assert param(via, "received") == b"198.51.100.7"
        assert param(via, "rport") in (None, b"5062")


def test_received_of_ipv6_stands_without_brackets() -> None:
    """RFC 3261 25.1: via-received is IPv4address or IPv6address, not an IPv6reference."""
    rig = Rig(servers=(("udp", SERVER6, 5080, 1),))
    asked = request(sent_by="phone.example.com", via_params=";rport")
    via = values(rig.forwarded(asked, rig.client(CLIENT6)).data, "Via")[1]
    assert param(via, "received") == CLIENT6.encode()
    assert param(via, "rport") == b"5062"


# -- Max-Forwards ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("hops", "expected"), [(70, b"69"), (1, b"0"), (255, b"254"), (None, b"70")])
def test_max_forwards_goes_down_by_one_and_is_added_when_absent(hops: int | None, expected: bytes) -> None:
    """RFC 3261 16.6 item 3."""
    assert value(Rig().forwarded(request(max_forwards=hops)).data, "Max-Forwards") == expected


def test_max_forwards_of_zero_is_answered_483() -> None:
    """RFC 3261 16.3 item 3."""
    rig = Rig()
    answer = rig.answered(request(max_forwards=0))
    assert start_line(answer.data) == b"SIP/2.0 483 Too Many Hops"
    assert rig.counters.outcomes == {"max-forwards": 1}
    assert (rig.controller.allowed, rig.controller.rejected) == (1, 0)


@pytest.mark.parametrize("hops", ["256", "-1", "x", "70 70", "99999999999999999999"])
def test_an_unreadable_max_forwards_is_answered_400(hops: str) -> None:
    """RFC 3261 20.22: 0 to 255."""
    rig = Rig()
    answer = rig.answered(request(max_forwards=None, headers=[f"Max-Forwards: {hops}"]))
    assert start_line(answer.data) == b"SIP/2.0 400 Bad Request"
    assert rig.counters.outcomes == {"bad-max-forwards": 1}


# -- OPTIONS to the guard itself ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("uri", ["sip:192.0.2.1", "sip:192.0.2.1:5060", "sip:192.0.2.1;transport=udp"])
@pytest.mark.parametrize("hops", [70, 0])
def test_options_aimed_at_the_guard_is_answered_200(uri: str, hops: int) -> None:
    """RFC 3261 11.1 and 16.3: a probe of this hop, whatever its Max-Forwards; no server is bothered."""
    rig = Rig()
    answer = rig.answered(request("OPTIONS", uri, max_forwards=hops))
    assert start_line(answer.data) == b"SIP/2.0 200 OK"
    assert answer.flow == rig.client()
    assert rig.counters.outcomes == {"options": 1}
    assert rig.controller.allowed == 1


@pytest.mark.parametrize(
    ("method", "uri"),
    [
        ("OPTIONS", "sip:bob@192.0.2.1"),
        ("OPTIONS", "sip:192.0.2.1:5061"),
        ("OPTIONS", "sip:example.com"),
        ("OPTIONS", "tel:+15550100"),
        ("REGISTER", "sip:192.0.2.1"),
        ("INVITE", "sip:192.0.2.1"),
    ],
)
def test_what_is_not_aimed_at_the_guard_goes_to_the_server(method: str, uri: str) -> None:
    """Only OPTIONS to the bare own address ends here; a domain of the servers' may well be the guard's address."""
    rig = Rig()
    assert rig.forwarded(request(method, uri)).flow == rig.servers[0].flow


@pytest.mark.parametrize("host", ["203.0.113.1", "192.0.2.1"])
def test_behind_a_nat_the_advertised_and_the_bound_address_are_both_the_guards(host: str) -> None:
    """DESIGN §3 advertise: probes come from outside the NAT and from within its network."""
    rig = Rig(advertise=b"203.0.113.1:5060")
    assert start_line(rig.answered(request("OPTIONS", f"sip:{host}:5060")).data) == b"SIP/2.0 200 OK"


def test_on_a_wildcard_bind_the_address_that_was_asked_is_the_guards() -> None:
    rig = Rig(outside_host="0.0.0.0")
    here = rig.client(local="192.0.2.77")
    assert start_line(rig.answered(request("OPTIONS", "sip:192.0.2.77"), here).data) == b"SIP/2.0 200 OK"
    assert rig.forwarded(request("OPTIONS", "sip:192.0.2.78"), here).flow == rig.servers[0].flow


# -- Record-Route and Path ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["INVITE", "SUBSCRIBE", "REFER"])
def test_dialog_forming_requests_carry_both_record_routes_the_inner_one_on_top(method: str) -> None:
    """RFC 3261 16.6 item 4, RFC 5658 double Record-Routing: each side is told the address of its own side."""
    inner, outer = values(Rig().forwarded(request(method)).data, "Record-Route")
    assert inner.startswith(b"<sip:10.0.0.1:5070;lr;sg=")
    assert outer == b"<sip:192.0.2.1:5060;lr>"


@pytest.mark.parametrize(
    "method", ["REGISTER", "OPTIONS", "MESSAGE", "BYE", "CANCEL", "NOTIFY", "PUBLISH", "UPDATE", "FOO"]
)
def test_other_requests_carry_no_record_route(method: str) -> None:
    assert values(Rig().forwarded(request(method)).data, "Record-Route") == []


@pytest.mark.parametrize("method", ["INVITE", "SUBSCRIBE", "REFER"])
def test_requests_within_a_dialog_carry_no_record_route(method: str) -> None:
    """RFC 3261 12.2: the route set of a dialog does not change."""
    assert values(Rig().forwarded(request(method, to_tag="srv1")).data, "Record-Route") == []


def test_our_record_route_stands_above_those_of_proxies_before_us() -> None:
    """RFC 3261 16.6 item 4."""
    routes = values(
        Rig().forwarded(request(headers=["Record-Route: <sip:before.example.com;lr>"])).data, "Record-Route"
    )
    assert routes[2] == b"<sip:before.example.com;lr>"
    assert len(routes) == 3


def test_record_route_can_be_switched_off() -> None:
    assert values(Rig(record_route=False).forwarded(request()).data, "Record-Route") == []


def test_path_on_register_names_the_inside_address_and_the_flow() -> None:
    """RFC 3327 5.2: above the Paths that are there; the token lets the registrar's requests come back on the client's flow."""
    rig = Rig()
    sent = rig.forwarded(request("REGISTER", "sip:example.com", headers=["Path: <sip:p1.example.com;lr>"]))
    ours, before = values(sent.data, "Path")
    assert ours.startswith(b"<sip:10.0.0.1:5070;lr;sg=")
    assert before == b"<sip:p1.example.com;lr>"
    assert values(rig.forwarded(request()).data, "Path") == []
    assert values(Rig(path=False).forwarded(request("REGISTER")).data, "Path") == []


def test_record_route_on_streams_says_so() -> None:
    """RFC 3261 19.1.1: the transport parameter; without it the route would be taken for UDP."""
    rig = Rig()
    sent = rig.forwarded(request(transport="TCP"), rig.client(transport="tcp"))
    inner, outer = values(sent.data, "Record-Route")
    assert b";transport=tcp;" in inner
    assert outer == b"<sip:192.0.2.1:5060;transport=tcp;lr>"
    assert values(sent.data, "Via")[0].startswith(b"SIP/2.0/TCP 10.0.0.1:5070;")


def test_advertise_is_what_the_outside_is_told() -> None:
    """DESIGN §3, issue 2 §4: an `advertise` address per listener."""
    rig = Rig(advertise=b"203.0.113.1:15060")
    assert values(rig.forwarded(request()).data, "Record-Route")[1] == b"<sip:203.0.113.1:15060;lr>"


def test_a_wildcard_bind_tells_the_address_that_was_asked() -> None:
    rig = Rig(outside_host="0.0.0.0")
    routes = values(rig.forwarded(request(), rig.client(local="192.0.2.77")).data, "Record-Route")
    assert routes[1] == b"<sip:192.0.2.77:5060;lr>"


# -- X-Guard-Source ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "transport", "expected"),
    [
        ("198.51.100.7", "udp", b"198.51.100.7;5062;udp"),
        ("198.51.100.7", "tcp", b"198.51.100.7;5062;tcp"),
        (CLIENT6, "udp", CLIENT6.encode() + b";5062;udp"),
    ],
)
def test_the_server_is_told_the_clients_address(host: str, transport: str, expected: bytes) -> None:
    """DESIGN §3: every request now comes from the guard's address."""
    rig = Rig(servers=(("udp", SERVER6, 5080, 1), ("tcp", "10.0.0.10", 5080, 1)))
    assert value(rig.forwarded(request(), rig.client(host, transport=transport)).data, "X-Guard-Source") == expected


@pytest.mark.parametrize(
    "forged",
    [
        "X-Guard-Source: 127.0.0.1;5060;udp",
        "x-guard-source: 127.0.0.1;5060;udp",
        "X-GUARD-source : 127.0.0.1;5060;udp",
        "X-Guard-Source\t: 127.0.0.1;5060;udp",
        "X-Guard-Source:\r\n 127.0.0.1;5060;udp",
        "X-Guard-Source: 127.0.0.1;5060;udp\r\nX-Guard-Source: 127.0.0.2;5060;udp",
    ],
)
@pytest.mark.parametrize("method", ["INVITE", "ACK", "BYE"])
def test_a_source_header_from_outside_is_stripped(forged: str, method: str) -> None:
    """DESIGN §3: stripped when it comes from outside, however it is spelled, on every line."""
    sent = Rig().forwarded(request(method, headers=["Subject: a", forged, "Supported: b"])).data
    assert values(sent, "X-Guard-Source") == [b"198.51.100.7;5062;udp"]
    assert b"127.0.0." not in sent
    assert (value(sent, "Subject"), value(sent, "Supported")) == (b"a", b"b")


def test_the_source_headers_name_is_configurable() -> None:
    rig = Rig(source_header=b"X-Real-Peer")
    sent = rig.forwarded(request(headers=["x-real-peer: forged", "X-Guard-Source: somebody else's"])).data
    assert values(sent, "X-Real-Peer") == [b"198.51.100.7;5062;udp"]
    assert values(sent, "X-Guard-Source") == [b"somebody else's"]


def test_the_source_header_can_be_switched_off() -> None:
    assert values(Rig(source_header=b"").forwarded(request()).data, "X-Guard-Source") == []


# -- transports, size --------------------------------------------------------------------------------------------------


def test_datagrams_go_on_as_datagrams_and_streams_as_streams() -> None:
    """DESIGN §3."""
    rig = Rig()
    assert rig.forwarded(request()).flow == rig.servers[0].flow
    over_tcp = rig.forwarded(request(transport="TCP"), rig.client(transport="tcp"))
    assert over_tcp.flow == rig.servers[1].flow
    # 0 on a stream listener: the edge finds or makes the connection.
    assert over_tcp.flow.stream == 0


@pytest.mark.parametrize(("has", "asks"), [("udp", "tcp"), ("tcp", "udp")])
def test_without_an_upstream_of_the_transport_the_answer_is_503(has: str, asks: str) -> None:
    """DESIGN §3, §5: the guard's own no-upstream 503 is an outcome of allow."""
    rig = Rig(servers=((has, "10.0.0.10", 5080, 1),))  # type: ignore[arg-type]
    client = rig.client(transport=asks)
    answer = rig.answered(request(transport=asks.upper()), client)
    assert start_line(answer.data) == b"SIP/2.0 503 Service Unavailable"
    assert answer.flow == client
    assert rig.counters.outcomes == {"no-upstream": 1}
    assert (rig.controller.allowed, rig.controller.rejected) == (1, 0)


def test_datagrams_pushed_over_the_mtu_are_counted_and_sent() -> None:
    """DESIGN §3: 1500 less the IPv4 and UDP headers is 1472; what was over it before is not our doing; streams have none."""
    rig = Rig()
    small = len(request())
    rig.forwarded(request(body=b"x" * (1000 - small)))
    assert "over-mtu" not in rig.counters.outcomes
    pushed = rig.forwarded(request(body=b"x" * (1400 - small)))
    assert len(pushed.data) > 1472
    assert rig.counters.outcomes["over-mtu"] == 1
    rig.forwarded(request(body=b"x" * 1600))
    rig.forwarded(request(body=b"x" * (1400 - small), transport="TCP"), rig.client(transport="tcp"))
    assert rig.counters.outcomes["over-mtu"] == 1


@pytest.mark.parametrize(("size", "counted"), [(1472, 0), (1473, 1)], ids=["fits", "one-over"])
def test_the_mtu_is_met_to_the_byte(size: int, counted: int) -> None:
    rig = Rig()
    added = len(rig.forwarded(request(body=b"x" * 1000)).data) - len(request(body=b"x" * 1000))
    asked = request(body=b"x" * (size - added - len(request(body=b"x" * 1000)) + 1000))
    assert len(rig.forwarded(asked).data) == size
    assert rig.counters.outcomes.get("over-mtu", 0) == counted


def test_a_datagram_that_filled_the_mtu_was_pushed_over_it() -> None:
    rig = Rig()
    asked = request(body=b"x" * (1472 - len(request(body=b"x" * 1000)) + 1000))
    assert len(asked) == 1472
    rig.forwarded(asked)
    assert rig.counters.outcomes == {"over-mtu": 1}


def test_octets_after_the_body_are_not_passed_on() -> None:
    """RFC 3261 18.3: in a datagram they are discarded."""
    asked = request(body=b"12345")
    assert body_of(Rig().forwarded(asked + b"trailing").data) == b"12345"
