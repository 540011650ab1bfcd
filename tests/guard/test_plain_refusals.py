"""RFC 3261 8.2.6.2: the quick 503 to a plain request says what the long way says, or leaves it to the long way."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sipguard.guard.answers import Answers
from sipguard.guard.flows import Flow
from sipguard.guard.keys import Key, Keyring
from sipguard.guard.refused import RefusedInvites
from sipguard.wire.head import read_head
from sipguard.wire.scan import request_method
from tests.guard.messages import request
from tests.guard.rig import CLIENT, CLIENT6, SECRET, Rig
from tests.shared import SHARED

RIG = Rig()
FLOWS = (
    Flow(RIG.udp, (CLIENT, 5062)),
    Flow(RIG.udp, ("198.51.100.200", 1)),
    Flow(RIG.udp6, (CLIENT6, 5062, 0, 0)),
    Flow(RIG.tcp, (CLIENT, 40000), 7),
)


def answers() -> Answers:
    return Answers(RIG.settings, Keyring(Key(SECRET)), RefusedInvites())


def said(data: bytes) -> tuple[object, ...]:
    """Everything an answer says: the fields the RFC asks for as values, the rest as lines."""
    head = read_head(data)
    rest = [
        line
        for line in data.split(b"\r\n")[1:]
        if line.partition(b":")[0].strip(b" \t").lower()
        not in {b"via", b"v", b"from", b"f", b"to", b"t", b"call-id", b"i", b"cseq"}
    ]
    return head.status, head.vias, head.from_, head.to, head.call_id, head.cseq, rest


def agree(data: bytes, flow: Flow) -> bool:
    """Whether the quick way took it; both ways then said the same."""
    method = request_method(data)
    if method is None:
        return False
    quick = answers().refuse_plain(data, method, flow)
    if quick is None:
        return False
    slow = answers().answer(read_head(data), 503, flow, 0)
    assert slow is not None
    assert quick.flow == slow.flow
    assert said(quick.data) == said(slow.data)
    return True


@pytest.mark.parametrize("flow", FLOWS)
@pytest.mark.parametrize(
    "data",
    [
        request(),
        request(via_params=";rport"),
        request("REGISTER"),
        request("REGISTER", vias=("SIP/2.0/TCP proxy.example.com;branch=z9hG4bKp;rport",)),
        request("OPTIONS", sent_by="[2001:db8:c::7]:5062"),
        request(
            "MESSAGE",
            sent_by="phone.example.com",
            headers=("Call-Info: <http://www.example.com/a>", "Contact: <sip:a@b>"),
        ),
    ],
)
def test_plain_requests_are_taken_and_answered_alike(data: bytes, flow: Flow) -> None:
    assert agree(data, flow)


@pytest.mark.parametrize(
    "change",
    [
        (b"Via: ", b"v: "),
        (b"Via: ", b"VIA: "),
        (b"Via: ", b"Via : "),
        (b";branch", b";received=192.0.2.66;branch"),
        (b";branch=z9hG4bKa1", b""),
        (b"\r\nFrom: ", b"\r\nf: "),
        (b"\r\nFrom: ", b"\r\nFrom: <sip:x@y>;tag=2\r\nFrom: "),
        (b"\r\nTo: ", b"\r\nt: "),
        (b"\r\nTo: <sip:bob@example.com>", b"\r\nTo: <sip:bob@example.com>;tag=in-a-dialog"),
        (b"\r\nTo: <sip:bob@example.com>", b"\r\nTo: <sip:bob@example.com>;TAG=in-a-dialog"),
        (b"\r\nCall-ID: ", b"\r\nI: "),
        (b"\r\nCall-ID: ", b"\r\ncall-id: "),
        (b"\r\nCSeq: 1 ", b"\r\nCSeq: 01 "),
        (b"\r\nCSeq: 1 ", b"\r\nCSeq: 4294967296 "),
        (b"\r\nCSeq: 1 ", b"\r\nCSEQ: 1 "),
        (b"\r\nFrom: ", b"\r\nFrom:\r\n "),
        (b"\r\nFrom: ", b"\nFrom: "),
        (b"\r\nFrom: ", b"\rFrom: "),
        (b"Call-ID: c1", b"Call-ID: c\0"),
    ],
)
def test_whatever_is_not_plain_goes_the_long_way(change: tuple[bytes, bytes]) -> None:
    data = request().replace(*change, 1)
    assert data != request()
    assert not agree(data, FLOWS[0])


_LINES = st.sampled_from(
    [
        b"Via: SIP/2.0/UDP 198.51.100.7:5062;branch=z9hG4bKa", b"Via: SIP/2.0/UDP a.example;rport;branch=z9hG4bKa",
        b"Via: SIP/2.0/UDP a;branch=b;rport", b"Via: SIP/2.0/UDP a;branch=b, SIP/2.0/UDP c;branch=d",
        b"v: SIP/2.0/UDP a;branch=b",
        b"Via: SIP/2.0/UDP a;maddr=192.0.2.1;branch=b", b"Via: SIP/2.0/UDP a;rport;branch=b;rport", b"Via:SIP/2.0/UDP a;branch=b",
        b"From: <sip:a@b>;tag=1", b"FROM: <sip:a@b>;tag=1", b"From:", b"From", b"From: ",
        b"To: <sip:a@b>", b"To: <sip:a@b>;tag=x", b"To:", b"To: \"tag\" <sip:a@b>", b"Token: x", b"t: <sip:a@b>",
        b"Call-ID: c", b"Call-ID:", b"Call-ID:  c d ", b"i: c", b"Call-Info: x", b"Call-Id: e",
        b"CSeq: 1 INVITE", b"CSeq:1 INVITE", b"CSeq: 1  INVITE", b"CSeq: x INVITE", b"CSeq: 1", b"cseq: 2 INVITE", b"CS: 1",
        b" folded", b"\tfolded", b"X: y", b"Contact: <sip:a@b>", b"\0", b"Content-Length: 0", b":", b"a\rb: c", b"a\nVia: d",
    ]
)  # fmt: skip


@given(st.lists(_LINES, min_size=4, max_size=12), st.sampled_from(FLOWS))
def test_any_lines_in_any_order(lines: list[bytes], flow: Flow) -> None:
    agree(b"\r\n".join([b"INVITE sip:b@c SIP/2.0", *lines, b"", b""]), flow)


@given(
    st.permutations([line for line in request(via_params=";rport").split(b"\r\n")[1:] if line]), st.sampled_from(FLOWS)
)
def test_the_usual_lines_in_any_order_are_taken(lines: list[bytes], flow: Flow) -> None:
    assert agree(b"\r\n".join([b"INVITE sip:b@c SIP/2.0", *lines, b"", b""]), flow)


@given(st.integers(0, 400), st.binary(max_size=3), st.sampled_from(FLOWS))
def test_a_byte_or_two_changed_anywhere(at: int, put: bytes, flow: Flow) -> None:
    data = request(via_params=";rport", headers=("Call-Info: x",))
    agree(data[:at] + put + data[at + len(put) :], flow)
    agree(data[:at] + put + data[at:], flow)


def test_corpus_messages_are_answered_alike() -> None:
    if not SHARED.exists():
        pytest.skip("the corpus is not beside this checkout")
    taken = 0
    for line in (SHARED / "corpus" / "INDEX.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row["kind"] != "pcap":
            taken += agree((SHARED / "corpus" / row["file"]).read_bytes(), FLOWS[0])
    print(f"plain in the corpus: {taken}")
    assert taken > 20
