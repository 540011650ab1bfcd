"""How clients behave: what they send first, and what an answer, a refusal or silence makes them do next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from sipguard.lab.sim import scenario
from sipguard.lab.sim.agenda import plans
from sipguard.lab.sim.arrays import NOTHING, Floats, Ints
from sipguard.lab.sim.arrivals import Arrivals
from sipguard.lab.sim.methods import CODES
from sipguard.lab.sim.timers import Schedule, schedule
from sipguard.lab.sim.transactions import Role, Transactions

_SECOND_NS = 1_000_000_000
#: No exponential back-off is longer than 2^16 times its base.
_MOST_DOUBLINGS = 16


@dataclass(frozen=True, slots=True)
class Setting:
    """What every population of a run shares."""

    servers: int
    slot_ns: int


class Next(NamedTuple):
    """What follows from an end: plans for the agenda (an array of `agenda.plans`), and how many things were given up."""

    plans: Ints
    given_up: int = 0


def schedules_of(spec: scenario.Population, t1_ms: int, t2_ms: int) -> dict[Role, Schedule]:
    """The timers of each role a population sends; none of a flood, which waits for nothing."""
    if isinstance(spec, scenario.Flood):
        return {}
    reliable = spec.transport == "tcp"
    within = schedule(invite=False, reliable=reliable, t1_ms=t1_ms, t2_ms=t2_ms)
    patience_s = spec.patience_s if isinstance(spec, scenario.Callers) else None
    attempt = schedule(
        invite=spec.method == "INVITE",
        reliable=reliable,
        t1_ms=t1_ms,
        t2_ms=t2_ms,
        patience_ms=None if patience_s is None else round(patience_s * 1000),
    )
    return {Role.ATTEMPT: attempt, Role.WITHIN: within}


class Behaviour:
    """One population at work. Random numbers are its own: what others do does not shift them."""

    reliable = False
    failover = False
    method_name = "INVITE"
    #: New requests that come at a rate; None: all of them come by the agenda.
    arrivals: Arrivals | None = None

    def __init__(self, number: int, setting: Setting, random: np.random.Generator) -> None:
        self.number = number
        self.setting = setting
        self.random = random
        self.method = CODES[self.method_name]

    def first_plans(self) -> Ints:
        """What the agenda begins with."""
        return plans(NOTHING)

    def served(self, table: Transactions, rows: Ints, times_ns: Ints) -> Ints:
        """Plans that follow from these answers."""
        raise NotImplementedError

    def failed(self, table: Transactions, rows: Ints, times_ns: Ints, retry_after_ns: Ints) -> Next:
        """What follows from these refusals or timeouts. retry_after_ns: 0 where none was said.

        With failover the next server is tried at once (RFC 3263 4.3), each once; then comes the population's own way.
        """
        if not self.failover or self.setting.servers == 1:
            return self.try_again(table, rows, times_ns, retry_after_ns)
        over = table.hop[rows] + 1 < self.setting.servers
        rest = ~over
        moved = plans(
            times_ns[over],
            population=self.number,
            role=Role.ATTEMPT,
            wanted=table.wanted_ns[rows[over]],
            server=(table.server[rows[over]] + 1) % self.setting.servers,
            hop=table.hop[rows[over]] + 1,
            attempt=table.attempt[rows[over]],
            client=table.client[rows[over]],
        )
        later = self.try_again(table, rows[rest], times_ns[rest], retry_after_ns[rest])
        return Next(np.concatenate((moved, later.plans), axis=1), later.given_up)

    def try_again(self, table: Transactions, rows: Ints, times_ns: Ints, retry_after_ns: Ints) -> Next:
        """As `failed`, when there is no other server to try."""
        raise NotImplementedError

    def uniform(self, low: float, high: float, n: int) -> Floats:
        """n random numbers between low and high."""
        return self.random.uniform(low, high, n)


class CallersBehaviour(Behaviour):
    """People: calls, messages; redial."""

    def __init__(self, spec: scenario.Callers, number: int, setting: Setting, random: np.random.Generator) -> None:
        self.spec = spec
        self.method_name = spec.method
        self.reliable = spec.transport == "tcp"
        self.failover = spec.failover
        arrivals, behaviour = random.spawn(2)
        super().__init__(number, setting, behaviour)
        self.arrivals = Arrivals(spec.rate, spec.spacing, setting.slot_ns, arrivals)

    def served(self, table: Transactions, rows: Ints, times_ns: Ints) -> Ints:
        """The ACK when the other side picks up, and the BYE when they have talked (RFC 3261 13.2.2.4, 15)."""
        if self.method_name != "INVITE" or not self.spec.talk_s:
            return plans(NOTHING)
        n = len(rows)
        answered_ns = times_ns + (self.random.exponential(self.spec.answer_s, n) * _SECOND_NS).astype(np.int64)
        ended_ns = answered_ns + (self.random.exponential(self.spec.talk_s, n) * _SECOND_NS).astype(np.int64)
        server = table.server[rows]
        acks = plans(answered_ns, population=self.number, role=Role.LONE, server=server)
        byes = plans(ended_ns, population=self.number, role=Role.WITHIN, server=server)
        return np.concatenate((acks, byes), axis=1)

    def try_again(self, table: Transactions, rows: Ints, times_ns: Ints, retry_after_ns: Ints) -> Next:
        """Redial, or not; a Retry-After is waited for by who honours it."""
        spec, n = self.spec, len(rows)
        again = self.random.random(n) < spec.redial_probability
        again &= table.attempt[rows] + 1 < spec.attempts
        wait_ns = (self.uniform(*spec.redial_s, n) * _SECOND_NS).astype(np.int64)
        if spec.honours_retry_after:
            wait_ns = np.maximum(wait_ns, retry_after_ns)
        redials = plans(
            (times_ns + wait_ns)[again],
            population=self.number,
            role=Role.ATTEMPT,
            attempt=table.attempt[rows[again]] + 1,
        )
        return Next(redials, n - int(again.sum()))


class EndpointsBehaviour(Behaviour):
    """Devices: each repeats its request before it expires; a refusal or silence is backed off from."""

    def __init__(self, spec: scenario.Endpoints, number: int, setting: Setting, random: np.random.Generator) -> None:
        self.spec = spec
        self.method_name = spec.method
        self.reliable = spec.transport == "tcp"
        self.failover = spec.failover
        super().__init__(number, setting, random)
        self._expires_ns = int(spec.expires_s * _SECOND_NS)

    def first_plans(self) -> Ints:
        """All are registered at the start, each somewhere in its period."""
        n = self.spec.count
        when = (self.random.random(n) * self._periods(n)).astype(np.int64)
        return plans(when, population=self.number, role=Role.ATTEMPT, client=np.arange(n))

    def back(self, from_ns: int, within_ns: int) -> Ints:
        """All come back after a power cut."""
        n = self.spec.count
        when = from_ns + (self.random.random(n) * within_ns).astype(np.int64)
        return plans(when, population=self.number, role=Role.ATTEMPT, client=np.arange(n))

    def served(self, table: Transactions, rows: Ints, times_ns: Ints) -> Ints:
        """The next refresh."""
        when = times_ns + self._periods(len(rows)).astype(np.int64)
        return plans(when, population=self.number, role=Role.ATTEMPT, client=table.client[rows])

    def try_again(self, table: Transactions, rows: Ints, times_ns: Ints, retry_after_ns: Ints) -> Next:
        """Back off, or wait for the next regular time: then this one was given up."""
        n = len(rows)
        if self.spec.retry_s is None:
            when = times_ns + self._periods(n).astype(np.int64)
            return Next(plans(when, population=self.number, role=Role.ATTEMPT, client=table.client[rows]), n)
        base_s, limit_s = self.spec.retry_s
        attempt = table.attempt[rows].astype(np.int64)
        bound_s = np.minimum(limit_s, base_s * 2.0 ** np.minimum(attempt, _MOST_DOUBLINGS))
        wait_ns = (bound_s * self.uniform(0.5, 1.0, n) * _SECOND_NS).astype(np.int64)
        if self.spec.honours_retry_after:
            wait_ns = np.where(retry_after_ns > 0, retry_after_ns, wait_ns)
        return Next(
            plans(
                times_ns + wait_ns,
                population=self.number,
                role=Role.ATTEMPT,
                attempt=np.minimum(attempt + 1, 1000),
                client=table.client[rows],
            )
        )

    def _periods(self, n: int) -> Floats:
        """ns until a refresh."""
        return self._expires_ns * (1 - self.spec.spread * self.random.random(n))


class FloodBehaviour(Behaviour):
    """Sends, and that is all."""

    def __init__(self, spec: scenario.Flood, number: int, setting: Setting, random: np.random.Generator) -> None:
        self.spec = spec
        self.method_name = spec.method
        super().__init__(number, setting, random)
        self.arrivals = Arrivals(spec.rate, spec.spacing, setting.slot_ns, random)


def behaviour(spec: scenario.Population, number: int, setting: Setting, random: np.random.Generator) -> Behaviour:
    """The behaviour of a population."""
    if isinstance(spec, scenario.Callers):
        return CallersBehaviour(spec, number, setting, random)
    if isinstance(spec, scenario.Endpoints):
        return EndpointsBehaviour(spec, number, setting, random)
    return FloodBehaviour(spec, number, setting, random)
