"""Clients' timers: RFC 3261 17.1.1.2 and 17.1.2.2 to the ms, and the number of copies that a given loss costs."""

from __future__ import annotations

from math import sqrt

import pytest

from sipguard.lab.sim.engine import Run
from sipguard.lab.sim.measure import Count
from sipguard.lab.sim.timers import schedule
from sipguard.lab.sim.transactions import Outcome, Role
from tests.lab.sim.storms import rate, run, server, steady, total

# RFC 3261 17.1.1.2: A doubles from T1; 17.1.2.2: E doubles from T1 up to T2; B and F are 64·T1. First copies included.
INVITE_MS = [0, 500, 1500, 3500, 7500, 15500, 31500]
OTHER_MS = [0, 500, 1500, 3500, 7500, 11500, 15500, 19500, 23500, 27500, 31500]


def sent_ms(*, invite: bool, **more: int) -> list[int]:
    made = schedule(invite=invite, reliable=False, **more)
    return [0, *(ns // 1_000_000 for ns in made.copies_ns)]


def test_copies_over_udp() -> None:
    """RFC 3261 17.1.1.2 and 17.1.2.2 with the default T1 and T2: 7 INVITEs, 11 of any other request, the end at 32 s."""
    assert sent_ms(invite=True) == INVITE_MS
    assert sent_ms(invite=False) == OTHER_MS
    assert schedule(invite=True, reliable=False).timeout_ns == 32_000_000_000


def test_no_copies_over_tcp() -> None:
    """RFC 3261 17.1.1.2, 17.1.2.2: over a reliable transport only Timers B and F."""
    for invite in (True, False):
        assert schedule(invite=invite, reliable=True) == ((), 32_000_000_000)


def test_other_t1_and_t2() -> None:
    assert sent_ms(invite=False, t1_ms=1000, t2_ms=2000)[:5] == [0, 1000, 3000, 5000, 7000]
    assert sent_ms(invite=True, t1_ms=1000)[-1] == 63000


def test_patience_ends_the_copies() -> None:
    made = schedule(invite=True, reliable=False, patience_ms=8000)
    assert (made.copies_ns[-1], made.timeout_ns) == (7_500_000_000, 8_000_000_000)


def lossy(method: str, loss: float, transport: str = "udp") -> Run:
    """20 s of new requests at a server that is quick, and 35 s for them to end."""
    clients = steady(0, rate=rate((0, 400), (20, 400), (20, 0)), method=method, transport=transport)
    return run(clients, duration_s=55.0, servers=(server(1e6, retransmission_cost=0.01),), loss=loss)


@pytest.mark.parametrize("method", ["INVITE", "MESSAGE"])
@pytest.mark.parametrize("loss", [0.1, 0.5, 0.8])
def test_a_loss_costs_as_many_copies_as_its_probability_says(method: str, loss: float) -> None:
    """Each copy and its answer get through with q = (1 − p)²; the k-th copy is sent when the k before it all failed, so
    E[copies] = Σ(1 − q)^k, and (1 − q)^n of the requests fail. (The round trip is shorter than T1.)"""
    ran = lossy(method, loss)
    copies = len(INVITE_MS if method == "INVITE" else OTHER_MS)
    miss = 1 - (1 - loss) ** 2
    expected = sum(miss**k for k in range(copies))
    square = sum((2 * k + 1) * miss**k for k in range(copies))  # E[N²] = Σ(2k + 1)·P(N > k)
    n = int(ran.measure.opened[0, Role.ATTEMPT])
    arrived = total(ran, Count.FRESH) + total(ran, Count.COPIES)
    sent_each = arrived / (1 - loss) / n
    # Whether a copy arrives is drawn too: its variance adds to that of how many are sent.
    deviation = sqrt((square - expected**2 + expected * loss / (1 - loss)) / n)
    assert abs(sent_each - expected) < 5 * deviation
    failed = int(ran.measure.outcomes[0, Role.ATTEMPT, Outcome.TIMED_OUT])
    failure = miss**copies
    assert abs(failed - n * failure) <= 5 * sqrt(n * failure * (1 - failure)) + 1
    assert failed + int(ran.measure.outcomes[0, Role.ATTEMPT, Outcome.SERVED]) == n


@pytest.mark.parametrize(("method", "copies"), [("INVITE", 7), ("MESSAGE", 11)])
def test_a_silent_server_sees_every_copy(method: str, copies: int) -> None:
    """Nobody answers: exactly 7 INVITEs, 11 MESSAGEs each, and all end by Timer B or F."""
    clients = steady(0, rate=rate((0, 50), (10, 50), (10, 0)), method=method, spacing="even")
    # One place in the queue, and that one taken for the whole run.
    ran = run(clients, duration_s=45.0, servers=(server(0.001, queue=1, service="fixed"),))
    assert total(ran, Count.FRESH) == 500
    # The request in the queue is the first one; it gets no answer either.
    assert total(ran, Count.COPIES) == 500 * (copies - 1)
    assert total(ran, Count.TIMED_OUT) == 500


def test_tcp_loses_nothing_and_repeats_nothing() -> None:
    """RFC 3261 17.1.1.2: no copies over TCP, whatever the network loses."""
    ran = lossy("INVITE", 0.5, "tcp")
    assert total(ran, Count.COPIES) == 0
    assert total(ran, Count.SERVED) == total(ran, Count.WANTED)


def test_an_answer_stops_the_copies_at_once() -> None:
    """RFC 3261 17.1.1.2, 17.1.2.2: an answer 510 ms after the request leaves one copy; one 490 ms after, none."""
    for service_s, copies in ((0.46, 1), (0.44, 0)):
        clients = steady(0, rate=rate((0, 0.5), (20, 0.5), (20, 0)), spacing="even")
        ran = run(clients, duration_s=25.0, servers=(server(1 / service_s, service="fixed"),))
        assert total(ran, Count.SERVED) == 10
        assert total(ran, Count.COPIES) == 10 * copies
