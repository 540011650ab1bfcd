"""SPEC M2: an ACK to a final response of the guard's own is neither counted nor forwarded; every other ACK is both."""

from __future__ import annotations

import pytest

from sipguard.guard.flows import Flow
from sipguard.guard.keys import Key, Keyring
from tests.guard.messages import ack_of, request, response_to, start_line, value
from tests.guard.rig import OTHER_SECRET, SECOND, SECRET, A, C, Rig, total


def absorbs(rig: Rig, ack: bytes, flow: Flow | None = None) -> bool:
    """Whether it goes nowhere, is absorbed once and counted nowhere."""
    before = (rig.counters.absorbed, dict(rig.counters.requests), rig.controller.allowed, dict(rig.counters.outcomes))
    action = rig.receive(ack, flow)
    after = (rig.counters.absorbed, dict(rig.counters.requests), rig.controller.allowed, dict(rig.counters.outcomes))
    if action is None and after == (before[0] + 1, *before[1:]):
        return True
    assert after[0] == before[0]
    return False


def counts_and_forwards(rig: Rig, ack: bytes, flow: Flow | None = None) -> bool:
    before = rig.counters.requests.get("ACK", 0)
    action = rig.receive(ack, flow)
    return action is not None and action.flow.listener.inside and rig.counters.requests.get("ACK", 0) == before + 1


def test_the_ack_of_our_503_is_absorbed_by_its_to_tag() -> None:
    rig = Rig().into(A)
    invite = request()
    ack = ack_of(invite, rig.answered(invite).data)
    assert absorbs(rig, ack)
    # Again: a copy of the 503 brings a copy of the ACK. And in every state.
    assert absorbs(rig, ack)
    rig.into(C)
    assert absorbs(rig, ack)
    # No memory is needed for it.
    assert len(rig.guard._refused) == 0


@pytest.mark.parametrize(
    "invite",
    [
        request(max_forwards=0),
        request(headers=["Max-Forwards: 70"]),
        request().replace(b"CSeq: 1 INVITE", b"CSeq: 4294967296 INVITE"),
        request(branch=None, max_forwards=0),
        request(via_params=";rport", sent_by="10.9.9.9", max_forwards=0),
    ],
    ids=["483", "400", "400-no-cseq-number", "no-branch", "nat"],
)
@pytest.mark.parametrize("to_tag", [None, "srv1"], ids=["initial", "in-dialog"])
def test_the_ack_of_every_final_response_of_ours_is_absorbed(invite: bytes, to_tag: str | None) -> None:
    if to_tag:
        invite = invite.replace(b"To: <sip:bob@example.com>", b"To: <sip:bob@example.com>;tag=srv1")
    rig = Rig()
    assert absorbs(rig, ack_of(invite, rig.answered(invite).data))


def test_the_ack_of_a_no_upstream_503_is_absorbed() -> None:
    rig = Rig(servers=())
    assert absorbs(rig, ack_of(request(), rig.answered(request()).data))


def test_the_ack_of_a_refused_reinvite_is_known_by_memory_for_32_seconds() -> None:
    """Its To tag is the server's. 64·T1 = 32 s (RFC 3261 17.1.1.2), to the nanosecond."""
    rig = Rig().into(A)
    start_ns = rig.now_ns
    reinvite = request(to_tag="srv1", cseq=2)
    answer = rig.answered(reinvite)
    assert value(answer.data, "To") == b"<sip:bob@example.com>;tag=srv1"
    ack = ack_of(reinvite, answer.data)
    for after_ns in (0, SECOND, 32 * SECOND - 1):
        rig.now_ns = start_ns + after_ns
        assert absorbs(rig, ack)
    rig.now_ns = start_ns + 32 * SECOND
    assert not absorbs(rig, ack)


def test_a_copy_of_the_refused_reinvite_renews_the_memory() -> None:
    rig = Rig().into(A)
    start_ns = rig.now_ns
    reinvite = request(to_tag="srv1", cseq=2)
    answer = rig.answered(reinvite)
    rig.now_ns = start_ns + 16 * SECOND
    assert rig.answered(reinvite) == answer
    rig.now_ns = start_ns + 33 * SECOND
    assert absorbs(rig, ack_of(reinvite, answer.data))


@pytest.mark.parametrize(
    "other",
    [
        {"branch": "z9hG4bKother"},
        {"call_id": "other"},
        {"cseq": 3},
        {"sent_by": "198.51.100.8"},
    ],
)
def test_an_ack_of_another_transaction_passes_the_memory_by(other: dict[str, object]) -> None:
    rig = Rig().into(A)
    same: dict[str, object] = {"to_tag": "srv1", "cseq": 2}
    rig.answered(request(**same))  # type: ignore[arg-type]
    assert counts_and_forwards(rig, request("ACK", **{**same, **other}))  # type: ignore[arg-type]


def test_only_refused_invites_within_dialogs_are_remembered() -> None:
    """DESIGN §3: for a refused re-INVITE. Others have our tag or no ACK."""
    rig = Rig().into(A)
    rig.answered(request())
    for method in ("OPTIONS", "INFO", "UPDATE", "MESSAGE", "REFER"):
        rig.answered(request(method, to_tag="srv1"))
    assert len(rig.guard._refused) == 0
    rig.answered(request(to_tag="srv1"))
    assert len(rig.guard._refused) == 1


def test_the_ack_of_a_servers_final_response_is_counted_and_forwarded() -> None:
    """SPEC M2: every SIP request counts, whatever its method; V1: ACK passes in every state."""
    rig = Rig()
    invite = request()
    asked = rig.forwarded(invite)
    back = rig.sent(response_to(asked.data, 486), rig.server())
    ack = ack_of(invite, back.data)
    for state in (rig.controller.state, A, C):
        rig.into(state)
        assert counts_and_forwards(rig, ack)
    # To a 200 the ACK is a transaction of its own (13.2.2.4).
    assert counts_and_forwards(rig, request("ACK", branch="z9hG4bKnew", to_tag="srv1"))
    assert rig.counters.absorbed == 0


@pytest.mark.parametrize("tag", [None, "", "srv1", "AAAAAAAAAAAAAAAA"])
def test_an_ack_with_a_tag_that_is_not_ours_is_counted(tag: str | None) -> None:
    assert counts_and_forwards(Rig(), request("ACK", to_tag=tag))


def test_our_tag_on_another_transaction_is_not_ours() -> None:
    """A client cannot take one refusal's tag to send uncounted ACKs: the tag belongs to one transaction."""
    rig = Rig().into(A)
    invite = request()
    ours = value(rig.answered(invite).data, "To").split(b"tag=")[1].decode()
    for other in ({"branch": "z9hG4bKother"}, {"call_id": "other"}, {"cseq": 2}, {"sent_by": "198.51.100.8"}):
        assert counts_and_forwards(rig, request("ACK", to_tag=ours, **other))


def test_the_tag_of_the_previous_key_counts_until_its_time() -> None:
    """DESIGN §3: a restart with a new key in the middle of a refusal."""
    rig = Rig().into(A)
    invite = request()
    ack = ack_of(invite, rig.answered(invite).data)
    renewed = rig.restarted(Keyring(Key(OTHER_SECRET), Key(SECRET), 3600 * SECOND))
    assert renewed.receive(ack, rig.client(), 3600 * SECOND - 1) is None
    assert renewed.counters.absorbed == 1
    assert renewed.receive(ack, rig.client(), 3600 * SECOND) is not None
    assert renewed.counters.absorbed == 1
    assert renewed.counters.requests == {"ACK": 1}


def test_absorbed_acks_do_not_keep_the_level_up() -> None:
    """SPEC M2: else the guard's own refusals would. 20 absorbed ACKs a window against LC's 10, and the calm is proven."""
    rig = Rig().into(A)
    invite = request()
    ack = ack_of(invite, rig.answered(invite).data)
    rig.tick()
    for _ in range(rig.controller.parameters.LRC):
        for _ in range(20):
            assert absorbs(rig, ack)
        rig.tick()
        assert rig.controller.rps == 0
    assert rig.controller.state.value == "normal"


def test_other_acks_do_keep_it_up() -> None:
    rig = Rig(law={"LCDM": "denial_only"}).into(A)
    for _ in range(rig.controller.parameters.LRC + 1):
        for number in range(20):
            rig.receive(request("ACK", to_tag="srv1", branch=f"z9hG4bK{number}"))
        rig.tick()
        assert rig.controller.rps == 200
    assert rig.controller.state is A


def test_absorbed_stands_apart_from_requests_and_verdicts() -> None:
    """DESIGN §5: requests = allow + reject + drop; absorbed apart."""
    rig = Rig().into(A)
    invite = request()
    ack = ack_of(invite, rig.answered(invite).data)
    for _ in range(7):
        rig.receive(ack)
    controller = rig.controller
    assert rig.counters.absorbed == 7
    assert "ACK" not in rig.counters.requests
    assert total(rig.counters.requests) == controller.allowed + controller.rejected + controller.dropped


# -- from inside -------------------------------------------------------------------------------------------------------


def test_a_servers_ack_to_an_answer_of_ours_is_absorbed_too() -> None:
    """SPEC M2 on the other side: the client never saw that INVITE, so its ACK must not go out."""
    rig = Rig()
    invite = request(uri="sip:alice@198.51.100.7:5062", max_forwards=0, sent_by="10.0.0.10:5080")
    answer = rig.answered(invite, rig.server())
    assert start_line(answer.data) == b"SIP/2.0 483 Too Many Hops"
    assert rig.receive(ack_of(invite, answer.data), rig.server()) is None
    assert rig.counters.absorbed == 1
    reinvite = request(
        uri="sip:alice@198.51.100.7:5062", max_forwards=0, sent_by="10.0.0.10:5080", to_tag="af1", cseq=2
    )
    answer = rig.answered(reinvite, rig.server())
    assert rig.receive(ack_of(reinvite, answer.data), rig.server()) is None
    assert rig.counters.absorbed == 2
    # Those of the client's final responses go out.
    other = request("ACK", "sip:alice@198.51.100.7:5062", to_tag="af1", branch="z9hG4bKnew")
    assert rig.forwarded(other, rig.server()).flow.remote == ("198.51.100.7", 5062)


# -- undeliverable -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("to_tag", [None, "srv1"])
def test_the_ack_of_an_undeliverable_invites_503_is_absorbed(to_tag: str | None) -> None:
    rig = Rig()
    client = rig.client(transport="tcp")
    invite = request(transport="TCP", to_tag=to_tag, sent_by="client.example.com", via_params=";rport")
    answer = rig.guard.undeliverable(rig.forwarded(invite, client), 0)
    assert answer is not None
    assert answer.flow == client
    assert absorbs(rig, ack_of(invite, answer.data), client)
