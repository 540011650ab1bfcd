"""No open relay and no reflector, whatever the bytes (DESIGN §3): where an action may go is a property of its side.

From outside: to an upstream, or back to the same flow; a response, to the inside flow that a token of ours names.
From inside, an upstream: out, or back to itself. From inside, a stranger: a response to the flow that a token of ours names.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from sipguard.guard.flows import Flow, Send
from tests.guard.messages import request, response_to, values
from tests.guard.rig import A, C, N, Rig, Server

SERVERS: tuple[Server, ...] = (
    ("udp", "10.0.0.10", 5080, 1),
    ("udp", "10.0.0.11", 5080, 3),
    ("tcp", "10.0.0.10", 5080, 1),
    ("udp", "2001:db8:5::10", 5080, 1),
)

VICTIM = "203.0.113.66"

#: Everything an attacker can put where a destination might be read.
targets = st.sampled_from(
    [
        f"sip:{VICTIM}", f"sip:x@{VICTIM}:53;lr", f"sip:{VICTIM};maddr={VICTIM};lr", f"sips:{VICTIM}", "sip:10.0.0.1:5070;lr",
        "sip:10.0.0.99;lr", "sip:192.0.2.1;lr", "sip:192.0.2.1", "sip:[2001:db8:1::1];lr", "sip:127.0.0.1:8060;lr", "tel:1",
        "urn:service:sos", "sip:192.0.2.1;lr;sg=AAAAAAAAAAAAAAAAAAAA", "sip:10.0.0.1:5070;lr;sg=", "sip:0.0.0.0;lr", "x",
    ]
)  # fmt: skip

tokens = st.sampled_from(["client", "server", "path"])


class Harvest:
    """Tokens an attacker can lay hands on: those of its own and of another client's dialogs, and of the server's Vias."""

    def __init__(self, rig: Rig) -> None:
        self.victim_client = rig.client("198.51.100.200", 5999)
        asked = rig.forwarded(request(call_id="harvest"), self.victim_client)
        self.inner = values(asked.data, "Record-Route")[0].decode().strip("<>")
        self.via = values(asked.data, "Via")[0].decode()
        out = rig.forwarded(request(uri="sip:a@198.51.100.200:5999"), rig.server())
        self.via_out = values(out.data, "Via")[0].decode()


def expected_from_outside(rig: Rig, flow: Flow, action: Send, sent_by: str, asks: bool) -> bool:
    """To an upstream, or back: to the port it came from or, where RFC 3261 18.2.2 says so, the one in its Via."""
    host, _, port = sent_by.rpartition(":")
    back = flow
    if not asks and host == flow.remote[0] and flow.listener.transport == "udp":
        back = flow._replace(remote=(host, int(port)))
    return action.flow == back or action.flow in {server.flow for server in rig.servers}


@settings(max_examples=400, deadline=None)
@given(
    method=st.sampled_from(["INVITE", "BYE", "ACK", "REGISTER", "OPTIONS", "CANCEL", "FOO"]),
    uri=targets,
    routes=st.lists(targets, max_size=4),
    stolen=st.integers(-1, 4),
    sent_by=st.sampled_from(
        ["198.51.100.7:5062", VICTIM, f"{VICTIM}:53", "10.0.0.1:5070", "192.0.2.1:5060", "[2001:db8::1]"]
    ),
    via_params=st.sampled_from(["", ";rport", f";received={VICTIM};rport=53", f";maddr={VICTIM}", ";sg=AAAA"]),
    to_tag=st.sampled_from([None, "x"]),
    host=st.sampled_from(["198.51.100.7", "10.0.0.10", "10.0.0.1", "2001:db8:c::7"]),
    transport=st.sampled_from(["udp", "tcp"]),
    state=st.sampled_from([N, A, C]),
    advertise=st.sampled_from([None, b"192.0.2.1:5060", b"203.0.113.1:5060"]),
)
def test_a_request_from_outside_reaches_an_upstream_or_its_own_flow(
    method: str,
    uri: str,
    routes: list[str],
    stolen: int,
    sent_by: str,
    via_params: str,
    to_tag: str | None,
    host: str,
    transport: str,
    state: object,
    advertise: bytes | None,
) -> None:
    rig = Rig(servers=SERVERS, advertise=advertise, stream_drop="reject")
    harvest = Harvest(rig)
    rig.into(state)  # type: ignore[arg-type]
    if stolen >= 0:
        routes.insert(min(stolen, len(routes)), harvest.inner)
    flow = rig.client(host, 4242, transport)
    data = request(
        method,
        uri,
        routes=[f"<{route}>" for route in routes],
        sent_by=sent_by,
        via_params=via_params,
        to_tag=to_tag,
        transport=transport.upper(),
    )
    action = rig.receive(data, flow)
    assert action is None or expected_from_outside(rig, flow, action, sent_by, "rport" in via_params)
    if action is not None and action.flow.listener is not flow.listener:
        # And a stream's request to a stream, a datagram's to a datagram.
        assert action.flow.listener.transport == transport


@settings(max_examples=300, deadline=None)
@given(
    top=st.sampled_from(["via", "via_out", "none"]),
    change=st.sampled_from(["", f";received={VICTIM};rport=53", f";maddr={VICTIM}", "cut", "flip"]),
    below=st.lists(
        st.sampled_from(
            [f"SIP/2.0/UDP {VICTIM}:53;branch=z9hG4bKx", "SIP/2.0/UDP 10.0.0.99", f"SIP/2.0/TCP h;received={VICTIM}"]
        ),
        max_size=3,
    ),
    side=st.sampled_from(["outside", "upstream", "stranger"]),
)
def test_a_response_reaches_only_the_flow_on_the_other_side_that_a_token_of_ours_names(
    top: str, change: str, below: list[str], side: str
) -> None:
    rig = Rig(servers=SERVERS)
    harvest = Harvest(rig)
    via = {"via": harvest.via, "via_out": harvest.via_out, "none": ""}[top]
    genuine = top != "none" and change not in ("cut", "flip")
    if change == "cut":
        via = via[:-1]
    elif change == "flip" and via:
        via = via[:-1] + ("A" if via[-1] != "A" else "B")
    elif via:
        via += change
    data = request("OPTIONS", vias=below)
    if via:
        data = data.replace(b"Via: ", b"Via: " + via.encode() + b"\r\nVia: ", 1)
    flow = {
        "outside": rig.client(),
        "upstream": rig.server(),
        "stranger": rig.server()._replace(remote=("10.0.0.77", 9)),
    }[side]
    action = rig.receive(response_to(data), flow)
    if action is None:
        return
    assert genuine
    assert action.flow == (harvest.victim_client if top == "via" else rig.server())
    assert action.flow.listener.inside is not flow.listener.inside


@settings(max_examples=200, deadline=None)
@given(
    method=st.sampled_from(["INVITE", "OPTIONS", "ACK", "BYE"]),
    uri=targets,
    routes=st.lists(targets, max_size=3),
    host=st.sampled_from(["10.0.0.77", "198.51.100.7", "127.0.0.1"]),
    hops=st.sampled_from([70, 0]),
    stolen=st.booleans(),
)
def test_a_stranger_on_the_inside_moves_no_request(
    method: str, uri: str, routes: list[str], host: str, hops: int, stolen: bool
) -> None:
    rig = Rig(servers=SERVERS)
    harvest = Harvest(rig)
    if stolen:
        routes.insert(0, harvest.inner)
    data = request(method, uri, routes=[f"<{route}>" for route in routes], max_forwards=hops, to_tag="x")
    assert rig.receive(data, rig.server()._replace(remote=(host, 5080))) is None


@settings(max_examples=300, deadline=None)
@given(data=st.binary(max_size=400), side=st.sampled_from(["udp", "tcp", "inside"]))
def test_plain_bytes_move_nothing(data: bytes, side: str) -> None:
    """Random bytes are no SIP: nothing is sent at all."""
    rig = Rig(servers=SERVERS)
    flow = rig.server() if side == "inside" else rig.client(transport=side)
    assert rig.receive(data, flow) is None
