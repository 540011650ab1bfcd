"""Timers by cohort: requests first sent in one slot, on one schedule, meet each of their timers in one slot too."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sipguard.lab.sim.arrays import Ints, joined
from sipguard.lab.sim.measure import BIN_NS
from sipguard.lab.sim.timers import Schedule
from sipguard.lab.sim.transactions import Transactions


class _Cohort(NamedTuple):
    """The requests that still wait, and which step of their schedule is next."""

    ids: Ints
    schedule: Schedule
    step: int


class Fired(NamedTuple):
    """What the timers of one slot did: copies to send and when, and who gave up and when."""

    copies: Ints
    copies_ns: Ints
    given_up: Ints
    given_up_ns: Ints


class Cohorts:
    """Each request keeps its own time to the ns; only the looking happens by slot.

    Every step of a schedule must be a multiple of the slot, so that a cohort stays together.
    """

    def __init__(self, slot_ns: int, table: Transactions) -> None:
        self._slot_ns = slot_ns
        self._table = table
        self._due: dict[int, list[_Cohort]] = {}

    def __repr__(self) -> str:
        return f"<Cohorts in {len(self._due)} slots>"

    def start(self, slot: int, ids: Ints, schedule: Schedule) -> None:
        """These were first sent in this slot."""
        self._put(slot, _Cohort(ids, schedule, 0))

    def fire(self, slot: int) -> Fired:
        """The timers of this slot, after its answers were taken in: an answer at the same time as a timer comes first."""
        copies, copies_ns, given_up, given_up_ns = [], [], [], []
        table = self._table
        for cohort in self._due.pop(slot, ()):
            ids, schedule, step = cohort
            rows = ids - table.base
            last = step == len(schedule.copies_ns)
            offset_ns = schedule.timeout_ns if last else schedule.copies_ns[step]
            times_ns = table.sent_ns[rows] + offset_ns
            waiting = table.waiting_at(rows, times_ns)
            if not waiting.all():
                ids, times_ns = ids[waiting], times_ns[waiting]
                if not len(ids):
                    continue
            if last:
                given_up.append(ids)
                given_up_ns.append(times_ns)
            else:
                copies.append(ids)
                copies_ns.append(times_ns)
                self._put(slot - offset_ns // self._slot_ns, _Cohort(ids, schedule, step + 1))
        return Fired(joined(copies), joined(copies_ns), joined(given_up), joined(given_up_ns))

    def _put(self, first_slot: int, cohort: _Cohort) -> None:
        steps = cohort.schedule.copies_ns
        next_ns = steps[cohort.step] if cohort.step < len(steps) else cohort.schedule.timeout_ns
        self._due.setdefault(first_slot + next_ns // self._slot_ns, []).append(cohort)


def slot_of(schedules: list[Schedule], delay_ns: int, longest_ns: int) -> int:
    """The longest slot, at most longest_ns, that divides every step of these schedules the network's delay and a bin."""
    steps = [step for schedule in schedules for step in (*schedule.copies_ns, schedule.timeout_ns)]
    common = int(np.gcd.reduce([delay_ns, BIN_NS, *steps]))
    return next(common // n for n in range(1, common + 1) if common % n == 0 and common // n <= longest_ns)
