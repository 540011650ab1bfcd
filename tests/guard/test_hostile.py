"""Hostile bytes never raise past the guard; they become a counted discard, an answer or a request that goes on (DESIGN §2)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sipguard.guard.flows import Flow, Send
from tests.guard.messages import ack_of, request, response_to, values
from tests.guard.rig import A, C, N, Rig, judged, total

SEEDS = [
    request(body=b"v=0\r\n", vias=["SIP/2.0/UDP h2;branch=z9hG4bKb2"], routes=["<sip:192.0.2.1;lr>"]),
    request("REGISTER", "sip:example.com", headers=["Path: <sip:p;lr>", "X-Guard-Source: x", "Record-Route: <sip:r;lr>"]),
    request("ACK", to_tag="srv1"),
    request("OPTIONS", "sip:192.0.2.1"),
    request("BYE", "sip:[2001:db8::1]:5060;transport=tcp", to_tag="x", sent_by="[2001:db8::1]:5060", via_params=";rport"),
    response_to(request()),
    b"INVITE sip:b@c SIP/2.0\nv:SIP/2.0/UDP h;branch=z9hG4bKq\nf:<sip:a@b>;tag=1\nt:<sip:c@d>\ni:x\nCSeq:1 INVITE\nl:0\n\n",
    b"INVITE sip:b@c SIP/2.0\r\nVia: SIP / 2.0 / UDP h ; branch = z9hG4bKq\r\n ;rport\r\nFrom: \"a,;<\\\"\" <sip:a@b>;tag=1\r\n"
    b"To: <sip:c@d>\r\nCall-ID: x\r\nCSeq: 1\r\n INVITE\r\n\r\n",
]  # fmt: skip

#: What the grammar turns on; sprinkled into valid messages.
SPICE = [
    *(bytes((byte,)) for byte in b'\r\n \t\0\xff\x80<>"\\,;:=@/?%[]'),
    *(
        b"\r\n",
        b"\r\n\r\n",
        b";sg=",
        b";lr",
        b";tag=",
        b";branch=",
        b";received=",
        b";rport",
        b"SIP/2.0",
        b"Via: ",
        b"Route: ",
    ),
    *(
        b"CSeq: ",
        b"Content-Length: ",
        b"99999999999999999999",
        b"-1",
        b"z9hG4bK",
        b"sip:",
        b"\xc3\x28",
        b"\xe2\x82\xac",
    ),
]


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A valid message with a few cuts, doublings, swaps and insertions."""
    data = draw(st.sampled_from(SEEDS))
    for _ in range(draw(st.integers(1, 5))):
        at = draw(st.integers(0, len(data)))
        to = min(len(data), at + draw(st.integers(0, 30)))
        kind = draw(st.integers(0, 4))
        if kind == 0:
            data = data[:at] + data[to:]
        elif kind == 1:
            data = data[:to] + data[at:]
        elif kind == 2:
            data = data[:at] + draw(st.sampled_from(SPICE)) * draw(st.sampled_from([1, 1, 2, 300])) + data[at:]
        elif kind == 3:
            data = data[:at] + draw(st.binary(max_size=8)) + data[to:]
        else:
            data = data[to:] + data[:at]
    return data


def drive(rig: Rig, data: bytes) -> None:
    """Every door, every side; what comes out is fed back from the other side, as a peer would."""
    doors: tuple[Flow, ...] = (
        rig.client(),
        rig.client(transport="tcp"),
        rig.client("2001:db8:c::7"),
        rig.server(),
        rig.server(1, port=49152, stream=3),
        rig.server()._replace(remote=("10.0.0.77", 1)),
    )
    for flow in doors:
        before = total(rig.counters.requests)
        action = rig.receive(data, flow)
        assert action is None or isinstance(action, Send)
        assert total(rig.counters.requests) - before in ((0,) if flow.listener.inside else (0, 1))
        if action is not None and action.flow != flow:
            rig.receive(action.data, action.flow)
            rig.guard.undeliverable(action, rig.now_ns)
        rig.guard.broken(data, "bad-content-length", flow, rig.now_ns)
        rig.guard.undeliverable(Send(data, flow), rig.now_ns)
    assert total(rig.counters.requests) == judged(rig.guard)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=600), st.sampled_from([N, A, C]))
def test_any_bytes(data: bytes, state: object) -> None:
    drive(Rig(exempt_uris=("urn:",)).into(state), data)  # type: ignore[arg-type]


@settings(max_examples=1500, deadline=None)
@given(mutated())
def test_mutated_sip(data: bytes) -> None:
    drive(Rig(exempt_uris=("urn:",)), data)


@settings(max_examples=400, deadline=None)
@given(mutated(), st.sampled_from([A, C]), st.booleans())
def test_mutated_sip_under_overload(data: bytes, state: object, budget: bool) -> None:
    drive(Rig(stream_drop="reject", reply_budget=budget).into(state), data)  # type: ignore[arg-type]


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 6), st.integers(0, 2000), st.binary(max_size=6), st.sampled_from(["via", "route", "response"]))
def test_our_own_lines_garbled_on_their_way_back(cut: int, at: int, junk: bytes, where: str) -> None:
    """A peer, or the line, damages what we wrote ourselves."""
    rig = Rig()
    asked = rig.forwarded(request())
    if where == "route":
        data = request("BYE", routes=[route.decode() for route in values(asked.data, "Record-Route")[::-1]], to_tag="x")
    else:
        data = response_to(asked.data) if where == "response" else asked.data
    at %= len(data)
    drive(rig, data[:at] + junk + data[at + cut :])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0",
        b"\r\n" * 30_000,
        b" " * 65_000,
        b"SIP/2.0",
        b"SIP/2.0 200",
        b"SIP/2.0 999999 x\r\n\r\n",
        b"INVITE",
        b"INVITE  SIP/2.0\r\n\r\n",
        b"INVITE sip:x SIP/2.0" * 3000,
        b"INVITE sip:" + b"x" * 60_000 + b" SIP/2.0\r\n\r\n",
        b"X" * 60_000 + b" sip:x SIP/2.0\r\n\r\n",
        b"INVITE sip:x SIP/2.0\r\n" + b"Via: SIP/2.0/UDP h;branch=z9hG4bKx\r\n" * 1700 + b"\r\n",
        request(vias=["SIP/2.0/UDP h;branch=z9hG4bKx"] * 1500),
        request(routes=["<sip:192.0.2.1;lr>"] * 2500),
        request(routes=[",".join(["<sip:192.0.2.1;lr;sg=AAAA>"] * 2000)]),
        request(headers=["X-Guard-Source: a"] * 3000),
        request(headers=["A:" * 20_000]),
        request(headers=['Subject: "' + "\\" * 60_000]),
        request(via_params=";" * 60_000),
        request(via_params=";sg=" * 15_000),
        request(via_params=';x="' + "," * 60_000),
        request(to_tag="<" * 30_000 + ">" * 30_000),
        request(call_id='<">,;' * 12_000),
        request(headers=["\r\n ".join(["Subject: x"] * 10_000)]),
        request(uri="sip:" + "@" * 60_000),
        request(uri="sip:x;" + "a=b;" * 15_000),
        request("OPTIONS", "sip:[" + ":" * 60_000 + "]"),
        request(cseq=10**4000),
        request(max_forwards=10**4000),
        request(headers=["Content-Length: " + "9" * 60_000]),
        request(body=b"\0" * 60_000),
    ],
    ids=lambda data: f"{len(data)}-{bytes(data[:12])!r}",
)
def test_oversized_and_pathological(data: bytes) -> None:
    """64 KiB datagrams of one shape: no exception, and no answer larger than its question but for the guard's own lines."""
    rig = Rig(stream_drop="reject", exempt_uris=("urn:",))
    for state in (N, A, C):
        rig.into(state)
        drive(rig, data)
        answer = rig.receive(data)
        if answer is not None and answer.flow == rig.client():
            assert len(answer.data) <= len(data) + 200


def test_port_zero_and_odd_addresses_of_spoofed_sources() -> None:
    """What the socket module can give: port 0, a scoped address, a mapped one."""
    rig = Rig()
    invite = request(via_params=";rport")
    for state in (N, A):
        rig.into(state)
        for listener, remote in (
            (rig.udp, ("0.0.0.0", 0)),
            (rig.udp, ("255.255.255.255", 65535)),
            (rig.udp6, ("fe80::1%eth0", 0, 0, 3)),
            (rig.udp6, ("fe80::1", 5060, 1048575, 4294967295)),
            (rig.udp6, ("::ffff:198.51.100.7", 5060, 0, 0)),
            (rig.udp6, ("::", 0, 0, 0)),
        ):
            flow = Flow(listener, remote)
            action = rig.guard.receive(invite, flow, rig.now_ns)
            assert action is not None
            if state is A:
                assert action.flow == flow
                rig.guard.receive(ack_of(invite, action.data), flow, rig.now_ns)


COSTLY = {
    "lines": "\r\n".join(["X: y"] * 2000),
    "bare line ends": "X: y" + "\x0b\n" * 8000,
    "folds": "X: y" + "\r\n " * 4000,
    "routes": "Route: " + ",".join(["<sip:127.0.0.1;lr>"] * 1500),
    "quotes": "Via: " + ',"' * 8000,
    "parameters": "Via: SIP/2.0/UDP h" + ";a" * 8000,
}


@pytest.mark.parametrize("kind", COSTLY)
def test_a_head_made_to_be_slow_is_counted_and_not_read(kind: str) -> None:
    """SPEC M2: it counts and is judged; its milliseconds are not taken from the evaluation."""
    rig = Rig()
    data = request("OPTIONS", headers=[COSTLY[kind]])
    assert rig.receive(data) is None
    assert rig.counters.outcomes == {"too-complex": 1}
    assert rig.counters.requests == {"OPTIONS": 1}
    assert rig.controller.allowed == 1
    assert rig.receive(request("ACK", to_tag="x", headers=[COSTLY[kind]])) is None
    assert rig.receive(data, rig.server()) is None
    assert rig.counters.discards == {"inside-too-complex": 1}
    assert (
        rig.receive(response_to(request()).replace(b"Content-Length", COSTLY[kind].encode() + b"\r\nContent-Length"))
        is None
    )
    assert rig.counters.discards["too-complex"] == 1


def test_a_long_body_is_not_costly() -> None:
    rig = Rig()
    assert rig.forwarded(request("MESSAGE", body=b"a,b;c\n" * 5000)).flow == rig.servers[0].flow
