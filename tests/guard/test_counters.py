"""What is counted adds up, always (DESIGN §5: requests = allow + reject + drop; absorbed apart; outcomes by reason)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sipguard.core.policy import Policy
from sipguard.core.verdicts import Verdict
from sipguard.guard.checks import CheckChain, NamedCheck
from sipguard.guard.counters import MAX_METHODS, OTHER_METHODS, Counters
from sipguard.guard.ports import PlaneReading
from sipguard.wire.problems import PROBLEMS
from sipguard.wire.scan import KNOWN_METHODS
from sipguard.wire.strict import STREAM_PROBLEMS
from tests.guard.messages import ack_of, request, response_to, status_of
from tests.guard.rig import MS, SECOND, Rig, judged, total

METHODS = ("INVITE", "REGISTER", "OPTIONS", "BYE", "ACK", "CANCEL", "NOTIFY", "FOO", "invite")

requests = st.builds(
    request,
    st.sampled_from(METHODS),
    st.sampled_from(["sip:bob@example.com", "sip:192.0.2.1", "urn:service:sos", "tel:1"]),
    branch=st.sampled_from([None, "z9hG4bKa1", "z9hG4bKa2"]),
    to_tag=st.sampled_from([None, "srv1"]),
    call_id=st.sampled_from(["c1", "c2"]),
    max_forwards=st.sampled_from([70, 0, None]),
    headers=st.sampled_from([(), ("Via: SIP/2.0/UDP h2",), ("CSeq: x",), ("Call-ID: c9",)]),
)
not_requests = st.sampled_from(
    [
        b"",
        b"\r\n\r\n",
        b"\0\1\0\0\x21\x12\xa4\x42" + bytes(12),
        b"GET / HTTP/1.1\r\n\r\n",
        response_to(request()),
        b"INVITE",
    ]
)
steps = st.one_of(
    st.tuples(st.just("send"), requests, st.integers(1, 30), st.sampled_from(["udp", "tcp"])),
    st.tuples(st.just("ack"), requests),
    st.tuples(st.just("other"), not_requests, st.sampled_from(["udp", "tcp", "inside"])),
    st.tuples(st.just("inside"), requests),
    st.tuples(st.just("tick"), st.integers(0, 500), st.integers(0, 300), st.integers(0, 50)),
    st.tuples(st.just("back"), st.integers(0, 10**9)),
)


def apply(rig: Rig, step: tuple[Any, ...]) -> None:
    """One step of random traffic; the kernel's readings come as an edge would bring them."""
    if step[0] == "send":
        for _ in range(step[2]):
            rig.receive(step[1], rig.client(transport=step[3]))
    elif step[0] == "ack":
        action = rig.receive(step[1])
        if action is not None and status_of(action.data) >= 300:
            rig.receive(ack_of(step[1], action.data))
    elif step[0] == "other":
        rig.receive(step[1], rig.server() if step[2] == "inside" else rig.client(transport=step[2]))
    elif step[0] == "inside":
        rig.receive(step[1], rig.server())
    elif step[0] == "back":
        rig.now_ns = max(0, rig.now_ns - step[1])  # SPEC M4
    else:
        rig.now_ns += step[1] * MS
        filtered = step[2] if rig.guard.drops_in_kernel else 0
        rig.guard.kernel_filters = rig.guard.drops_in_kernel
        rig.guard.tick(rig.now_ns, [PlaneReading(rig.udp, filtered, step[3])])


#: The guard's own 400, 505, 483, 200 and 503.
ENDED = frozenset((*PROBLEMS, *STREAM_PROBLEMS, "max-forwards", "options", "no-upstream"))

policies = st.sampled_from(
    [Policy(), Policy(enforce=False), Policy(shed="excess"), Policy(drop_methods=["ACK", "BYE"])]
)


@settings(max_examples=150, deadline=None)
@given(
    policies,
    st.sampled_from(["denial_to_drop", "denial_only", "drop_only"]),
    st.sampled_from([20, 10000]),
    st.booleans(),
    st.sampled_from(["drop", "reject"]),
    st.sampled_from([(), ("urn:service:sos",)]),
    st.sampled_from([None, Verdict.REJECT, Verdict.DROP]),
    st.lists(steps, min_size=1, max_size=25),
)
def test_requests_are_allow_plus_reject_plus_drop_always(
    policy: Policy,
    mode: str,
    lcps: int,
    budget: bool,
    stream_drop: str,
    exempt: tuple[str, ...],
    check: Verdict | None,
    script: list[tuple[Any, ...]],
) -> None:
    """DESIGN §5, at every step of random traffic, ticks and kernel readings; the second and the cycles add up as well."""

    def refuses_foo(head: Any, flow: Any, now_ns: int) -> Verdict:
        return check if check is not None and head.method in ("FOO", "INVITE") else Verdict.ALLOW

    checks = CheckChain((NamedCheck("adl", refuses_foo),)) if check else None
    rig = Rig(
        policy=policy,
        checks=checks,
        reply_budget=budget,
        stream_drop=stream_drop,
        exempt_uris=exempt,
        law={"LCDM": mode, "LCPS": lcps},
    )
    for step in script:
        apply(rig, step)
        counters, controller = rig.counters, rig.controller
        assert total(counters.requests) == judged(rig.guard)
        assert all(n > 0 for n in counters.requests.values())
        assert controller.rejected >= counters.lcps_refused
        # DESIGN §5: the guard's own answers are outcomes of allow; what comes from inside has no verdict.
        assert sum(n for reason, n in counters.outcomes.items() if reason in ENDED) <= controller.allowed
        if not policy.enforce:
            assert (controller.rejected, controller.dropped, counters.kernel_dropped) == (0, 0, 0)
    # Every request is in a cycle, exactly once, and so is what overflowed.
    rig.guard.tick(max(rig.now_ns, rig.guard.next_deadline()) + SECOND)
    counted = sum(cycle.requests for cycle in rig.controller.advance(now_ns=rig.now_ns))
    assert counted == total(rig.counters.requests) + rig.counters.overflowed


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", "empty"),
        (b"\r\n\r\n", "keep-alive"),
        (b"\0\0\0\0", "keep-alive"),
        (b"\r\n", "keep-alive"),
        (b"\0\1\0\0\x21\x12\xa4\x42" + bytes(12), "stun"),
        (b"GET / HTTP/1.1\r\n\r\n", "not-sip"),
        (b"\x80\x60" + bytes(40), "not-sip"),
        (b"\x80\1\0\0\x21\x12\xa4\x42" + bytes(12), "not-sip"),
        (b"\0\1\0\0\x21\x12\xa4\x43" + bytes(12), "not-sip"),
        (b"INVITE sip:b@c", "not-sip"),
        (b" INVITE sip:b@c SIP/2.0\r\n\r\n", "not-sip"),
    ],
)
@pytest.mark.parametrize("side", ["inside", "outside", "tcp"])
def test_what_is_not_sip_is_discarded_by_kind_never_counted_never_answered(data: bytes, kind: str, side: str) -> None:
    """DESIGN §3: not SIP (empty, STUN, garbage): never counted, never answered."""
    rig = Rig()
    flow = {"inside": rig.server(), "outside": rig.client(), "tcp": rig.client(transport="tcp")}[side]
    for _ in range(3):
        assert rig.receive(data, flow) is None
    assert rig.counters.discards == {("inside-" if side == "inside" else "") + kind: 3}
    assert (rig.counters.requests, rig.controller.allowed) == ({}, 0)
    rig.tick()
    assert rig.controller.rps == 0


def test_invented_methods_are_capped_and_cannot_hide_the_known_ones() -> None:
    """DESIGN §2: a table keyed by remote data. A flood of names before the first INVITE must not make it an unknown one."""
    rig = Rig(law={"LC": 10000})
    for number in range(1000):
        rig.receive(request(f"X{number}"))
    for method in KNOWN_METHODS:
        rig.receive(request(method))
    counted = rig.counters.requests
    assert len(counted) <= MAX_METHODS + 1 + len(KNOWN_METHODS)
    assert counted[OTHER_METHODS] == 1000 - MAX_METHODS
    assert all(counted[method] == 1 for method in KNOWN_METHODS)
    assert total(counted) == 1000 + len(KNOWN_METHODS) == judged(rig.guard)


def test_a_method_name_is_kept_only_when_it_is_short() -> None:
    """Names stand in the metrics: 64 KiB of one do not."""
    rig = Rig()
    rig.receive(request("X" * 60_000))
    rig.receive(request("Y" * 32))
    assert rig.counters.requests == {OTHER_METHODS: 1, "Y" * 32: 1}


def test_counting_many_at_once_is_counting_one_by_one() -> None:
    many, single = Counters(), Counters()
    for number in range(200):
        many.count_method(f"M{number % 90}", 3)
        for _ in range(3):
            single.count_method(f"M{number % 90}")
    assert many.requests == single.requests


def test_every_reason_is_from_a_closed_set() -> None:
    """DESIGN §2: hostile bytes never make a counter of their own."""
    rig = Rig()
    for number in range(300):
        junk = b"%d" % number
        for flow in (rig.client(), rig.server(), rig.client(transport="tcp")):
            rig.receive(junk, flow)
            rig.receive(b"SIP/2.0 200 " + junk + b"\r\nVia: " + junk + b"\r\n\r\n", flow)
            rig.receive(request(headers=[f"CSeq: {number}", f"Max-Forwards: {number}"]), flow)
            rig.receive(request(f"M{number}", f"sip:{number}@h", via_params=f";sg={number}"), flow)
    assert len(rig.counters.discards) < 20
    assert len(rig.counters.outcomes) < 20
