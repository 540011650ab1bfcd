"""The server against queueing theory: M/M/1 and M/D/1 mean waits (Pollaczek–Khinchine), M/M/1/K losses (Erlang)."""

from __future__ import annotations

from math import sqrt

import pytest

from sipguard.lab.sim.engine import Run
from sipguard.lab.sim.measure import Count
from sipguard.lab.sim.scenario import Callers
from tests.lab.sim.storms import run, server, steady, total

CAPACITY = 2000.0
DELAY_S = 0.025


def patient(per_second: float) -> Callers:
    """Poisson arrivals over TCP: over UDP, waits beyond T1 would bring copies, and that queue is no M/M/1."""
    return steady(per_second, transport="tcp")


def mean_wait_s(load: float, service: str) -> float:
    """W = ρ/(μ(1 − ρ)) for exponential service, half of it for fixed (Pollaczek–Khinchine)."""
    wait = load / (CAPACITY * (1 - load))
    return wait if service == "exponential" else wait / 2


def bound_s(load: float, service: str, duration_s: float) -> float:
    """Five standard deviations of the mean wait of M/M/1 over this time.

    The asymptotic variance of the time average of M/M/1's number in system is 2ρ(1 + ρ)/(μ(1 − ρ)^4) (Whitt, Planning
    queueing simulations, 1989, (26)); by Little's law a mean wait is that number over λ, near enough for a bound.
    M/D/1 varies less.
    """
    variance = 2 * load * (1 + load) / (CAPACITY * (1 - load) ** 4)
    return 5 * sqrt(variance / duration_s) / (load * CAPACITY)


@pytest.mark.parametrize("service", ["exponential", "fixed"])
@pytest.mark.parametrize("load", [0.3, 0.7, 0.9])
def test_the_mean_wait_is_that_of_theory(load: float, service: str) -> None:
    """Issue 3 §2: M/M/1 and M/D/1. The wait before service, and what the client sees of it, round trip and service added."""
    duration_s = 80.0 if load == 0.9 else 20.0
    ran = run(
        patient(load * CAPACITY),
        duration_s=duration_s,
        servers=(server(CAPACITY, service=service, queue=100_000),),
    )
    theory_s, margin_s = mean_wait_s(load, service), bound_s(load, service, duration_s)
    assert margin_s < theory_s * 1.5  # the test says something
    measured_s = ran.sites[0].server.waited_ns / ran.sites[0].server.accepted / 1e9
    assert abs(measured_s - theory_s) < margin_s
    delays_s, _ = ran.measure.all_delays()
    assert abs(delays_s.mean() - (theory_s + 1 / CAPACITY + 2 * DELAY_S)) < margin_s


def test_fixed_service_waits_half_of_exponential() -> None:
    """Pollaczek–Khinchine: the same arrivals (same seed), half the mean wait within a tenth at ρ = 0.8."""
    waits = []
    for service in ("exponential", "fixed"):
        ran = run(patient(0.8 * CAPACITY), duration_s=60.0, servers=(server(CAPACITY, service=service, queue=100_000),))
        waits.append(ran.sites[0].server.waited_ns / ran.sites[0].server.accepted)
    assert waits[1] / waits[0] == pytest.approx(0.5, rel=0.1)


def overflow_share(ran: Run) -> float:
    return total(ran, Count.OVERFLOW) / total(ran, Count.ALLOWED)


@pytest.mark.parametrize("load", [0.8, 1.5])
def test_a_full_queue_loses_what_theory_says(load: float) -> None:
    """M/M/1/K: an arrival finds K inside with probability (1 − ρ)ρ^K/(1 − ρ^(K+1))."""
    room, duration_s = 5, 25.0
    ran = run(patient(load * CAPACITY), duration_s=duration_s, servers=(server(CAPACITY, queue=room),))
    theory = (1 - load) * load**room / (1 - load ** (room + 1))
    arrivals = load * CAPACITY * duration_s
    # Losses come in clusters of about a busy queue's length: five deviations of as many independent ones, fourfold.
    assert abs(overflow_share(ran) - theory) < 4 * 5 * sqrt(theory * (1 - theory) / arrivals)


def test_the_work_done_is_the_work_accepted() -> None:
    """Little: busy time is λ·E[S] below capacity."""
    ran = run(patient(0.6 * CAPACITY), duration_s=50.0, servers=(server(CAPACITY, queue=100_000),))
    assert ran.sites[0].server.busy_ns / 1e9 == pytest.approx(0.6 * 50, rel=5 * sqrt(2 / 60_000))
