"""SPEC V5: an ordered chain of named checks behind the law, `adl` first, each counted under its own name."""

from __future__ import annotations

import pytest

from sipguard.core.policy import Policy
from sipguard.core.verdicts import Verdict
from sipguard.guard.checks import ADL, CheckChain, NamedCheck
from sipguard.guard.flows import Flow
from sipguard.wire.head import Head
from tests.guard.messages import ack_of, request, start_line
from tests.guard.rig import A, C, N, Rig, total

ALLOW, REJECT, DROP = Verdict.ALLOW, Verdict.REJECT, Verdict.DROP


class Recorder:
    """A check that notes whom it saw and says what it was told to say."""

    def __init__(self, verdict: Verdict = ALLOW, log: list[str] | None = None, name: str = "") -> None:
        self.verdict = verdict
        self.seen: list[tuple[str | None, Flow, int]] = []
        self._log = log
        self._name = name

    def __call__(self, head: Head, flow: Flow, now_ns: int) -> Verdict:
        self.seen.append((head.method, flow, now_ns))
        if self._log is not None:
            self._log.append(self._name)
        return self.verdict


def chain(**checks: Recorder) -> CheckChain:
    return CheckChain(tuple(NamedCheck(name, check) for name, check in checks.items()))


def test_the_chain_is_empty_by_default() -> None:
    rig = Rig()
    assert not CheckChain()
    rig.forwarded(request())
    assert rig.counters.checks == {}


def test_checks_run_in_order_adl_first_until_one_does_not_allow() -> None:
    log: list[str] = []
    adl, second, third = (Recorder(v, log, n) for v, n in ((ALLOW, ADL), (REJECT, "second"), (ALLOW, "third")))
    rig = Rig(checks=chain(adl=adl, second=second, third=third))
    assert start_line(rig.answered(request()).data) == b"SIP/2.0 503 Service Unavailable"
    assert log == [ADL, "second"]
    assert rig.counters.checks == {"second": 1}
    second.verdict = ALLOW
    rig.forwarded(request())
    assert log == [ADL, "second", ADL, "second", "third"]
    assert rig.counters.checks == {"second": 1}


def test_adl_elsewhere_than_first_or_a_name_given_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="adl is allowed in the first place only"):
        chain(other=Recorder(), adl=Recorder())
    with pytest.raises(ValueError, match="each name once"):
        CheckChain((NamedCheck("a", Recorder()), NamedCheck("a", Recorder())))


def test_a_check_sees_the_message_its_flow_and_the_time() -> None:
    adl = Recorder()
    rig = Rig(checks=chain(adl=adl))
    rig.now_ns = 42
    client = rig.client("203.0.113.9", transport="tcp")
    rig.forwarded(request("BYE", to_tag="x"), client)
    assert adl.seen == [("BYE", client, 42)]


@pytest.mark.parametrize(("verdict", "expected"), [(REJECT, b"SIP/2.0 503 Service Unavailable"), (DROP, None)])
def test_a_check_may_refuse_or_discard(verdict: Verdict, expected: bytes | None) -> None:
    """Its request stays one that the law allowed: requests = allow + reject + drop, checks counted apart."""
    rig = Rig(checks=chain(adl=Recorder(verdict)))
    action = rig.receive(request())
    assert (None if action is None else start_line(action.data)) == expected
    assert rig.counters.checks == {"adl": 1}
    assert (rig.controller.allowed, rig.controller.rejected, rig.controller.dropped) == (1, 0, 0)


def test_a_request_refused_by_the_level_reaches_no_check_and_changes_no_counter() -> None:
    """V5, for 503 and for the silent drop; what the level lets through in these states reaches the chain."""
    adl = Recorder(REJECT)
    rig = Rig(checks=chain(adl=adl), law={"LCDM": "denial_to_drop"})
    for state, sheds in ((N, False), (A, True), (C, True)):
        rig.into(state)
        adl.seen.clear()
        rig.counters.checks.clear()
        for _ in range(5):
            rig.receive(request("INVITE"))
        assert len(adl.seen) == (0 if sheds else 5)
        assert rig.counters.checks == ({} if sheds else {"adl": 5})
        rig.receive(request("BYE", to_tag="x"))
        assert adl.seen[-1][0] == "BYE"


def test_a_request_refused_by_lcps_reaches_no_check() -> None:
    """V3: before ADL and every other check."""
    adl = Recorder()
    rig = Rig(checks=chain(adl=adl), law={"LC": 10000, "LCPS": 3})
    for _ in range(10):
        rig.receive(request())
    assert len(adl.seen) == 3
    assert rig.counters.lcps_refused == 7


def test_an_absorbed_ack_and_what_comes_from_inside_reach_no_check() -> None:
    adl = Recorder()
    rig = Rig(checks=chain(adl=adl)).into(A)
    adl.seen.clear()
    invite = request()
    rig.receive(ack_of(invite, rig.answered(invite).data))
    rig.forwarded(request(uri="sip:alice@198.51.100.9"), rig.server())
    assert adl.seen == []


# -- shadow ------------------------------------------------------------------------------------------------------------


def test_in_shadow_mode_a_check_counts_and_every_request_is_let_through() -> None:
    """X2: decided and counted as if enforced, every request is let through."""
    for verdict in (REJECT, DROP):
        rig = Rig(checks=chain(adl=Recorder(verdict)), policy=Policy(enforce=False))
        for _ in range(5):
            rig.forwarded(request())
        assert rig.counters.checks == {"adl": 5}


def test_in_shadow_mode_what_would_have_been_refused_reaches_no_check() -> None:
    """X2 with V5: counted as if enforced, so it changes none of their counters."""
    adl = Recorder(REJECT)
    rig = Rig(checks=chain(adl=adl), policy=Policy(enforce=False), law={"LCPS": 30})
    for state, sheds in ((N, 0), (A, 5), (C, 5)):
        rig.into(state)
        adl.seen.clear()
        rig.counters.checks.clear()
        for _ in range(5):
            rig.forwarded(request("INVITE"))
            rig.forwarded(request("BYE", to_tag="x"))
        assert [method for method, _, _ in adl.seen].count("INVITE") == 5 - sheds
        assert [method for method, _, _ in adl.seen].count("BYE") == 5
        assert total(rig.counters.checks) == 10 - sheds
