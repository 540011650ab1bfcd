"""The loop, closed: clients → network → guard → server → network → clients, in slots of virtual time.

A slot is no longer than the network's delay, so nothing that happens in a slot can be met in the same one but by the
client that did it. Every request keeps its own time to the ns and each stage takes a slot's requests in order of time:
slots are for looking ahead, not for rounding. Exact: timers, the law, queues, retransmissions. Drawn at random: arrivals,
service times, losses, what people do. Left out: the guard's own work, jitter, TCP's own retransmission (it loses nothing).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

# By name: numpy loads it at first use only, and an interrupt that comes in there is lost (cli.loading).
from numpy.random import SeedSequence, default_rng

from sipguard.core.verdicts import Change
from sipguard.lab.sim.agenda import Agenda, Field
from sipguard.lab.sim.arrays import Bools, Ints, joined
from sipguard.lab.sim.cohorts import Cohorts, slot_of
from sipguard.lab.sim.front import ALLOW, DROP, REJECT, Front
from sipguard.lab.sim.happenings import Calendar, PowerCut
from sipguard.lab.sim.measure import Count, Measure
from sipguard.lab.sim.methods import ACK, BYE, CODES
from sipguard.lab.sim.network import Answer, Answers, Network, Requests
from sipguard.lab.sim.populations import Behaviour, EndpointsBehaviour, Setting, behaviour, schedules_of
from sipguard.lab.sim.scenario import Restart, Scenario
from sipguard.lab.sim.server import OVERFLOW, Server
from sipguard.lab.sim.transactions import Outcome, Role, Transactions

_SECOND_NS = 1_000_000_000
_LONGEST_SLOT_NS = 50_000_000


class Site(NamedTuple):
    """A server and the guard before it."""

    front: Front | None
    server: Server


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
        self._timers = [schedules_of(spec, scenario.t1_ms, scenario.t2_ms) for spec in scenario.populations]
        every = [schedule for roles in self._timers for schedule in roles.values()]
        delay_ns = scenario.delay_ms * 1_000_000
        self.slot_ns = slot_of(every, delay_ns, _LONGEST_SLOT_NS)
        # Numbers by place, so that one population more leaves the others' as they were.
        network, self._retry, *rest = map(default_rng, SeedSequence(seed).spawn(2 + servers + populations))
        self._sites = tuple(
            Site(Front(scenario.guard) if scenario.guard else None, Server(spec, rest[i]))
            for i, spec in enumerate(scenario.servers)
        )
        setting = Setting(servers, self.slot_ns)
        self._behaviours = [
            behaviour(spec, number, setting, rest[servers + number]) for number, spec in enumerate(scenario.populations)
        ]
        self._retries = np.zeros(len(CODES), bool)
        if scenario.guard and scenario.guard.retry_after_s is not None:
            self._retries[[CODES[m] for m in scenario.guard.retry_after_methods]] = True
        self._duration_ns = round(scenario.duration_s * _SECOND_NS)
        self._table = Transactions()
        self._network = Network(
            self._table,
            slot_ns=self.slot_ns,
            delay_ns=delay_ns,
            loss=scenario.loss,
            reliable=np.array([b.reliable for b in self._behaviours]),
            random=network,
        )
        self._cohorts = Cohorts(self.slot_ns, self._table)
        self._agenda = Agenda(self.slot_ns)
        self._measure = Measure(self._duration_ns, populations)
        self._calendar = Calendar(self.slot_ns)
        self._cuts: list[PowerCut] = []
        self._plan()
        longest_ns = max((schedule.timeout_ns for schedule in every), default=0)
        self._memory_ns = longest_ns + 2 * delay_ns + 2 * _SECOND_NS
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
        done = measure.bins[[Count.SERVED, Count.GIVEN_UP]].sum() + sum(cut.abandoned for cut in self._cuts)
        return Run(self.scenario, measure, self._sites, changes, int(measure.bins[Count.WANTED].sum() - done))

    # -- one slot --------------------------------------------------------------------------------------------------

    def _step(self, slot: int) -> None:
        now_ns = slot * self.slot_ns
        self._measure.at(now_ns)
        self._calendar.happen(slot)
        self._take_answers(slot)
        fired = self._cohorts.fire(slot)
        if len(fired.given_up):
            self._time_out(fired.given_up, fired.given_up_ns)
        if len(fired.copies):
            self._send(slot, fired.copies_ns, fired.copies, copies=True)
        self._begin(slot)
        parts = self._network.requests_in(slot)
        if parts:
            self._arrive(slot, parts)

    def _take_answers(self, slot: int) -> None:
        """Answers that reach clients in this slot, in order of time, and what the clients do about them."""
        parts = self._network.answers_in(slot)
        before_ns = (slot + 1) * self.slot_ns - self._network.delay_ns
        for site in self._sites:
            times_ns, ids = site.server.leave(before_ns)
            if len(ids):
                parts.append(self._leave(times_ns, ids))
        if not parts:
            return
        times_ns, ids = joined([part.times_ns for part in parts]), joined([part.ids for part in parts])
        kinds = np.repeat([part.kind for part in parts], [len(part.ids) for part in parts])
        if len(parts) > 1:
            order = np.argsort(times_ns, kind="stable")
            times_ns, ids, kinds = times_ns[order], ids[order], kinds[order]
        rows = ids - self._table.base
        heard = self._heard(rows, times_ns)
        for kind in sorted({part.kind for part in parts}):
            its = heard & (kinds == kind.value)
            self._tell(kind, rows[its], times_ns[its])
        if not heard.all():
            late = ~heard & (kinds == Answer.OK.value) & (self._table.outcome[rows] != Outcome.SERVED.value)
            self._measure.count(Count.LATE, int(np.count_nonzero(late)))

    def _leave(self, times_ns: Ints, ids: Ints) -> Answers:
        """Requests leave a server; what the network brings of its answers to those who listen."""
        table = self._table
        rows = ids - table.base
        lone = table.role[rows] == Role.LONE.value
        if lone.any():
            self._end(rows[lone], Outcome.SERVED, times_ns[lone])
            times_ns, ids = times_ns[~lone], ids[~lone]
        return Answers(*self._network.carried(times_ns, ids), Answer.OK)

    def _tell(self, kind: Answer, rows: Ints, times_ns: Ints) -> None:
        """These requests have ended by such an answer."""
        if not len(rows):
            return
        table = self._table
        outcome = Outcome.SERVED if kind is Answer.OK else Outcome.REFUSED
        self._end(rows, outcome, times_ns)
        attempts = table.role[rows] == Role.ATTEMPT.value
        rows, times_ns = rows[attempts], times_ns[attempts]
        if outcome is Outcome.REFUSED:
            self._measure.count(Count.REFUSED, len(rows))
            self._fail(rows, times_ns, self._retry_after(rows, kind))
            return
        self._measure.count(Count.SERVED, len(rows))
        self._measure.delays(times_ns - table.wanted_ns[rows])
        for b, its in self._by_population(rows):
            self._agenda.add(b.served(table, rows[its], times_ns[its]))

    def _heard(self, rows: Ints, times_ns: Ints) -> Bools:
        """Which of these answers, in order of time, end a request: someone still waits for it, and it is the first."""
        table = self._table
        waits = (table.outcome[rows] == Outcome.LIVE.value) & (times_ns <= table.deadline_ns[rows])
        # Two answers to two copies in one slot: written last to first, the first one stands.
        live, live_ns = rows[waits], times_ns[waits]
        table.ended_ns[live[::-1]] = live_ns[::-1]
        first: Bools = waits & (table.ended_ns[rows] == times_ns)
        return first

    def _time_out(self, ids: Ints, times_ns: Ints) -> None:
        rows = ids - self._table.base
        self._measure.count(Count.TIMED_OUT, int(np.count_nonzero(self._table.role[rows] == Role.ATTEMPT.value)))
        self._end(rows, Outcome.TIMED_OUT, times_ns)
        self._fail(rows, times_ns, np.zeros(len(rows), np.int64))

    def _fail(self, rows: Ints, times_ns: Ints, retry_after_ns: Ints) -> None:
        """What these clients do about it."""
        table = self._table
        attempts = table.role[rows] == Role.ATTEMPT.value
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
        lost = self._network.send(slot, times_ns, ids, copies=copies)
        if len(lost):
            self._lose(lost, Outcome.LOST, slot)

    def _lose(self, ids: Ints, outcome: Outcome, slot: int) -> None:
        """These copies reach nobody: the end of a request without timers, nothing to one that has them."""
        rows = ids - self._table.base
        rows = rows[self._table.role[rows] == Role.LONE.value]
        if len(rows):
            self._end(rows, outcome, np.full(len(rows), slot * self.slot_ns))

    def _arrive(self, slot: int, parts: list[Requests]) -> None:
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
        hears = self._table.role[ids - self._table.base] != Role.LONE.value
        self._network.answer(slot, times_ns[hears], ids[hears], kind)

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

    def _plan(self) -> None:
        names = [server.name for server in self.scenario.servers]
        for restart in self.scenario.restarts:
            site = self._sites[names.index(restart.server)]
            self._calendar.at(restart.at_s, partial(self._restart, restart, site))
        for b in self._behaviours:
            if isinstance(b, EndpointsBehaviour) and (outage := b.spec.outage) is not None:
                cut = PowerCut(b, outage, self._agenda, self._table, self._end)
                self._cuts.append(cut)
                self._calendar.at(outage.from_s, cut.begin)
                self._calendar.at(outage.until_s, cut.over)

    def _restart(self, restart: Restart, site: Site, now_ns: int) -> None:
        if restart.what == "server":
            self._lose(site.server.crash(now_ns, restart), Outcome.LOST, now_ns // self.slot_ns)
        elif site.front is not None:
            site.front.restart(now_ns)
