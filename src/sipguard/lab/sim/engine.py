"""The loop, closed: clients → network → guard → server → network → clients, in slots of virtual time.

A slot is no longer than the network's delay, so nothing that happens in a slot can be met in the same one but by the
client that did it. Every request keeps its own time to the ns and each stage takes a slot's requests in order of time:
slots are for looking ahead, not for rounding. Exact: timers, the law, queues, retransmissions. Drawn at random: arrivals,
service times, losses, what people do. Left out: the guard's own work, jitter, TCP's own retransmission (it loses nothing).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from sipguard.core.verdicts import Change
from sipguard.lab.sim.agenda import Agenda, Field
from sipguard.lab.sim.arrays import Ints, joined
from sipguard.lab.sim.cohorts import Cohorts, slot_of
from sipguard.lab.sim.front import ALLOW, DROP, REJECT, Front
from sipguard.lab.sim.measure import Count, Measure
from sipguard.lab.sim.methods import ACK, BYE, CODES
from sipguard.lab.sim.populations import Behaviour, EndpointsBehaviour, Setting, behaviour, schedules_of
from sipguard.lab.sim.scenario import Endpoints, Restart, Scenario
from sipguard.lab.sim.server import OVERFLOW, Server
from sipguard.lab.sim.transactions import Outcome, Role, Transactions

_SECOND_NS = 1_000_000_000
_LONGEST_SLOT_NS = 50_000_000


class Site(NamedTuple):
    """A server and the guard before it."""

    front: Front | None
    server: Server


class Answer(IntEnum):
    """What a client may hear. Only the guard's refusals carry a Retry-After."""

    OK = 0
    GUARD_503 = 1
    SERVER_503 = 2


class Answers(NamedTuple):
    """Answers on their way to clients."""

    times_ns: Ints
    ids: Ints
    kind: Answer


class Arriving(NamedTuple):
    """Requests on their way to the guards."""

    times_ns: Ints
    ids: Ints
    copies: bool


class Run(NamedTuple):
    """What one simulation gave. changes: of state, by server. pending: things wanted that were not decided at the end."""

    scenario: Scenario
    measure: Measure
    sites: tuple[Site, ...]
    changes: tuple[tuple[Change, ...], ...]
    pending: int


class Simulation:
    """One scenario, once. The same seed gives the same run, on every machine with the same numpy.

    Each population, the network and each server have random numbers of their own: with another guard the same clients
    want the same things at the same times.
    """

    def __init__(self, scenario: Scenario, seed: int = 1) -> None:
        self.scenario = scenario
        populations, servers = len(scenario.populations), len(scenario.servers)
        timers = [schedules_of(spec, scenario.t1_ms, scenario.t2_ms) for spec in scenario.populations]
        self._delay_ns = scenario.delay_ms * 1_000_000
        every = [schedule for roles in timers for schedule in roles.values()]
        self.slot_ns = slot_of(every, self._delay_ns, _LONGEST_SLOT_NS)
        self._delay_slots = self._delay_ns // self.slot_ns
        # Numbers by place, so that one more server or population leaves the others' as they were.
        root = np.random.SeedSequence(seed)
        network, retry, *rest = (np.random.default_rng(s) for s in root.spawn(2 + servers + populations))
        self._network, self._retry = network, retry
        self._sites = tuple(
            Site(Front(scenario.guard) if scenario.guard else None, Server(spec, rest[i]))
            for i, spec in enumerate(scenario.servers)
        )
        setting = Setting(servers, self.slot_ns)
        self._behaviours: list[Behaviour] = [
            behaviour(spec, number, setting, rest[servers + number]) for number, spec in enumerate(scenario.populations)
        ]
        self._timers = timers
        self._reliable = np.array([b.reliable for b in self._behaviours])
        self._retries = np.zeros(len(CODES), bool)
        if scenario.guard and scenario.guard.retry_after_s is not None:
            self._retries[[CODES[m] for m in scenario.guard.retry_after_methods if m in CODES]] = True
        self._duration_ns = round(scenario.duration_s * _SECOND_NS)
        self._table = Transactions()
        self._cohorts = Cohorts(self.slot_ns, self._table)
        self._agenda = Agenda(self.slot_ns)
        self._measure = Measure(self._duration_ns, populations)
        self._arriving: dict[int, list[Arriving]] = {}
        self._answers: dict[int, list[Answers]] = {}
        self._events = self._plan_events()
        longest_ns = max((schedule.timeout_ns for schedule in every), default=0)
        self._memory_ns = longest_ns + 2 * self._delay_ns + 2 * _SECOND_NS
        self._marks: deque[tuple[int, int]] = deque()

    def __repr__(self) -> str:
        return f"<Simulation {self.scenario.name} {self._table!r}>"

    def run(self, progress: Callable[[float], None] | None = None) -> Run:
        """From 0 to the end. progress: told the virtual time, s, once a virtual second."""
        for b in self._behaviours:
            self._agenda.add(b.first_plans())
        per_second = _SECOND_NS // self.slot_ns
        for slot in range(-(-self._duration_ns // self.slot_ns)):
            if slot % per_second == 0:
                self._each_second(slot * self.slot_ns)
                if progress is not None:
                    progress(slot * self.slot_ns / _SECOND_NS)
            self._step(slot)
        changes = tuple(tuple(site.front.changes(self._duration_ns)) if site.front else () for site in self._sites)
        measure = self._measure
        done = measure.bins[[Count.SERVED, Count.GIVEN_UP]].sum() + measure.abandoned
        return Run(self.scenario, measure, self._sites, changes, int(measure.bins[Count.WANTED].sum() - done))

    # -- one slot --------------------------------------------------------------------------------------------------

    def _step(self, slot: int) -> None:
        now_ns = slot * self.slot_ns
        self._measure.at(now_ns)
        for event in self._events.pop(slot, ()):
            event(now_ns)
        self._take_answers(slot)
        fired = self._cohorts.fire(slot)
        if len(fired.given_up):
            self._time_out(fired.given_up, fired.given_up_ns)
        if len(fired.copies):
            self._send(slot, fired.copies_ns, fired.copies, copies=True)
        self._begin(slot)
        parts = self._arriving.pop(slot, None)
        if parts:
            self._arrive(slot, parts)

    def _take_answers(self, slot: int) -> None:
        """Answers that reach clients in this slot, in order of time, and what the clients do about them."""
        parts = self._answers.pop(slot, [])
        before_ns = (slot + 1) * self.slot_ns - self._delay_ns
        for site in self._sites:
            times_ns, ids = site.server.leave(before_ns)
            if len(ids):
                parts.append(self._leave(times_ns, ids))
        if not parts:
            return
        times_ns, ids = joined([part.times_ns for part in parts]), joined([part.ids for part in parts])
        if len(parts) == 1:
            self._tell(parts[0].kind, *self._heard(ids, times_ns, np.full(len(ids), parts[0].kind))[:2])
            return
        order = np.argsort(times_ns, kind="stable")
        kinds = np.repeat([part.kind for part in parts], [len(part.ids) for part in parts])[order]
        rows, times_ns, places = self._heard(ids[order], times_ns[order], kinds)
        for kind in Answer:
            its = kinds[places] == kind
            self._tell(kind, rows[its], times_ns[its])

    def _leave(self, times_ns: Ints, ids: Ints) -> Answers:
        """Requests leave a server; what the network brings of its answers to those who listen."""
        table = self._table
        rows = ids - table.base
        lone = table.role[rows] == Role.LONE
        if lone.any():
            self._end(rows[lone], Outcome.SERVED, times_ns[lone])
            times_ns, ids = times_ns[~lone], ids[~lone]
        return Answers(*self._through(times_ns + self._delay_ns, ids), Answer.OK)

    def _tell(self, kind: Answer, rows: Ints, times_ns: Ints) -> None:
        """These requests have ended by such an answer."""
        if not len(rows):
            return
        table = self._table
        outcome = Outcome.SERVED if kind is Answer.OK else Outcome.REFUSED
        self._end(rows, outcome, times_ns)
        attempts = table.role[rows] == Role.ATTEMPT
        rows, times_ns = rows[attempts], times_ns[attempts]
        if outcome is Outcome.REFUSED:
            self._measure.count(Count.REFUSED, len(rows))
            self._fail(rows, times_ns, self._retry_after(rows, kind))
            return
        self._measure.count(Count.SERVED, len(rows))
        self._measure.delays(times_ns - table.wanted_ns[rows])
        for b, its in self._by_population(rows):
            self._agenda.add(b.served(table, rows[its], times_ns[its]))

    def _heard(self, ids: Ints, times_ns: Ints, kinds: Ints) -> tuple[Ints, Ints, Ints | slice]:
        """Of these answers the ones that someone still waits for, each request's first: rows, times, places."""
        table = self._table
        rows = ids - table.base
        waits = (table.outcome[rows] == Outcome.LIVE) & (times_ns <= table.deadline_ns[rows])
        # Two answers to two copies in one slot: written last to first, the first one stands.
        live, live_ns = rows[waits], times_ns[waits]
        table.ended_ns[live[::-1]] = live_ns[::-1]
        first = waits & (table.ended_ns[rows] == times_ns)
        if first.all():
            return rows, times_ns, slice(None)
        gone = ~waits & (kinds == Answer.OK) & (table.outcome[rows] != Outcome.SERVED)
        self._measure.count(Count.LATE, int(np.count_nonzero(gone)))
        return rows[first], times_ns[first], np.flatnonzero(first)

    def _time_out(self, ids: Ints, times_ns: Ints) -> None:
        rows = ids - self._table.base
        self._measure.count(Count.TIMED_OUT, int(np.count_nonzero(self._table.role[rows] == Role.ATTEMPT)))
        self._end(rows, Outcome.TIMED_OUT, times_ns)
        self._fail(rows, times_ns, np.zeros(len(rows), np.int64))

    def _fail(self, rows: Ints, times_ns: Ints, retry_after_ns: Ints) -> None:
        """What these clients do about it."""
        table = self._table
        attempts = table.role[rows] == Role.ATTEMPT
        rows, times_ns, retry_after_ns = rows[attempts], times_ns[attempts], retry_after_ns[attempts]
        for b, its in self._by_population(rows):
            follows = b.failed(table, rows[its], times_ns[its], retry_after_ns[its])
            self._agenda.add(follows.plans)
            self._measure.count(Count.GIVEN_UP, follows.given_up)

    def _begin(self, slot: int) -> None:
        """Requests sent for the first time in this slot."""
        for b in self._behaviours:
            if b.arrivals is not None and len(times_ns := b.arrivals.take(slot)):
                role = Role.ATTEMPT if self._timers[b.number] else Role.LONE
                self._open(slot, times_ns, b, role)
        parts = self._agenda.take(slot)
        if not parts:
            return
        made = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
        kinds = made[Field.POPULATION] * len(Role) + made[Field.ROLE]
        for kind in np.flatnonzero(np.bincount(kinds)).tolist():
            population, code = divmod(kind, len(Role))
            self._open_planned(slot, made[:, kinds == kind], self._behaviours[population], Role(code))

    def _open(self, slot: int, times_ns: Ints, b: Behaviour, role: Role) -> Ints:
        method = b.method
        if role is Role.WITHIN:
            method = BYE
        elif role is Role.LONE and self._timers[b.number]:
            method = ACK
        schedule = None if role is Role.LONE else self._timers[b.number][role]
        timeout_ns = schedule.timeout_ns if schedule else 0
        ids = self._table.open(times_ns, population=b.number, method=method, role=role, timeout_ns=timeout_ns)
        self._measure.opened[b.number, role] += len(ids)
        if schedule is not None:
            self._cohorts.start(slot, ids, schedule)
        if role is Role.ATTEMPT:
            self._measure.count(Count.WANTED, len(ids))
        self._send(slot, times_ns, ids, copies=False)
        return ids

    def _open_planned(self, slot: int, made: Ints, b: Behaviour, role: Role) -> None:
        ids = self._open(slot, made[Field.TIME], b, role)
        table = self._table
        rows = ids - table.base
        table.server[rows] = made[Field.SERVER]
        table.client[rows] = made[Field.CLIENT]
        if role is Role.ATTEMPT:
            table.hop[rows] = made[Field.HOP]
            table.attempt[rows] = made[Field.ATTEMPT]
            table.wanted_ns[rows] = np.where(made[Field.WANTED] < 0, made[Field.TIME], made[Field.WANTED])
            self._measure.count(Count.WANTED, -int(np.count_nonzero(made[Field.HOP] + made[Field.ATTEMPT])))

    # -- network, guard, server ------------------------------------------------------------------------------------

    def _send(self, slot: int, times_ns: Ints, ids: Ints, *, copies: bool) -> None:
        sent = ids
        times_ns, ids = self._through(times_ns + self._delay_ns, ids)
        if len(ids) < len(sent):
            self._lose(np.setdiff1d(sent, ids, assume_unique=True), Outcome.LOST, slot)
        self._arriving.setdefault(slot + self._delay_slots, []).append(Arriving(times_ns, ids, copies))

    def _through(self, times_ns: Ints, ids: Ints) -> tuple[Ints, Ints]:
        """What of these messages the network does not lose; over TCP it loses none."""
        if not self.scenario.loss or not len(ids):
            return times_ns, ids
        kept = self._network.random(len(ids)) >= self.scenario.loss
        kept |= self._reliable[self._table.population[ids - self._table.base]]
        return times_ns[kept], ids[kept]

    def _lose(self, ids: Ints, outcome: Outcome, slot: int) -> None:
        """These copies reach nobody: the end of a request without timers, nothing to one that has them."""
        rows = ids - self._table.base
        rows = rows[self._table.role[rows] == Role.LONE]
        if len(rows):
            self._end(rows, outcome, np.full(len(rows), slot * self.slot_ns))

    def _arrive(self, slot: int, parts: list[Arriving]) -> None:
        for part in parts:
            self._measure.count(Count.COPIES if part.copies else Count.FRESH, len(part.ids))
        times_ns, ids = joined([part.times_ns for part in parts]), joined([part.ids for part in parts])
        if not len(ids):
            return
        order = np.argsort(times_ns, kind="stable")
        times_ns, ids = times_ns[order], ids[order]
        if len(self._sites) == 1:
            self._meet(slot, self._sites[0], times_ns, ids)
        else:
            servers = self._table.server[ids - self._table.base]
            for i, site in enumerate(self._sites):
                its = servers == i
                if its.any():
                    self._meet(slot, site, times_ns[its], ids[its])
        self._measure.inside(sum(site.server.inside for site in self._sites))

    def _meet(self, slot: int, site: Site, times_ns: Ints, ids: Ints) -> None:
        """The guard judges, the server takes what it lets through."""
        if site.front is not None:
            verdicts = site.front.judge(times_ns, self._table.method[ids - self._table.base])
            counts = np.bincount(verdicts, minlength=3).tolist()
            if counts[REJECT]:
                refused = verdicts == REJECT
                self._refuse(slot, times_ns[refused], ids[refused], Answer.GUARD_503)
                self._measure.count(Count.REJECTED, counts[REJECT])
            if counts[DROP]:
                self._lose(ids[verdicts == DROP], Outcome.DROPPED, slot)
                self._measure.count(Count.DROPPED, counts[DROP])
            if counts[ALLOW] < len(ids):
                allowed = verdicts == ALLOW
                times_ns, ids = times_ns[allowed], ids[allowed]
        self._measure.count(Count.ALLOWED, len(ids))
        if len(ids):
            self._serve(slot, site.server, times_ns, ids)

    def _serve(self, slot: int, server: Server, times_ns: Ints, ids: Ints) -> None:
        table = self._table
        rows = ids - table.base
        costs = server.costs[table.method[rows]]
        costs[table.known[rows] == server.life] *= server.spec.retransmission_cost
        full = server.serve(times_ns, ids, costs) == OVERFLOW
        overflow = int(np.count_nonzero(full))
        if not overflow:
            table.known[rows] = server.life
            return
        table.known[rows[~full]] = server.life
        self._measure.count(Count.OVERFLOW, overflow)
        times_ns, ids = times_ns[full], ids[full]
        if server.spec.full == "refuse":
            answers = server.up_at(times_ns) & (table.method[ids - table.base] != ACK)
            self._refuse(slot, times_ns[answers], ids[answers], Answer.SERVER_503)
            ids = ids[~answers]
        self._lose(ids, Outcome.LOST, slot)

    def _refuse(self, slot: int, times_ns: Ints, ids: Ints, kind: Answer) -> None:
        """A 503 to each (ACK never comes here); who hears no answer is refused all the same."""
        self._lose(ids, Outcome.REFUSED, slot)
        hears = self._table.role[ids - self._table.base] != Role.LONE
        times_ns, ids = self._through((times_ns + self._delay_ns)[hears], ids[hears])
        self._answers.setdefault(slot + self._delay_slots, []).append(Answers(times_ns, ids, kind))

    # -- inside ----------------------------------------------------------------------------------------------------

    def _end(self, rows: Ints, outcome: Outcome, times_ns: Ints) -> None:
        self._table.end(rows, outcome, times_ns)
        self._measure.ended(self._table.population[rows].astype(np.int64), self._table.role[rows], outcome)

    def _by_population(self, rows: Ints) -> list[tuple[Behaviour, Ints]]:
        """Places in `rows` by whose they are."""
        if not len(rows):
            return []
        populations = self._table.population[rows]
        if len(self._behaviours) == 1:
            return [(self._behaviours[0], np.arange(len(rows)))]
        found = np.flatnonzero(np.bincount(populations)).tolist()
        return [(self._behaviours[number], np.flatnonzero(populations == number)) for number in found]

    def _retry_after(self, rows: Ints, kind: Answer) -> Ints:
        """The Retry-After each of these refusals carries, ns; 0: none."""
        guard = self.scenario.guard
        said = self._retries[self._table.method[rows]]
        if kind is not Answer.GUARD_503 or guard is None or guard.retry_after_s is None or not said.any():
            return np.zeros(len(rows), np.int64)
        low_s, high_s = guard.retry_after_s
        # Whole seconds (RFC 3261 20.33).
        seconds = self._retry.integers(round(low_s), round(high_s) + 1, len(rows))
        return np.where(said, seconds, 0) * _SECOND_NS

    def _each_second(self, now_ns: int) -> None:
        table = self._table
        self._marks.append((now_ns, table.next))
        lowest = table.base
        while self._marks[0][0] < now_ns - self._memory_ns:
            lowest = self._marks.popleft()[1]
        if lowest > table.base:
            held = [oldest for site in self._sites if (oldest := site.server.oldest()) is not None]
            table.retire(min([lowest, *held]))
        for site in self._sites:
            if site.front is not None:
                site.front.changes(now_ns)

    def _plan_events(self) -> dict[int, list[Callable[[int], None]]]:
        events: dict[int, list[Callable[[int], None]]] = {}

        def at(when_s: float, event: Callable[[int], None]) -> None:
            events.setdefault(round(when_s * _SECOND_NS) // self.slot_ns, []).append(event)

        names = [server.name for server in self.scenario.servers]
        for restart in self.scenario.restarts:
            at(restart.at_s, self._restart_of(restart, self._sites[names.index(restart.server)]))
        for b in self._behaviours:
            if isinstance(b, EndpointsBehaviour) and isinstance(b.spec, Endpoints) and b.spec.outage is not None:
                at(b.spec.outage.from_s, self._power_cut_of(b))
                at(b.spec.outage.until_s, self._power_back_of(b, b.spec.outage.back_within_s))
        return events

    def _restart_of(self, restart: Restart, site: Site) -> Callable[[int], None]:
        def happen(now_ns: int) -> None:
            if restart.what == "server":
                self._lose(site.server.crash(now_ns, restart), Outcome.LOST, now_ns // self.slot_ns)
            elif site.front is not None:
                site.front.restart(now_ns)

        return happen

    def _power_cut_of(self, b: Behaviour) -> Callable[[int], None]:
        def happen(now_ns: int) -> None:
            struck, table = self._agenda.forget(b.number), self._table
            size = table.next - table.base
            live = (table.outcome[:size] == Outcome.LIVE) & (table.population[:size] == b.number)
            rows = np.flatnonzero(live & (table.role[:size] != Role.LONE))
            self._measure.abandoned += int(np.count_nonzero(struck[Field.HOP] + struck[Field.ATTEMPT]))
            self._measure.abandoned += int(np.count_nonzero(table.role[rows] == Role.ATTEMPT))
            self._end(rows, Outcome.GONE, np.full(len(rows), now_ns))

        return happen

    def _power_back_of(self, b: EndpointsBehaviour, within_s: float) -> Callable[[int], None]:
        def happen(now_ns: int) -> None:
            self._agenda.add(b.back(now_ns, int(within_s * _SECOND_NS)))

        return happen
