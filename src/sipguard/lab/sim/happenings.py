"""What befalls a run at set times: a process dies, a town loses power and has it back."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sipguard.lab.sim.agenda import Agenda, Field
from sipguard.lab.sim.arrays import Ints
from sipguard.lab.sim.populations import EndpointsBehaviour
from sipguard.lab.sim.scenario import Outage
from sipguard.lab.sim.transactions import Outcome, Role, Transactions

_SECOND_NS = 1_000_000_000
Happening = Callable[[int], None]


class Calendar:
    """Happenings by slot; each is called with the time its slot begins, before anything else in it."""

    def __init__(self, slot_ns: int) -> None:
        self._slot_ns = slot_ns
        self._by_slot: dict[int, list[Happening]] = {}

    def __repr__(self) -> str:
        return f"<Calendar {sorted(self._by_slot)}>"

    def at(self, when_s: float, happening: Happening) -> None:
        """Let this happen then, to the slot."""
        self._by_slot.setdefault(round(when_s * _SECOND_NS) // self._slot_ns, []).append(happening)

    def happen(self, slot: int) -> None:
        """All that is due in this slot."""
        for happening in self._by_slot.pop(slot, ()):
            happening(slot * self._slot_ns)


class PowerCut:
    """One population's: its plans and waiting requests are gone; later all of it comes back.

    end: ends these rows with this outcome at these times. abandoned: things wanted that were lost with it.
    """

    def __init__(
        self,
        devices: EndpointsBehaviour,
        outage: Outage,
        agenda: Agenda,
        table: Transactions,
        end: Callable[[Ints, Outcome, Ints], None],
    ) -> None:
        self.outage = outage
        self.abandoned = 0
        self._devices = devices
        self._agenda = agenda
        self._table = table
        self._end = end

    def begin(self, now_ns: int) -> None:
        """Dark."""
        struck, table = self._agenda.forget(self._devices.number), self._table
        size = table.next - table.base
        live = (table.outcome[:size] == Outcome.LIVE.value) & (table.population[:size] == self._devices.number)
        rows = np.flatnonzero(live)
        # A first try that was only planned was not wanted yet.
        self.abandoned += int(np.count_nonzero(struck[Field.HOP] + struck[Field.ATTEMPT]))
        self.abandoned += int(np.count_nonzero(table.role[rows] == Role.ATTEMPT.value))
        self._end(rows, Outcome.GONE, np.full(len(rows), now_ns))

    def over(self, now_ns: int) -> None:
        """Light: everyone at once, nearly."""
        self._agenda.add(self._devices.back(now_ns, int(self.outage.back_within_s * _SECOND_NS)))
