"""Which way a request goes (DESIGN §3: upstreams by weighted rendezvous hash; from inside by token or numeric next hop)."""

from __future__ import annotations

from collections import Counter
from math import sqrt

import pytest

from sipguard.guard.flows import Flow
from tests.guard.messages import ack_of, cancel_of, request, response_to, start_line, values
from tests.guard.rig import CLIENT6, Rig

CALLS = 20_000


def rig_of(*weights: int) -> Rig:
    """UDP servers 10.0.0.10, .11, …, their ids bound to their places."""
    servers = tuple(("udp", f"10.0.0.{10 + place}", 5080, weight) for place, weight in enumerate(weights) if weight)
    return Rig(servers=servers)  # type: ignore[arg-type]


@pytest.mark.parametrize("weights", [(1, 1), (1, 1, 1, 1), (3, 1), (1, 2, 5), (1, 1000)])
def test_each_server_gets_its_share_of_the_call_ids(weights: tuple[int, ...]) -> None:
    """Issue 2 §4: weighted rendezvous hash. Over 20,000 Call-IDs within 4.5 standard deviations of the binomial.

    BYE: it passes in every state, so the law does not come between.
    """
    rig = rig_of(*weights)
    template = request("BYE", call_id="@@", to_tag="t")
    found: Counter[str] = Counter()
    for call in range(CALLS):
        action = rig.guard.receive(template.replace(b"@@", b"%d@198.51.100.7" % (call * 7919)), rig.client(), 0)
        assert action is not None
        found[action.flow.remote[0]] += 1
    for place, weight in enumerate(weights):
        p = weight / sum(weights)
        assert abs(found[f"10.0.0.{10 + place}"] - CALLS * p) <= 4.5 * sqrt(CALLS * p * (1 - p)), found


def test_a_removed_server_moves_only_its_own_call_ids() -> None:
    """Rendezvous hashing (Thaler & Ravishankar 1998): the others stay where they are. The ids go with the addresses."""
    whole = Rig(servers=tuple(("udp", f"10.0.0.{10 + place}", 5080, 1 + place) for place in range(4)))
    removed = whole.servers[1]
    fewer = whole.reconfigured(upstreams=tuple(server for server in whole.servers if server is not removed))
    moved = kept = 0
    for call in range(5000):
        data = request("BYE", call_id=f"{call}@x", to_tag="t")
        before = whole.guard.receive(data, whole.client(), 0)
        after = fewer.receive(data, whole.client(), 0)
        assert before is not None
        assert after is not None
        if before.flow == removed.flow:
            moved += 1
            assert after.flow != removed.flow
        else:
            kept += 1
            assert after.flow == before.flow
    assert moved > 500
    assert kept > 500


def test_the_order_of_the_servers_does_not_matter() -> None:
    whole = Rig(servers=tuple(("udp", f"10.0.0.{10 + place}", 5080, 1) for place in range(4)))
    turned = whole.reconfigured(upstreams=whole.servers[::-1])
    for call in range(500):
        data = request("BYE", call_id=f"{call}@x", to_tag="t")
        one, other = whole.guard.receive(data, whole.client(), 0), turned.receive(data, whole.client(), 0)
        assert one is not None
        assert other is not None
        assert one.flow == other.flow


def test_cancel_ack_and_retransmission_follow_their_invite() -> None:
    """RFC 3261 9.1, 17.1.1.3: to the same server, which has the transaction."""
    rig = rig_of(1, 1, 1)
    seen = set()
    for call in range(60):
        invite = request(call_id=f"{call}@x", branch=f"z9hG4bK{call}")
        first = rig.forwarded(invite)
        seen.add(first.flow)
        back = rig.sent(response_to(first.data, 486), first.flow)
        assert rig.forwarded(cancel_of(invite)).flow == first.flow
        assert rig.forwarded(ack_of(invite, back.data)).flow == first.flow
        assert rig.forwarded(invite).flow == first.flow
    assert len(seen) == 3


# -- from outside: no other destination --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "asked",
    [
        request(uri="sip:victim@203.0.113.66:5060"),
        request(uri="sip:203.0.113.66;maddr=203.0.113.67"),
        request(routes=["<sip:203.0.113.66:5060;lr>"]),
        request(routes=["<sip:192.0.2.1;lr>", "<sip:203.0.113.66:5060;lr>"]),
        request(routes=["<sip:203.0.113.66;lr>"], to_tag="x"),
        request(routes=["<sip:203.0.113.66>"]),
        request(routes=["<sip:192.0.2.1;lr;sg=AAAAAAAA>"]),
        request(sent_by="203.0.113.66:5060", via_params=";maddr=203.0.113.66;rport"),
        request(headers=["Record-Route: <sip:203.0.113.66;lr>"]),
    ],
)
def test_from_outside_nothing_but_an_upstream_is_reached(asked: bytes) -> None:
    """DESIGN §3: no open relay. Neither Request-URI nor Route nor maddr decides."""
    rig = Rig()
    assert rig.forwarded(asked).flow == rig.servers[0].flow


def test_a_foreign_route_is_left_for_the_server_to_judge() -> None:
    """RFC 3261 16.4: only what is ours is removed."""
    sent = Rig().forwarded(request(routes=["<sip:203.0.113.66;lr>", "<sip:192.0.2.1;lr>"]))
    assert values(sent.data, "Route") == [b"<sip:203.0.113.66;lr>", b"<sip:192.0.2.1;lr>"]


# -- from inside -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("uri", "routes", "host", "port", "transport"),
    [
        ("sip:alice@198.51.100.9:5066", (), "198.51.100.9", 5066, "udp"),
        ("sip:alice@198.51.100.9", (), "198.51.100.9", 5060, "udp"),
        ("sip:alice@198.51.100.9;transport=TCP", (), "198.51.100.9", 5060, "tcp"),
        ("sip:alice@[2001:db8:c::9]:5066", (), "2001:db8:c::9", 5066, "udp"),
        ("sip:alice@[2001:DB8:C:0::9];transport=tcp", (), "2001:db8:c::9", 5060, "tcp"),
        ("sip:alice@example.com", ("<sip:198.51.100.9:5066;lr>",), "198.51.100.9", 5066, "udp"),
        ("sip:alice@example.com", ("<sip:10.0.0.1:5070;lr>", "<sip:198.51.100.9;lr>"), "198.51.100.9", 5060, "udp"),
    ],
)
def test_from_inside_to_a_numeric_next_hop(
    uri: str, routes: tuple[str, ...], host: str, port: int, transport: str
) -> None:
    """RFC 3261 16.6 item 6: the topmost Route, else the Request-URI; on the listener of its transport and family."""
    rig = Rig()
    sent = rig.forwarded(request("OPTIONS", uri, routes=routes, sent_by="10.0.0.10:5080"), rig.server())
    assert sent.flow == Flow(rig.client(host, transport=transport).listener, rig.client(host, port).remote)
    assert rig.counters.requests == {}
    assert rig.counters.outcomes == {"from-inside": 1}


@pytest.mark.parametrize(
    ("uri", "routes"),
    [
        ("sip:alice@example.com", ()),
        ("sips:alice@198.51.100.9", ()),
        ("tel:+15550100", ()),
        ("urn:service:sos", ()),
        ("sip:alice@198.51.100.9;transport=sctp", ()),
        ("sip:alice@198.51.100.9:99999", ()),
        ("sip:alice@198.51.100.256", ()),
        ("sip:alice@198.51.100.9", ("<sip:example.com;lr>",)),
        # Back to ourselves it would come again and again, until Max-Forwards ends it.
        ("sip:alice@192.0.2.1", ()),
        ("sip:alice@192.0.2.1;transport=tcp", ()),
        ("sip:alice@10.0.0.1:5070", ()),
        ("sip:alice@0.0.0.0", ()),
    ],
)
def test_from_inside_without_a_usable_next_hop_the_answer_is_502(uri: str, routes: tuple[str, ...]) -> None:
    """DESIGN §3: by token or numeric, else nowhere; the server is told."""
    rig = Rig(outside_host="0.0.0.0") if "0.0.0.0" in uri else Rig()
    answer = rig.answered(request(uri=uri, routes=routes, sent_by="10.0.0.10:5080"), rig.server())
    assert start_line(answer.data) == b"SIP/2.0 502 Bad Gateway"
    assert answer.flow == rig.server()
    assert rig.counters.outcomes == {"from-inside": 1, "inside-no-next-hop": 1}


def test_what_goes_out_carries_the_outside_address_and_no_source_header() -> None:
    rig = Rig()
    sent = rig.forwarded(
        request(uri=f"sip:alice@[{CLIENT6}]", headers=["X-Guard-Source: 198.51.100.200;5062;udp"]), rig.server()
    )
    assert values(sent.data, "Via")[0].startswith(b"SIP/2.0/UDP [2001:db8:1::1]:5060;branch=z9hG4bK")
    assert values(sent.data, "Via")[1] == b"SIP/2.0/UDP 198.51.100.7:5062;branch=z9hG4bKa1"
    # A server that passes on what the guard told it must not tell one client another's address.
    assert values(sent.data, "X-Guard-Source") == []
    outer, inner = values(sent.data, "Record-Route")
    assert outer == b"<sip:[2001:db8:1::1]:5060;lr>"
    assert inner.startswith(b"<sip:10.0.0.1:5070;lr;sg=")


def test_requests_from_inside_are_neither_counted_nor_refused() -> None:
    """DESIGN §3: what comes in on the inside socket is not counted, never refused, never filtered."""
    rig = Rig()
    rig.into(type(rig.controller.state).CRITICAL)
    before = (dict(rig.counters.requests), rig.controller.allowed, rig.controller.dropped)
    for _ in range(50):
        rig.forwarded(request("OPTIONS", "sip:alice@198.51.100.9"), rig.server())
    assert (dict(rig.counters.requests), rig.controller.allowed, rig.controller.dropped) == before


def test_max_forwards_ends_requests_from_inside_too() -> None:
    rig = Rig()
    answer = rig.answered(request(uri="sip:alice@198.51.100.9", max_forwards=0), rig.server())
    assert start_line(answer.data) == b"SIP/2.0 483 Too Many Hops"
    assert values(rig.forwarded(request(uri="sip:alice@198.51.100.9"), rig.server()).data, "Max-Forwards") == [b"69"]


def test_a_server_may_probe_the_guard_with_options() -> None:
    rig = Rig()
    for uri in ("sip:10.0.0.1:5070", "sip:192.0.2.1"):
        assert start_line(rig.answered(request("OPTIONS", uri), rig.server()).data) == b"SIP/2.0 200 OK"


@pytest.mark.parametrize("stranger", ["10.0.0.99", "198.51.100.7", "127.0.0.1"])
def test_a_request_from_a_stranger_on_the_inside_goes_nowhere(stranger: str) -> None:
    """DESIGN §3, no open relay: an inside port that strangers reach carries nothing of theirs, and answers nothing."""
    rig = Rig()
    flow = rig.server()._replace(remote=(stranger, 5080))
    invite = rig.forwarded(request())
    inner = values(invite.data, "Record-Route")[0].decode()
    for data in (
        request(uri="sip:victim@203.0.113.66"),
        request("OPTIONS", "sip:10.0.0.1:5070"),
        request(max_forwards=0),
        request("BYE", routes=[inner], to_tag="x"),
    ):
        assert rig.receive(data, flow) is None
    assert rig.counters.discards == {"inside-stranger": 4}
