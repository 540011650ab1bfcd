"""SPEC X3, `transactions = one_verdict`: a retransmission gets its first copy's verdict in every state; copies count in both."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sipguard.core.controller import OverloadController
from sipguard.core.levels import State
from sipguard.core.policy import Policy
from sipguard.core.verdicts import Verdict
from sipguard.guard.checks import CheckChain, NamedCheck
from sipguard.guard.flows import Flow
from sipguard.guard.keys import Key
from sipguard.guard.refused import MEMORY_NS
from sipguard.guard.status import status_of
from sipguard.guard.transactions import MAX_COPIES, Transactions
from sipguard.wire.head import Head, read_head
from tests.guard.messages import request, start_line
from tests.guard.rig import SECOND, SECRET, A, C, N, Rig, judged, parameters, total

ALLOW, REJECT, DROP = Verdict.ALLOW, Verdict.REJECT, Verdict.DROP
FIRST_OF: dict[State, Verdict] = {N: ALLOW, A: REJECT, C: DROP}


def one_verdict(**given: Any) -> Rig:
    return Rig(one_verdict=True, **given)


def verdict_of(rig: Rig, data: bytes, flow: Flow | None = None) -> Verdict:
    """What the law said of one request, by the controller's counters."""
    controller = rig.controller
    before = (controller.allowed, controller.rejected, controller.dropped)
    rig.receive(data, flow)
    after = (controller.allowed, controller.rejected, controller.dropped)
    grown = tuple(new - old for new, old in zip(after, before, strict=True))
    return {(1, 0, 0): ALLOW, (0, 1, 0): REJECT, (0, 0, 1): DROP}[grown]  # type: ignore[index]


def to_state(rig: Rig, state: State) -> None:
    """Into a state by the law's own ways, out of any other, within a few seconds."""
    if state is A and rig.controller.state is C:
        to_state(rig, N)
    if state is N:
        while rig.controller.state is not N:
            rig.tick()
    else:
        rig.into(state)


@pytest.mark.parametrize("transport", ["udp", "tcp"])
@pytest.mark.parametrize("later", [N, A, C])
@pytest.mark.parametrize("first", [N, A, C])
def test_a_copy_gets_the_first_ones_verdict_in_every_state(first: State, later: State, transport: str) -> None:
    rig = one_verdict()
    to_state(rig, first)
    data, flow = request(branch="z9hG4bKcopied", transport=transport.upper()), rig.client(transport=transport)
    assert verdict_of(rig, data, flow) is FIRST_OF[first]
    to_state(rig, later)
    for _ in range(3):
        assert verdict_of(rig, data, flow) is FIRST_OF[first]
    assert verdict_of(rig, request(branch="z9hG4bKnew"), flow) is FIRST_OF[later]


@pytest.mark.parametrize("later", [N, A, C])
@pytest.mark.parametrize("first", [N, A, C])
def test_per_request_each_copy_is_judged_by_the_state_it_meets(first: State, later: State) -> None:
    """SPEC X3: the default is the source's behaviour."""
    rig = Rig()
    to_state(rig, first)
    assert verdict_of(rig, request()) is FIRST_OF[first]
    to_state(rig, later)
    assert verdict_of(rig, request()) is FIRST_OF[later]
    assert "transactions" not in status_of(rig.guard)
    assert status_of(rig.guard)["policy"]["transactions"] == "per_request"


def test_what_goes_out_is_the_same_for_each_copy() -> None:
    """Allowed: forwarded with the same branch. Refused: the same 503, To tag included (RFC 3261 8.2.6). Dropped: nothing."""
    rig = one_verdict()
    allowed = request(branch="z9hG4bKallowed")
    there = rig.forwarded(allowed)
    rig.into(A)
    refused = request(branch="z9hG4bKrefused")
    answer = rig.answered(refused)
    assert start_line(answer.data) == b"SIP/2.0 503 Service Unavailable"
    rig.into(C)
    dropped = request(branch="z9hG4bKdropped")
    assert rig.receive(dropped) is None
    for state in (C, N):
        to_state(rig, state)
        assert rig.forwarded(allowed) == there
        assert rig.answered(refused) == answer
        assert rig.receive(dropped) is None


def test_copies_count_in_the_window_and_in_the_second() -> None:
    """SPEC M2, X3."""
    rig = one_verdict(law={"LC": 10000, "LCPS": 5})
    data = request()
    assert [verdict_of(rig, data) for _ in range(9)] == [ALLOW] * 9
    assert verdict_of(rig, request(branch="z9hG4bKother")) is REJECT
    assert rig.counters.lcps_refused == 1
    rig.tick()
    assert rig.controller.rps == 100
    assert total(rig.counters.requests) == judged(rig.guard) == 10


def test_a_refused_copy_in_the_normal_state_is_no_lcps_refusal() -> None:
    """SPEC V3: that figure is of growth only."""
    rig = one_verdict().into(A)
    rig.answered(request())
    to_state(rig, N)
    rig.answered(request())
    assert rig.counters.lcps_refused == 0


def test_32_seconds_from_the_first_copy() -> None:
    """Not from the last: a copy a second later does not prolong it."""
    rig = one_verdict(law={"LRC": 100, "PC": 10000}).into(A)
    assert verdict_of(rig, request()) is REJECT
    first_ns = rig.now_ns
    to_state(rig, N)
    rig.now_ns = first_ns + MEMORY_NS - 1
    assert verdict_of(rig, request()) is REJECT
    rig.now_ns = first_ns + MEMORY_NS
    assert verdict_of(rig, request()) is ALLOW


@pytest.mark.parametrize(
    "other",
    [
        {"branch": "z9hG4bKb2"},
        {"sent_by": "198.51.100.8:5062"},
        {"sent_by": "198.51.100.7:5063"},
        {"method": "OPTIONS"},
    ],
)
def test_another_branch_sent_by_or_method_is_another_transaction(other: dict[str, Any]) -> None:
    """RFC 3261 17.2.3."""
    rig = one_verdict()
    assert verdict_of(rig, request()) is ALLOW
    rig.into(A)
    assert verdict_of(rig, request(**other)) is REJECT
    assert verdict_of(rig, request(to_tag="x", call_id="c7", cseq=9)) is ALLOW


@pytest.mark.parametrize("branch", [None, "1", "z9hG4bK"])
def test_without_the_magic_cookie_call_id_and_cseq_tell_transactions_apart(branch: str | None) -> None:
    """RFC 3261 8.1.1.7, 17.2.3: such a branch may be the same in all that a client sends."""
    rig = one_verdict()
    assert verdict_of(rig, request(branch=branch)) is ALLOW
    rig.into(A)
    assert verdict_of(rig, request(branch=branch)) is ALLOW
    assert verdict_of(rig, request(branch=branch, cseq=2)) is REJECT
    assert verdict_of(rig, request(branch=branch, call_id="c2")) is REJECT


def test_without_a_via_each_copy_stands_for_itself() -> None:
    rig = one_verdict()
    lines = request().split(b"\r\n")
    bare = b"\r\n".join(line for line in lines if not line.startswith(b"Via"))
    assert verdict_of(rig, bare) is ALLOW
    rig.into(A)
    assert verdict_of(rig, bare) is REJECT


def test_methods_that_always_pass_are_not_remembered() -> None:
    """SPEC V1: nothing but room would be spent."""
    rig = one_verdict()
    for method in ("BYE", "ACK", "CANCEL", "NOTIFY", "FOO"):
        assert verdict_of(rig, request(method)) is ALLOW
    assert status_of(rig.guard)["transactions"] == {"remembered": 0, "copies": 0, "evicted": 0}


def test_a_flood_under_one_allowed_branch_does_not_pass() -> None:
    """A client sends a request at most 11 times in 32 s (RFC 3261 17.1.2.2): what goes on is judged by the state."""
    rig = one_verdict()
    assert verdict_of(rig, request()) is ALLOW
    rig.into(C)
    verdicts = [verdict_of(rig, request()) for _ in range(MAX_COPIES + 100)]
    assert verdicts == [ALLOW] * MAX_COPIES + [DROP] * 100


def test_an_allowed_copy_uses_up_the_allowance() -> None:
    """SPEC X1: every request passed on does. LC 100 at TR 100: ten in a window."""
    rig = one_verdict(policy=Policy(shed="excess"))
    assert verdict_of(rig, request(branch="z9hG4bKearly")) is ALLOW
    rig.into(C)
    assert verdict_of(rig, request(branch="z9hG4bKearly")) is ALLOW
    new = [verdict_of(rig, request(branch=f"z9hG4bKnew{k}")) for k in range(12)]
    assert new == [ALLOW] * 9 + [DROP] * 3
    assert verdict_of(rig, request(branch="z9hG4bKearly")) is ALLOW
    rig.tick()
    assert verdict_of(rig, request(branch="z9hG4bKnew11")) is DROP
    assert verdict_of(rig, request(branch="z9hG4bKnew0")) is ALLOW


def test_in_shadow_the_copy_would_have_been_what_the_first_would_have_been() -> None:
    """SPEC X2 with X3."""
    rig = one_verdict(policy=Policy(enforce=False)).into(A)
    controller = rig.controller
    rig.forwarded(request())
    rig.into(C)
    before = (controller.shadow_rejected, controller.shadow_dropped)
    rig.forwarded(request())
    assert (controller.shadow_rejected, controller.shadow_dropped) == (before[0] + 1, before[1])
    rig.forwarded(request(branch="z9hG4bKlate"))
    to_state(rig, N)
    before = (controller.shadow_rejected, controller.shadow_dropped)
    rig.forwarded(request(branch="z9hG4bKlate"))
    assert (controller.shadow_rejected, controller.shadow_dropped) == (before[0], before[1] + 1)


def test_copies_of_what_the_law_let_through_pass_the_checks_too() -> None:
    """SPEC V5: every request that the level and LCPS let through passes the chain; the memory is the law's alone."""
    seen: list[str | None] = []

    def look(head: Head, flow: Flow, now_ns: int) -> Verdict:
        seen.append(head.method)
        return REJECT

    rig = one_verdict(checks=CheckChain((NamedCheck("adl", look),)))
    rig.answered(request())
    rig.into(C)
    seen.clear()
    rig.answered(request())
    assert seen == ["INVITE"]
    assert rig.receive(request(branch="z9hG4bKnew")) is None
    assert seen == ["INVITE"]


def test_the_kernel_drops_nothing() -> None:
    """DESIGN §3: it cannot tell a copy from a new request."""
    rig = one_verdict(law={"LCDM": "drop_only"})
    assert rig.overload() is C
    assert not rig.guard.drops_in_kernel


def test_the_status_tells() -> None:
    rig = one_verdict()
    for _ in range(3):
        rig.receive(request())
    rig.receive(request("REGISTER"))
    status = status_of(rig.guard)
    assert status["policy"]["transactions"] == "one_verdict"
    assert status["transactions"] == {"remembered": 2, "copies": 2, "evicted": 0}


# -- the memory --------------------------------------------------------------------------------------------------------


def test_the_memory_has_a_cap_and_the_oldest_makes_room() -> None:
    memory = Transactions(Key(SECRET), cap=3)
    for k in range(5):
        memory.remember(b"%d" % k, DROP, k)
    assert (len(memory), memory.evicted) == (3, 2)
    assert [memory.repeated(b"%d" % k, 5) for k in range(5)] == [None, None, DROP, DROP, DROP]


def test_what_is_over_makes_room_first_and_is_no_eviction() -> None:
    memory = Transactions(Key(SECRET), cap=4)
    for k in range(4):
        memory.remember(b"%d" % k, ALLOW, 0)
    for k in range(4, 9):
        memory.remember(b"%d" % k, ALLOW, MEMORY_NS)
        assert len(memory) <= 4
    # Two for one: of the four, all are over and go as the next come; only the fifth new one pushes out a live one.
    assert memory.evicted == 1


@given(st.binary(max_size=200), st.sampled_from(["INVITE", "REGISTER"]))
def test_a_name_is_12_bytes_whatever_the_message(branch: bytes, method: str) -> None:
    """Remote bytes do not size the memory."""
    data = request(method).replace(b"z9hG4bKa1", b"z9hG4bK" + branch * 40)
    name = Transactions(Key(SECRET)).name_of(read_head(data), method)
    assert name is None or len(name) == 12


steps = st.one_of(
    st.tuples(
        st.just("send"),
        st.sampled_from(["INVITE", "OPTIONS", "BYE"]),
        st.integers(0, 5),
        st.sampled_from(["198.51.100.7:5062", "198.51.100.8"]),
        st.integers(1, 80),
    ),
    st.tuples(st.just("load"), st.integers(0, 15)),
    st.tuples(st.just("tick"), st.integers(1, 5)),
    st.tuples(st.just("wait"), st.sampled_from([1, SECOND, 10 * SECOND, 32 * SECOND - 1, 33 * SECOND])),
)


@settings(deadline=None)
@given(st.lists(steps, max_size=40))
def test_the_guard_against_a_naive_memory(story: list[tuple[Any, ...]]) -> None:
    """SPEC X3 beside a guardless law that judges each copy anew, and a dict that forgets nothing but by its time."""
    rig, law = one_verdict(), OverloadController(parameters())
    memory: dict[tuple[str, ...], list[Any]] = {}
    unique = 0

    def expect(method: str, key: tuple[str, ...], now_ns: int) -> Verdict:
        judged_anew = law.judge(method, now_ns=now_ns)
        if method == "BYE":
            return judged_anew
        known = memory.get(key)
        if known is None or now_ns >= known[1]:
            memory[key] = [judged_anew, now_ns + MEMORY_NS, 0]
            return judged_anew
        known[2] += 1
        first: Verdict = known[0]
        return first if known[2] <= MAX_COPIES else judged_anew

    for step in story:
        if step[0] == "send":
            _, method, number, sent_by, copies = step
            data = request(method, branch=f"z9hG4bK{number}", sent_by=sent_by)
            for _ in range(copies):
                wanted = expect(method, (method, f"{number}", sent_by), rig.now_ns)
                assert verdict_of(rig, data) is wanted
        elif step[0] == "load":
            for _ in range(step[1]):
                unique += 1
                wanted = expect("OPTIONS", ("load", f"{unique}"), rig.now_ns)
                assert verdict_of(rig, request("OPTIONS", branch=f"z9hG4bKload{unique}")) is wanted
        elif step[0] == "tick":
            for _ in range(step[1]):
                rig.tick()
                law.advance(now_ns=rig.now_ns)
        else:
            rig.now_ns += step[1]
            rig.guard.tick(rig.now_ns)
            law.advance(now_ns=rig.now_ns)
        assert rig.controller.state is law.state
        assert rig.controller.rps == law.rps
    assert total(rig.counters.requests) == judged(rig.guard)
