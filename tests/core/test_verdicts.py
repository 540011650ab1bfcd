"""SPEC §5: the verdict for each request, by the state as of the last evaluated cycle."""

from __future__ import annotations

import pytest

from sipguard import Policy, State, Verdict
from tests.core.windows import MS, SECOND, A, C, N, controller, in_state, states

NINE = ("REGISTER", "SUBSCRIBE", "MESSAGE", "INVITE", "OPTIONS", "INFO", "UPDATE", "REFER", "PRACK")
OTHERS = (
    "ACK",
    "BYE",
    "CANCEL",
    "NOTIFY",
    "PUBLISH",
    "FOO",
    "invite",
    "Register",
    "",
    " INVITE",
    "ИНВАЙТ",
    "x" * 10_000,
)
ALLOW, REJECT, DROP = Verdict.ALLOW, Verdict.REJECT, Verdict.DROP


@pytest.mark.parametrize(("state", "shed"), [(A, REJECT), (C, DROP)])
def test_v1_v2_the_nine_are_shed_and_no_others(state: State, shed: Verdict) -> None:
    """V1, V2: around refuses, critical drops; all others count and pass; method names are case-sensitive."""
    c = in_state(state)
    assert {method: c.admit(method, now_ns=0) for method in NINE} == dict.fromkeys(NINE, shed)
    assert {method: c.admit(method, now_ns=0) for method in OTHERS} == dict.fromkeys(OTHERS, ALLOW)
    (cycle,) = c.advance(now_ns=200 * MS)
    assert cycle.requests == len(NINE) + len(OTHERS)


def test_v1_lcps_bounds_the_nine_and_no_others() -> None:
    """V1: over LCPS the others still pass, and count."""
    c = controller(LC=10000, LCPS=1)
    assert [c.admit(method, now_ns=0) for method in ("BYE", *NINE)] == [ALLOW] + [REJECT] * 9
    assert {method: c.admit(method, now_ns=0) for method in OTHERS} == dict.fromkeys(OTHERS, ALLOW)
    assert c.admit_many("ACK", 5, now_ns=0) == [(ALLOW, 5)]


def test_v1_the_two_sets_are_apart() -> None:
    """V1: refuse_methods for 503 (LC and LCPS), drop_methods for the silent drop."""
    policy = Policy(refuse_methods={"BYE"}, drop_methods={"FOO"})
    methods = ("BYE", "FOO", "INVITE")
    assert [in_state(A, policy).admit(method, now_ns=0) for method in methods] == [REJECT, ALLOW, ALLOW]
    assert [in_state(C, policy).admit(method, now_ns=0) for method in methods] == [ALLOW, DROP, ALLOW]
    c = controller(policy, LC=10000, LCPS=1)
    assert [c.admit(method, now_ns=0) for method in ("X", *methods)] == [ALLOW, REJECT, ALLOW, ALLOW]
    empty = Policy(refuse_methods=(), drop_methods=())
    assert in_state(A, empty).admit_many("INVITE", 9, now_ns=0) == [(ALLOW, 9)]
    assert in_state(C, empty).admit_many("INVITE", 9, now_ns=0) == [(ALLOW, 9)]


def test_v1_ack_is_never_answered_whatever_is_set() -> None:
    """V1, RFC 3261 17.1.1.3: no response to ACK; a silent drop is no answer."""
    policy = Policy(refuse_methods={"ACK", "INVITE"}, drop_methods={"ACK"})
    assert in_state(A, policy).admit("ACK", now_ns=0) is ALLOW
    assert in_state(A, policy).admit_many("ACK", 3, now_ns=0) == [(ALLOW, 3)]
    c = controller(policy, LC=10000, LCPS=1)
    assert c.admit_many("INVITE", 3, now_ns=0) == [(ALLOW, 1), (REJECT, 2)]
    assert c.admit("ACK", now_ns=0) is ALLOW
    assert c.admit_many("ACK", 2, now_ns=0) == [(ALLOW, 2)]
    assert in_state(C, policy).admit("ACK", now_ns=0) is DROP


def test_v2_the_state_is_that_of_the_last_cycle_not_of_the_load_now() -> None:
    """SPEC §5: the window that will be over passes whole; the next is shed, empty as it is."""
    c = controller(LCDM="denial_only")
    assert c.admit_many("INVITE", 500, now_ns=0) == [(ALLOW, 500)]
    assert c.admit("INVITE", now_ns=100 * MS - 1) is ALLOW
    assert c.admit("INVITE", now_ns=100 * MS) is REJECT
    assert c.state is A


def test_v3_the_growth_past_lcps_is_refused_at_once_and_the_state_stays() -> None:
    """V3: this one included; exactly LCPS pass in the first second; normal all the while."""
    c = controller(LC=10000, LCPS=3)
    assert [c.admit("INVITE", now_ns=k * MS) for k in range(5)] == [ALLOW, ALLOW, ALLOW, REJECT, REJECT]
    assert c.state is N
    assert c.advance(now_ns=SECOND)[-1].state is N
    assert c.changes() == []
    # Last second 5 (refused ones too): now 8.
    assert c.admit_many("INVITE", 10, now_ns=SECOND) == [(ALLOW, 8), (REJECT, 2)]


def test_v3_a_step_in_load_is_cut_at_last_second_plus_lcps_and_then_passes() -> None:
    """V3: the limit is on growth: a load that stays is let through in its second second."""
    c = controller(LC=10000, LCPS=100)
    passed = [c.admit_many("INVITE", 450, now_ns=second * SECOND)[0] for second in range(3)]
    assert passed == [(ALLOW, 100), (ALLOW, 450), (ALLOW, 450)]


@pytest.mark.parametrize(("state", "shed"), [(A, REJECT), (C, DROP)])
def test_v4_lcps_is_not_checked_in_a_critical_state(state: State, shed: Verdict) -> None:
    """V4: what cannot be shed passes, and what the allowance leaves (X1) passes however fast it grew."""
    policy = Policy(shed="excess")
    c = in_state(state, policy, LC=100, LCPS=1)
    assert c.admit_many("INVITE", 12, now_ns=0) == [(ALLOW, 10), (shed, 2)]
    assert c.admit_many("BYE", 50, now_ns=0) == [(ALLOW, 50)]


def test_v4_lcps_is_checked_again_from_the_return_to_normal_on() -> None:
    """V4, M3: and the seconds went on all the while."""
    c = in_state(C, LC=1000, LCPS=5, LRC=1, TR=1000)  # 1,001 in second 0
    c.admit_many("INVITE", 20, now_ns=SECOND)  # dropped, 20 in second 1
    c.advance_to(2 * SECOND)
    assert c.state is N
    assert c.admit_many("INVITE", 30, now_ns=2 * SECOND) == [(ALLOW, 25), (REJECT, 5)]


def test_admit_many_of_none_does_nothing() -> None:
    """DESIGN §5: equal to 0 × admit: not even the time is seen."""
    c = controller()
    assert c.admit_many("INVITE", 0, now_ns=SECOND) == []
    assert c.admit_many("INVITE", 2, now_ns=0) == [(ALLOW, 2)]
    assert c.advance(now_ns=100 * MS)[0].requests == 2


def test_an_exempt_request_passes_and_counts() -> None:
    """DESIGN §3 exempt_uris: judge(sheddable=False) lets through in every state and over LCPS, whatever the method sets hold."""
    policy = Policy(refuse_methods=NINE, drop_methods=NINE)
    for c in (in_state(A, policy), in_state(C, policy), controller(policy, LC=10000, LCPS=1)):
        c.count(5, now_ns=0)
        assert c.judge("INVITE", now_ns=0, sheddable=False) is ALLOW
        assert c.judge("INVITE", now_ns=0) is not ALLOW
        assert c.advance(now_ns=c.next_deadline_ns)[-1].requests == 7


@pytest.mark.parametrize("method", NINE)
def test_sheds_all_says_when_the_process_would_drop_every_one(method: str) -> None:
    """DESIGN §3: the kernel plane's condition: critical, and under excess the allowance spent."""
    assert not in_state(N).sheds_all
    assert not in_state(A).sheds_all
    assert in_state(C).sheds_all
    c = in_state(C, Policy(shed="excess"))
    while not c.sheds_all:
        assert c.admit(method, now_ns=0) is ALLOW
    assert c.allowed == 11 + 10
    assert c.admit(method, now_ns=0) is DROP
    assert states(c, 0) == [C]
    assert not c.sheds_all


def test_verdicts_have_the_names_of_the_contract() -> None:
    """DESIGN §5."""
    assert [verdict.value for verdict in Verdict] == ["allow", "reject", "drop"]
    assert [state.value for state in State] == ["normal", "around_critical_limit", "critical_limit"]
    assert repr([ALLOW, N]) == "[allow, normal]"
