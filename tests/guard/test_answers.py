"""The guard's own answers: stateless, complete, the same for each copy (RFC 3261 8.2.6, 8.2.7; RFC 7339 5.10.2; DESIGN §3)."""

from __future__ import annotations

import pytest

from sipguard.core.policy import SHEDDABLE_METHODS, Policy
from sipguard.guard.flows import Send
from sipguard.guard.guard import Guard
from sipguard.guard.keys import Key, Keyring
from tests.guard.messages import body_of, lines_of, param, request, start_line, value, values
from tests.guard.rig import OTHER_SECRET, SECRET, A, C, Rig

VIAS = [
    "SIP/2.0/UDP 203.0.113.9;branch=z9hG4bKb2",
    "SIP/2.0/TCP p3.example.com:5070;branch=z9hG4bKb3;received=192.0.2.200",
]


def test_the_503_has_all_that_rfc_3261_asks_for_and_no_more() -> None:
    """8.2.6.1, 8.2.6.2: all Vias in order, From, To with a tag, Call-ID, CSeq; DESIGN §3: a short Server, no body."""
    rig = Rig().into(A)
    answer = rig.answered(
        request(vias=VIAS, via_params=";rport", body=b"v=0\r\n", headers=["Subject: x", "Contact: <sip:a@b>"])
    )
    assert answer.flow == rig.client()
    assert start_line(answer.data) == b"SIP/2.0 503 Service Unavailable"
    tag = param(value(answer.data, "To"), "tag")
    assert tag
    assert lines_of(answer.data) == [
        b"Via: SIP/2.0/UDP 198.51.100.7:5062;branch=z9hG4bKa1;rport=5062;received=198.51.100.7",
        b"Via: " + VIAS[0].encode(),
        b"Via: " + VIAS[1].encode(),
        b"From: <sip:alice@example.com>;tag=af1",
        b"To: <sip:bob@example.com>;tag=" + tag,
        b"Call-ID: c1@198.51.100.7",
        b"CSeq: 1 INVITE",
        b"Server: sipguard",
        b"Content-Length: 0",
    ]
    assert body_of(answer.data) == b""


def test_a_to_tag_that_is_there_stays() -> None:
    """8.2.6.2: within a dialog the tag is the dialog's."""
    rig = Rig().into(A)
    assert value(rig.answered(request(to_tag="srv1")).data, "To") == b"<sip:bob@example.com>;tag=srv1"


def test_every_copy_gets_the_same_answer_over_time_restarts_and_methods() -> None:
    """8.2.7: a stateless server's tag is the same for each retransmission; DESIGN §3: a keyed hash."""
    rig = Rig().into(A)
    first = rig.answered(request())
    assert rig.answered(request()) == first
    again = rig.restarted(Keyring(Key(SECRET)))
    assert again.undeliverable(rig_forward(again, rig), 0) == first
    other = rig.restarted(Keyring(Key(OTHER_SECRET)))
    answer = other.undeliverable(rig_forward(other, rig), 0)
    assert answer is not None
    assert value(answer.data, "To") != value(first.data, "To")


def rig_forward(guard: Guard, rig: Rig) -> Send:
    """What this guard would send to the server for the usual INVITE."""
    action = guard.receive(request(), rig.client(), 0)
    assert action is not None
    return action


def test_another_request_has_another_tag() -> None:
    rig = Rig().into(A)
    tags = {
        value(rig.answered(data).data, "To")
        for data in (
            request(),
            request(branch="z9hG4bKa2"),
            request(call_id="c2"),
            request(cseq=2),
            request(sent_by="198.51.100.7:5063"),
        )
    }
    assert len(tags) == 5


def test_the_answer_leaves_on_the_flow_of_the_request() -> None:
    """RFC 3581 4, DESIGN §3: to the source, from the address that was asked."""
    rig = Rig().into(A)
    for flow in (
        rig.client(),
        rig.client("203.0.113.5", 12345),
        rig.client(transport="tcp"),
        rig.client("2001:db8:c::7"),
    ):
        assert rig.answered(request(sent_by="nowhere.invalid:9"), flow).flow == flow


def test_the_server_header_can_be_switched_off_or_named() -> None:
    for server, expected in ((None, []), (b"edge-7", [b"edge-7"])):
        rig = Rig(server=server).into(A)
        assert values(rig.answered(request()).data, "Server") == expected


# -- Retry-After -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", sorted(SHEDDABLE_METHODS))
@pytest.mark.parametrize("vias", [[], VIAS[:1]], ids=["one-via", "two-vias"])
def test_retry_after_stands_on_register_and_subscribe_with_one_via_only(method: str, vias: list[str]) -> None:
    """RFC 7339 5.10.2: elsewhere it would blank a whole trunk. A second Via means a proxy in between."""
    rig = Rig().into(A)
    found = values(rig.answered(request(method, vias=vias)).data, "Retry-After")
    if method in ("REGISTER", "SUBSCRIBE") and not vias:
        (seconds,) = found
        assert 10 <= int(seconds) <= 30
    else:
        assert found == []


def test_retry_after_is_spread_over_its_whole_range_and_the_same_for_each_copy() -> None:
    """DESIGN §3: random in 10–30 s, so that what was refused together does not come back together."""
    rig = Rig().into(A)
    seen: dict[int, int] = {}
    for call in range(2100):
        data = request("REGISTER", call_id=f"r{call}")
        seconds = int(value(rig.answered(data).data, "Retry-After"))
        seen[seconds] = seen.get(seconds, 0) + 1
        assert int(value(rig.answered(data).data, "Retry-After")) == seconds
    assert set(seen) == set(range(10, 31))
    # 100 expected for each of 21 values; five standard deviations of the binomial.
    assert all(abs(n - 100) <= 50 for n in seen.values()), seen


def test_retry_after_can_be_switched_off_or_set() -> None:
    rig = Rig(retry_after_s=None).into(A)
    assert values(rig.answered(request("REGISTER")).data, "Retry-After") == []
    rig = Rig(retry_after_s=(7, 7), retry_after_methods=frozenset(("MESSAGE",))).into(A)
    assert values(rig.answered(request("MESSAGE")).data, "Retry-After") == [b"7"]
    assert values(rig.answered(request("REGISTER")).data, "Retry-After") == []


def test_retry_after_stands_on_503_only() -> None:
    rig = Rig()
    assert values(rig.answered(request("REGISTER", max_forwards=0)).data, "Retry-After") == []


# -- other answers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "status", "reason"),
    [
        (request(headers=["CSeq: 2 INVITE"]), 400, "duplicate"),
        (request().replace(b"CSeq: 1 INVITE", b"CSeq: 1 BYE"), 400, "cseq-method"),
        (request().replace(b"CSeq: 1 INVITE", b"CSeq: 4294967296 INVITE"), 400, "bad-cseq"),
        (request().replace(b"Content-Length: 0", b"Content-Length: 10"), 400, "body-short"),
        (request().replace(b"Content-Length: 0", b"Content-Length: -1"), 400, "bad-content-length"),
        (request().replace(b" SIP/2.0\r\n", b" SIP/3.0\r\n", 1), 505, "version"),
        (request(max_forwards=0), 483, "max-forwards"),
    ],
)
def test_what_cannot_go_on_is_answered_and_counted_by_reason(data: bytes, status: int, reason: str) -> None:
    """RFC 3261 16.3, 21.4.1, 21.5.6; DESIGN §5: outcomes of allow."""
    rig = Rig()
    answer = rig.answered(data)
    assert start_line(answer.data).startswith(b"SIP/2.0 %d " % status)
    assert rig.counters.outcomes == {reason: 1}
    assert (rig.controller.allowed, rig.controller.rejected) == (1, 0)
    assert rig.answered(data) == answer


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (request().replace(b"Via: SIP/2.0/UDP 198.51.100.7:5062;branch=z9hG4bKa1\r\n", b""), "no-via"),
        (request().replace(b"Via: SIP/2.0/UDP", b"Via: SIP/2.0"), "bad-via"),
        (request().replace(b"Call-ID: c1@198.51.100.7\r\n", b""), "no-call-id"),
        (request().replace(b"From: <sip:alice@example.com>;tag=af1\r\n", b""), "no-from"),
        (request().replace(b"To: <sip:bob@example.com>\r\n", b""), "no-to"),
        (request().replace(b"CSeq: 1 INVITE\r\n", b""), "no-cseq"),
    ],
)
def test_what_lacks_the_parts_of_an_answer_gets_none_and_goes_nowhere(data: bytes, reason: str) -> None:
    """RFC 3261 8.2.6 cannot be met; counted, both the reason and that nothing was said."""
    rig = Rig()
    assert rig.receive(data) is None
    assert rig.counters.outcomes == {reason: 1, "unanswerable": 1}
    assert rig.counters.requests == {"INVITE": 1}
    rig.into(A)
    before = rig.controller.rejected
    assert rig.receive(data) is None
    assert rig.counters.outcomes == {reason: 1, "unanswerable": 2}
    assert rig.controller.rejected == before + 1


@pytest.mark.parametrize("state", [A, C])
def test_an_ack_is_never_answered(state: object) -> None:
    """SPEC V1, RFC 3261 17: neither in a critical state nor for a defect, not even when it stands in refuse_methods."""
    rig = Rig(policy=Policy(refuse_methods=["ACK", *SHEDDABLE_METHODS]), stream_drop="reject", servers=())
    flows = (rig.client(), rig.client(transport="tcp"))
    defects = (
        request("ACK", to_tag="x"),
        request("ACK", to_tag="x", max_forwards=0),
        request("ACK", to_tag="x", headers=["CSeq: 2 ACK"]),
        request("ACK", to_tag="x").replace(b" SIP/2.0\r\n", b" SIP/3.0\r\n", 1),
    )
    for _ in range(2):
        for flow in flows:
            for data in defects:
                assert rig.receive(data, flow) is None
        rig.into(state)  # type: ignore[arg-type]
    for flow in flows:
        assert rig.guard.broken(defects[0], "bad-content-length", flow, 0) is None


def test_no_header_can_be_smuggled_into_an_answer() -> None:
    """A CR inside a value must not start a line of its own at a lenient reader (DESIGN §2, hostile bytes)."""
    rig = Rig().into(A)
    answer = rig.answered(request(call_id="a\rContact: <sip:evil@203.0.113.66>"))
    assert b"\r" not in answer.data.replace(b"\r\n", b"")
    assert [line.split(b":")[0] for line in lines_of(answer.data)] == [
        b"Via", b"From", b"To", b"Call-ID", b"CSeq", b"Server", b"Content-Length",
    ]  # fmt: skip


# -- the reply budget --------------------------------------------------------------------------------------------------


def test_the_reply_budget_keeps_503_bytes_under_the_bytes_received_in_the_window() -> None:
    """DESIGN §3: bytes of 503 per window ≤ bytes received, the rest silent and counted as suppressed."""
    rig = Rig(reply_budget=True).into(A)
    short = request("MESSAGE").replace(b"Max-Forwards: 70\r\n", b"").replace(b"Content-Length: 0\r\n", b"")
    for _ in range(3):
        rig.counters.outcomes.clear()
        got = said = silent = 0
        for _ in range(100):
            got += len(short)
            action = rig.receive(short)
            if action is None:
                silent += 1
            else:
                said += len(action.data)
                assert start_line(action.data).startswith(b"SIP/2.0 503 ")
            assert said <= got
        assert silent > 0
        assert said > got - len(short) * 2
        assert rig.counters.outcomes == {"reply-suppressed": silent}
        # A suppressed refusal is a refusal all the same.
        assert rig.controller.rejected >= 100
        rig.tick()


def test_requests_let_through_in_the_window_pay_for_answers_too() -> None:
    rig = Rig(reply_budget=True).into(A)
    rig.forwarded(request("BYE", to_tag="x", body=b"x" * 1000))
    for _ in range(4):
        rig.answered(request("MESSAGE"))
    assert "reply-suppressed" not in rig.counters.outcomes


def test_without_a_reply_budget_every_refusal_is_said() -> None:
    rig = Rig().into(A)
    for _ in range(100):
        rig.answered(request("MESSAGE").replace(b"Max-Forwards: 70\r\n", b""))
    assert "reply-suppressed" not in rig.counters.outcomes
