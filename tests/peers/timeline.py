"""SIPp's record and the guard's on one clock: what the guard was offered, and what the law says of it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from sipguard import OverloadController, Parameters
from tests.peers.guard import Change
from tests.peers.sipp import Message

NORMAL, AROUND, CRITICAL = "normal", "around_critical_limit", "critical_limit"


def wall_to_monotonic_ns(wall_s: float) -> int:
    """A wall-clock time on CLOCK_MONOTONIC, as the two stand to each other now (to some µs)."""
    return int(wall_s * 1e9) + time.monotonic_ns() - time.time_ns()


def offered(messages: Iterable[Message]) -> list[Message]:
    """The requests of SIPp's records that count (SPEC M2), by time: all it sent but the ACKs to the guard's own 503."""
    messages = list(messages)
    refused = {(m.call_id, m.cseq.split(" ")[0]) for m in messages if m.status == 503}
    return sorted(
        (
            m
            for m in messages
            if m.sent and m.is_request and not (m.method == "ACK" and (m.call_id, m.cseq.split(" ")[0]) in refused)
        ),
        key=lambda m: m.wall_s,
    )


def outcomes(messages: Iterable[Message], method: str) -> dict[str, tuple[Message, int]]:
    """For each Call-ID the first request of `method` and the final status it got, 0 for none; in the order sent."""
    found: dict[str, tuple[Message, int]] = {}
    for m in messages:
        if m.method != method:
            continue
        if m.sent and m.is_request:
            found.setdefault(m.call_id, (m, 0))
        elif m.status >= 200 and m.call_id in found:
            found[m.call_id] = (found[m.call_id][0], m.status)
    return found


@dataclass(frozen=True, slots=True)
class Expected:
    """A change the law asks for: at the end of which window, into which state."""

    time_ns: int
    after: str


def law_says(requests: Sequence[Message], parameters: Parameters, origin_ns: int, until_ns: int) -> list[Expected]:
    """The changes of state that SPEC §3 and §4 give for these requests, by the times SIPp wrote down.

    The controller on virtual time is the same that the vectors of the specification prove; the guard ran on real packets.
    """
    law = OverloadController(parameters, origin_ns=origin_ns)
    cycles = []
    for request in requests:
        law.admit(request.method, now_ns=wall_to_monotonic_ns(request.wall_s))
        cycles += law.advance(now_ns=origin_ns)
    cycles += law.advance(now_ns=until_ns)
    states = [NORMAL, *(cycle.state.value for cycle in cycles)]
    return [
        Expected(cycle.time_ns, after)
        for cycle, (before, after) in zip(cycles, pairwise(states), strict=True)
        if before != after
    ]


def state_at(time_ns: int, changes: Sequence[Change], margin_ns: int) -> str | None:
    """The state that held at a time by the guard's own record; None within `margin_ns` of a change."""
    state = NORMAL
    for change in changes:
        if abs(change.time_ns - time_ns) <= margin_ns:
            return None
        if change.time_ns < time_ns:
            state = change.after
    return state
