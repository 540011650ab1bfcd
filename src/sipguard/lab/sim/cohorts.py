"""Timers by cohort: requests first sent in one slot, on one schedule, meet each of their timers in one slot too."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sipguard.lab.sim.arrays import NOTHING, Bools, Ints, joined
from sipguard.lab.sim.measure import BIN_NS
from sipguard.lab.sim.timers import Schedule
from sipguard.lab.sim.transactions import Transactions


class _Cohort(NamedTuple):
    """The requests that still wait, and which step of their schedule is next."""

    ids: Ints
    schedule: Schedule
    step: int

    @property
    def last(self) -> bool:
        """Whether the next step is to give up."""
        return self.step == len(self.schedule.copies_ns)

    @property
    def next_ns(self) -> int:
        """When the next step comes, since the first copy."""
        return self.schedule.timeout_ns if self.last else self.schedule.copies_ns[self.step]


class Fired(NamedTuple):
    """What the timers of one slot did: copies to send and when, and who gave up and when."""

    copies: Ints
    copies_ns: Ints
    given_up: Ints
    given_up_ns: Ints


_NONE = Fired(NOTHING, NOTHING, NOTHING, NOTHING)


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
        due = self._due.pop(slot, None)
        if due is None:
            return _NONE
        # All cohorts at once, then each for itself again: numpy takes longer to begin than for a cohort.
        ids = joined([cohort.ids for cohort in due])
        lengths = [len(cohort.ids) for cohort in due]
        rows = ids - self._table.base
        times_ns = self._table.sent_ns[rows] + np.repeat([cohort.next_ns for cohort in due], lengths)
        waiting = self._table.waiting_at(rows, times_ns)
        last = np.repeat([cohort.last for cohort in due], lengths)
        copies, given_up = waiting & ~last, waiting & last
        self._go_on(slot, due, ids, waiting, lengths)
        return Fired(ids[copies], times_ns[copies], ids[given_up], times_ns[given_up])

    def _go_on(self, slot: int, due: list[_Cohort], ids: Ints, waiting: Bools, lengths: list[int]) -> None:
        """To the next step with those of each cohort that still wait."""
        edges = [0, *np.cumsum(lengths).tolist()]
        # Where each cohort's rest ends among all that wait.
        ends = np.append(0, np.cumsum(waiting))[edges].tolist()
        rest = ids[waiting]
        for cohort, start, end in zip(due, ends[:-1], ends[1:], strict=True):
            if end > start and not cohort.last:
                # A copy: a view would keep all the others.
                left = _Cohort(rest[start:end].copy(), cohort.schedule, cohort.step + 1)
                self._put(slot - cohort.next_ns // self._slot_ns, left)

    def _put(self, first_slot: int, cohort: _Cohort) -> None:
        self._due.setdefault(first_slot + cohort.next_ns // self._slot_ns, []).append(cohort)


def slot_of(schedules: list[Schedule], delay_ns: int, longest_ns: int) -> int:
    """The longest slot, at most longest_ns, that divides every step of these schedules the network's delay and a bin."""
    steps = [step for schedule in schedules for step in (*schedule.copies_ns, schedule.timeout_ns)]
    common = int(np.gcd.reduce([delay_ns, BIN_NS, *steps]))
    return next(common // n for n in range(1, common + 1) if common % n == 0 and common // n <= longest_ns)
