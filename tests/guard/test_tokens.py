"""Signed tokens: what they carry, who may write them, how long they count (DESIGN §3, RFC 5626 5.2)."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sipguard.guard.flows import Flow, Listener
from sipguard.guard.keys import Key, Keyring, from_text, to_text
from sipguard.guard.tokens import NO_UPSTREAM, FlowTokens, Token, token_in
from tests.guard.messages import param, request, response_to, values
from tests.guard.rig import OTHER_SECRET, SECOND, SECRET, Rig, address

LISTENERS = (
    Listener(0, "udp", "192.0.2.1", 5060),
    Listener(1, "tcp", "192.0.2.1", 5060),
    Listener(2, "udp", "2001:db8:1::1", 5060),
    Listener(3, "tcp", "2001:db8:1::1", 5060),
    Listener(4, "udp", "0.0.0.0", 5062),
    Listener(5, "tcp", "0.0.0.0", 5062),
    Listener(6, "udp", "::", 5062),
    Listener(255, "tcp", "::", 5062),
)


def tokens(secret: bytes = SECRET, **keyring: object) -> FlowTokens:
    return FlowTokens(Keyring(Key(secret), **keyring), LISTENERS)  # type: ignore[arg-type]


def flows() -> list[Flow]:
    """Each listener with the addresses and numbers at the ends of their ranges."""
    found = []
    for listener in LISTENERS:
        v6 = ":" in listener.host
        hosts = ("2001:db8::1", "ff02::1", "::") if v6 else ("0.0.0.0", "198.51.100.7", "255.255.255.255")
        locals_ = ("2001:db8:1::77" if v6 else "192.0.2.77", "") if listener.wildcard else ("",)
        streams = (0, 1, 2**31 - 1, 2**32 - 1) if listener.transport == "tcp" else (0,)
        for host, port, stream, local in product(hosts, (1, 5060, 65535), streams, locals_):
            found.append(Flow(listener, address(host, port), stream, local))
    return found


def test_every_flow_and_upstream_comes_back_as_written() -> None:
    writer, reader = tokens(), tokens()
    for flow in flows():
        for upstream in (NO_UPSTREAM, b"\x00\x01", b"\xff\xff"):
            assert reader.read(writer.write(flow, upstream), 0) == Token(flow, upstream)


def test_a_token_is_legal_in_a_uri_and_in_a_via() -> None:
    """RFC 3261 25.1: token characters and paramchar have letters, digits, `-` and `_` in common."""
    writer = tokens()
    allowed = set(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
    for flow in flows():
        assert set(writer.write(flow, b"\xff\xfe")) <= allowed


@given(st.binary(max_size=64))
def test_bytes_that_no_key_of_ours_signed_are_no_token(text: bytes) -> None:
    """Forged: 48 bits of signature."""
    assert tokens().read(text, 0) is None
    assert tokens().read(to_text(text), 0) is None


def test_no_change_of_a_single_character_is_accepted() -> None:
    """Garbled: every position, every other character; a shorter and a longer one. Also no second spelling of the same bytes."""
    alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_=. *\x00\xff"
    reader = tokens()
    for flow in (Flow(LISTENERS[0], ("198.51.100.7", 5062)), Flow(LISTENERS[1], ("198.51.100.7", 5062), 9)):
        token = tokens().write(flow, b"\0\1")
        for place in range(len(token)):
            for byte in alphabet:
                garbled = token[:place] + bytes((byte,)) + token[place + 1 :]
                if garbled != token:
                    assert reader.read(garbled, 0) is None, (token, garbled)
                assert reader.read(token[:place] + bytes((byte,)) + token[place:], 0) is None
            assert reader.read(token[:place], 0) is None
        for byte in alphabet:
            assert reader.read(token + bytes((byte,)), 0) is None
        assert reader.read(token, 0) == Token(flow, b"\0\1")


@given(st.binary(max_size=60))
def test_text_has_one_spelling(raw: bytes) -> None:
    assert from_text(to_text(raw)) == raw


@given(st.binary(max_size=60))
def test_other_spellings_are_none(text: bytes) -> None:
    raw = from_text(text)
    assert raw is None or to_text(raw) == text


def test_another_keys_token_is_none() -> None:
    flow = Flow(LISTENERS[0], ("198.51.100.7", 5062))
    assert tokens().read(tokens(OTHER_SECRET).write(flow), 0) is None


def test_a_signed_payload_of_the_wrong_form_is_none() -> None:
    """Signed by our key under another configuration (or by a leak): nothing is guessed from it."""
    key = Key(SECRET)
    reader = tokens()
    for length in range(80):
        for first in (0, 1, 4, 6, 7, 255):
            read = reader.read(key.sign(bytes((first,)) + bytes(length)), 0)
            assert read is None or read.flow.listener.id == first
    assert reader.read(key.sign(b"\x07" + bytes(8)), 0) is None  # no such listener


def test_the_previous_keys_tokens_count_until_its_time_and_not_a_nanosecond_longer() -> None:
    """DESIGN §3: the previous key is accepted for a while. Reading once must not make it last."""
    flow = Flow(LISTENERS[0], ("198.51.100.7", 5062))
    old = tokens(OTHER_SECRET).write(flow, b"\0\1")
    reader = tokens(SECRET, previous=Key(OTHER_SECRET), previous_until_ns=3600 * SECOND)
    assert reader.read(old, 0) == Token(flow, b"\0\1")
    assert reader.read(old, 3600 * SECOND - 1) == Token(flow, b"\0\1")
    assert reader.read(old, 3600 * SECOND) is None
    # What is written now is the current key's.
    assert tokens(SECRET).read(reader.write(flow), 0) is not None
    assert tokens(OTHER_SECRET).read(reader.write(flow), 0) is None


def test_a_key_has_32_bytes_and_does_not_show_itself() -> None:
    for length in (0, 31, 33, 64):
        with pytest.raises(ValueError, match="32 bytes"):
            Key(bytes(length))
    assert repr(Key(SECRET)) == "<key>"


@pytest.mark.parametrize(
    ("via", "expected"),
    [
        (b"SIP/2.0/UDP h;branch=z9hG4bKx;sg=abc", b"abc"),
        (b"SIP/2.0/UDP h;branch=z9hG4bKx;sg=abc;received=1.2.3.4", b"abc"),
        (b"SIP/2.0/UDP h;sg=abc ;branch=z9hG4bKx", b"abc"),
        (b"SIP/2.0/UDP h;branch=z9hG4bKx", None),
        (b"SIP/2.0/UDP h;branch=z9hG4bKx;sg=", b""),
    ],
)
def test_the_token_of_a_via(via: bytes, expected: bytes | None) -> None:
    assert token_in(via) == expected


# -- replayed where they do not belong ---------------------------------------------------------------------------------


def test_a_clients_token_replayed_by_another_client_reaches_only_an_upstream() -> None:
    """DESIGN §3: from outside a token chooses the server, never a client."""
    rig = Rig()
    inner, outer = (route.decode() for route in values(rig.forwarded(request()).data, "Record-Route"))
    thief = rig.client("203.0.113.66", 6666)
    for routes in ([inner], [outer, inner], [inner, inner, outer]):
        for method in ("INVITE", "BYE", "MESSAGE"):
            sent = rig.forwarded(request(method, "sip:alice@198.51.100.7:5062", routes=routes, to_tag="x"), thief)
            assert sent.flow == rig.servers[0].flow
            assert values(sent.data, "Route") == []


def test_a_clients_token_in_the_via_of_a_response_from_outside_reaches_nobody() -> None:
    """A response that would go out again on the side it came from is lost: the guard is no reflector."""
    rig = Rig()
    asked = rig.forwarded(request())
    forged = response_to(asked.data)  # our own Via toward the server, sent to the outside port
    assert rig.receive(forged, rig.client("203.0.113.66")) is None
    assert rig.counters.discards == {"response-wrong-side": 1}


def test_a_servers_token_in_the_via_of_a_response_from_inside_reaches_nobody() -> None:
    rig = Rig()
    asked = rig.forwarded(request(uri="sip:alice@198.51.100.9"), rig.server())
    assert rig.receive(response_to(asked.data), rig.server()) is None
    assert rig.counters.discards == {"response-wrong-side": 1}


def test_a_servers_token_in_a_route_from_outside_names_no_upstream() -> None:
    """The Via toward a client holds the inside flow: as a Route it moves nothing but the choice of an upstream."""
    rig = Rig()
    asked = rig.forwarded(request(uri="sip:alice@198.51.100.7:5062"), rig.server())
    token = param(values(asked.data, "Via")[0], "sg")
    assert token is not None
    sent = rig.forwarded(request("BYE", routes=[f"<sip:192.0.2.1;lr;sg={token.decode()}>"], to_tag="x"))
    assert sent.flow == rig.servers[0].flow


def test_dialogs_go_on_under_the_previous_key_until_its_time() -> None:
    """DESIGN §3: a restart with a new key breaks nothing for an hour; afterwards the Call-ID decides."""
    servers = tuple(("udp", f"10.0.0.{10 + place}", 5080, 1) for place in range(8))
    rig = Rig(servers=servers)  # type: ignore[arg-type]
    invite = rig.forwarded(request(call_id="c1"))
    inner = values(invite.data, "Record-Route")[0].decode()
    renewed = rig.restarted(Keyring(Key(OTHER_SECRET), Key(SECRET), 3600 * SECOND))
    bye = request("BYE", routes=[inner], to_tag="x", call_id="moved-2")
    hashed = renewed.receive(request("BYE", to_tag="x", call_id="moved-2"), rig.client(), 0)
    assert hashed is not None
    assert hashed.flow != invite.flow
    for now_ns, expected in ((0, invite.flow), (3600 * SECOND - 1, invite.flow), (3600 * SECOND, hashed.flow)):
        sent = renewed.receive(bye, rig.client(), now_ns)
        assert sent is not None
        assert sent.flow == expected
    # A response to what the old key's Via names finds its way as well.
    late = rig.forwarded(request(call_id="late"))
    again = rig.restarted(Keyring(Key(OTHER_SECRET), Key(SECRET), 3600 * SECOND))
    back = again.receive(response_to(late.data), rig.server(), 3600 * SECOND - 1)
    assert back is not None
    assert back.flow == rig.client()
    assert again.receive(response_to(late.data), rig.server(), 3600 * SECOND) is None
    assert again.counters.discards == {"response-not-ours": 1}


def test_a_routes_token_opens_no_way_for_a_response() -> None:
    """The other party of a dialog sees our Record-Route: its token in a Via must not bring a response to that client."""
    rig = Rig()
    asked = rig.forwarded(request())
    signed = values(asked.data, "Record-Route")[0].rpartition(b"sg=")[2].strip(b">")
    via = values(asked.data, "Via")[0]
    stolen = via.rpartition(b"sg=")[0] + b"sg=" + signed
    assert stolen != via
    answer = response_to(asked.data)
    assert rig.receive(answer.replace(via, stolen), rig.server()) is None
    assert rig.counters.discards == {"response-not-ours": 1}
    assert rig.receive(answer, rig.server()) is not None
