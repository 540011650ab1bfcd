"""Small scenarios for tests, put together in code."""

from __future__ import annotations

from typing import Any, Literal

from sipguard.core.parameters import Parameters
from sipguard.core.policy import Policy
from sipguard.lab.sim.engine import Run, Simulation
from sipguard.lab.sim.measure import Count
from sipguard.lab.sim.scenario import Callers, Guard, Population, Rate, Scenario, Server


def rate(*points: tuple[float, float], repeat_s: float | None = None) -> Rate:
    """A rate through these points (s, requests/s)."""
    return Rate(points, repeat_s)


def steady(per_second: float, **more: Any) -> Callers:
    """Requests of one method at a steady rate, each by itself: MESSAGE unless said otherwise."""
    return Callers(**{"name": "callers", "rate": rate((0.0, per_second)), "method": "MESSAGE", **more})


def guard(shed: Literal["all", "excess"] = "all", **parameters: Any) -> Guard:
    """A guard with these parameters (by their names) over the defaults."""
    return Guard(Parameters(**parameters), Policy(shed=shed))


def server(capacity: float = 100.0, **more: Any) -> Server:
    """A server where every request costs 1, a copy too, unless said otherwise."""
    return Server(**{"name": "a", "capacity": capacity, "costs": {}, "retransmission_cost": 1.0, **more})


def storm(*populations: Population, duration_s: float = 60.0, **more: Any) -> Scenario:
    """A scenario of these populations before one server, without a guard, unless said otherwise."""
    given = {"name": "test", "title": "", "about": "", "servers": (server(),), "guard": None, **more}
    return Scenario(duration_s=duration_s, populations=populations, **given)


def run(*populations: Population, seed: int = 1, **more: Any) -> Run:
    """Such a scenario, run."""
    return Simulation(storm(*populations, **more), seed).run()


def total(run: Run, what: Count) -> int:
    """A count over the whole run."""
    return int(run.measure.bins[what].sum())
