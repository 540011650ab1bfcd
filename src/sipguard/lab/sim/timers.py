"""RFC 3261 transaction timers of a client as a schedule: when each copy of a request goes out and when it gives up."""

from __future__ import annotations

from typing import NamedTuple

#: RFC 3261 17.1.1.1: an estimate of the round-trip time.
T1_MS = 500
#: RFC 3261 17.1.2.2: the longest interval between copies of a non-INVITE request.
T2_MS = 4000
#: RFC 3261 17.1.1.2 and 17.1.2.2: Timers B and F are 64·T1.
TIMEOUT_T1S = 64

_NS_PER_MS = 1_000_000


class Schedule(NamedTuple):
    """One transaction's times, all in ns after its first copy.

    copies_ns: when the copies after the first go out (Timers A or E), each below timeout_ns. timeout_ns: when the client
    gives up (Timer B or F, or an impatient user before it).
    """

    copies_ns: tuple[int, ...]
    timeout_ns: int


def schedule(
    *, invite: bool, reliable: bool, t1_ms: int = T1_MS, t2_ms: int = T2_MS, patience_ms: int | None = None
) -> Schedule:
    """The schedule of an INVITE (Timers A, B) or any other request (E, F); over a reliable transport only B or F.

    patience_ms: a user who gives up before Timer B does; None waits for the timer. Source: RFC 3261 17.1.1.2, 17.1.2.2.
    """
    timeout_ms = TIMEOUT_T1S * t1_ms
    if patience_ms is not None:
        timeout_ms = min(timeout_ms, patience_ms)
    copies_ms: list[int] = []
    interval_ms, at_ms = t1_ms, t1_ms
    while not reliable and at_ms < timeout_ms:
        copies_ms.append(at_ms)
        interval_ms = 2 * interval_ms if invite else min(2 * interval_ms, t2_ms)
        at_ms += interval_ms
    return Schedule(tuple(at * _NS_PER_MS for at in copies_ms), timeout_ms * _NS_PER_MS)
