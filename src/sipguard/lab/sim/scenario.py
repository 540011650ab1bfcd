"""What a storm is made of: clients, network, servers, the guard's settings. Plain data; `scenario_file` reads it from TOML.

Rates are requests/s, times s or ms by name, costs are multiples of the server's mean service time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from sipguard.core.parameters import Parameters
from sipguard.core.policy import Policy
from sipguard.lab.sim.timers import T1_MS, T2_MS

Transport = Literal["udp", "tcp"]
Shape = Literal["exponential", "fixed"]
Full = Literal["drop", "refuse"]
Spacing = Literal["poisson", "even"]
#: Work of in-dialog requests and probes beside an INVITE or REGISTER, whose cost is 1.
DEFAULT_COSTS = {"ACK": 0.2, "BYE": 0.3, "OPTIONS": 0.3}


@dataclass(frozen=True, slots=True)
class Rate:
    """A rate over time: straight lines between points (time s, requests/s); two points at one time are a step.

    Before the first point and after the last the rate stays. repeat_s: the points' time starts again so often.
    """

    points: tuple[tuple[float, float], ...]
    repeat_s: float | None = None


@dataclass(frozen=True, slots=True)
class Callers:
    """People (or machines) that start something new at a rate, one after another.

    method: INVITE makes calls: after the answer an ACK comes after answer_s (mean, exponential) and a BYE after talk_s
    more; talk_s 0 makes neither. patience_s: when the user gives up; None waits for Timer B or F. After a refusal or a
    timeout a user tries again with redial_probability, redial_s (uniform between) later, at most attempts times in all.
    """

    name: str
    rate: Rate
    method: str = "INVITE"
    spacing: Spacing = "poisson"
    transport: Transport = "udp"
    answer_s: float = 2.0
    talk_s: float = 0.0
    patience_s: float | None = None
    redial_probability: float = 0.0
    redial_s: tuple[float, float] = (2.0, 10.0)
    attempts: int = 5
    honours_retry_after: bool = True
    failover: bool = False


@dataclass(frozen=True, slots=True)
class Outage:
    """A power cut of one population: silent from from_s, all back within back_within_s (uniform) after until_s."""

    from_s: float
    until_s: float
    back_within_s: float


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Devices that each repeat a request: registrations, subscriptions, OPTIONS probes.

    The next one comes expires_s·(1 − spread·U), U uniform in 0…1, after an answer (RFC 3261 10.2.4: before the expiry).
    After a failure: retry_s = (base, limit), min(limit, base·2^failures)·U(0.5…1) later (RFC 5626 4.5); None waits for the
    next regular time.
    """

    name: str
    count: int
    method: str = "REGISTER"
    expires_s: float = 3600.0
    spread: float = 0.1
    retry_s: tuple[float, float] | None = (30.0, 1800.0)
    transport: Transport = "udp"
    honours_retry_after: bool = True
    failover: bool = False
    outage: Outage | None = None


@dataclass(frozen=True, slots=True)
class Flood:
    """Requests that hear no answer and have no timers: a tool or a broken device at one rate."""

    name: str
    rate: Rate
    method: str = "REGISTER"
    spacing: Spacing = "poisson"


Population = Callers | Endpoints | Flood


@dataclass(frozen=True, slots=True)
class Server:
    """A single FIFO queue in front of one worker: M/M/1 when service is exponential, M/D/1 when it is fixed.

    capacity: requests of cost 1 per second. queue: the most requests in it, the one being served included. full: what
    becomes of one more: nothing, or a 503 that costs refuse_cost. retransmission_cost: work for a copy of a request it
    already has. thrash: a full queue makes every service 1 + thrash times as long (in proportion below that): locks,
    memory, swapping. costs: work by method; 1 where none is given.
    """

    name: str
    capacity: float
    queue: int = 1000
    service: Shape = "exponential"
    full: Full = "drop"
    refuse_cost: float = 0.1
    retransmission_cost: float = 0.3
    thrash: float = 0.0
    costs: dict[str, float] = field(default_factory=lambda: dict(DEFAULT_COSTS))


@dataclass(frozen=True, slots=True)
class Restart:
    """A process that dies: what = "server" loses its queue and its transactions, is away away_s, then slow times slower
    for slow_s; what = "guard" forgets its level at once (DESIGN §4: a restart begins in normal)."""

    what: Literal["server", "guard"]
    server: str
    at_s: float
    away_s: float = 5.0
    slow: float = 1.0
    slow_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Guard:
    """The guard before each server. Retry-After: on these methods, uniform in retry_after_s (DESIGN §3); None: none."""

    parameters: Parameters
    policy: Policy
    retry_after_s: tuple[float, float] | None = (10.0, 30.0)
    retry_after_methods: frozenset[str] = frozenset(("REGISTER", "SUBSCRIBE"))


@dataclass(frozen=True, slots=True)
class Scenario:
    """One storm. guard None: no guard. storm_s: when the overload begins and ends (None: it does not end)."""

    name: str
    title: str
    about: str
    duration_s: float
    servers: tuple[Server, ...]
    populations: tuple[Population, ...]
    guard: Guard | None
    restarts: tuple[Restart, ...] = ()
    storm_begins_s: float = 0.0
    storm_ends_s: float | None = None
    delay_ms: int = 25
    loss: float = 0.0
    t1_ms: int = T1_MS
    t2_ms: int = T2_MS

    @property
    def capacity(self) -> float:
        """The work all servers can do, requests of cost 1 per second."""
        return sum(server.capacity for server in self.servers)
