"""What clients will do later: refreshes, redials, the ACK and the BYE of a call that runs."""

from __future__ import annotations

from enum import IntEnum
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sipguard.lab.sim.arrays import NOTHING, Ints

_SECOND_NS = 1_000_000_000


class Field(IntEnum):
    """The rows of an array of plans; each column is one request to be sent. WANTED −1: wanted when it is sent."""

    TIME = 0
    POPULATION = 1
    ROLE = 2
    WANTED = 3
    SERVER = 4
    HOP = 5
    ATTEMPT = 6
    CLIENT = 7


def plans(times_ns: Ints, **fields: NDArray[np.integer[Any]] | int) -> Ints:
    """Plans for these times; fields by their names in lower case, 0 (wanted, client: −1) where not given."""
    made = np.zeros((len(Field), len(times_ns)), np.int64)
    made[Field.TIME] = times_ns
    made[Field.WANTED] = made[Field.CLIENT] = -1
    for name, value in fields.items():
        made[Field[name.upper()]] = value
    return made


class Agenda:
    """Plans by time. Those of this second lie by slot, all others in one heap that is looked through once a second."""

    def __init__(self, slot_ns: int) -> None:
        self._slot_ns = slot_ns
        self._horizon_ns = 0
        self._near: dict[int, list[Ints]] = {}
        self._far: list[Ints] = []

    def __repr__(self) -> str:
        return f"<Agenda to {self._horizon_ns} ns, {sum(part.shape[1] for part in self._far)} later>"

    def add(self, made: Ints) -> None:
        """Remember these plans; none may be for a slot already taken."""
        times = made[Field.TIME]
        if not times.size:
            return
        near = times < self._horizon_ns
        if not near.any():
            self._far.append(made)
            return
        if not near.all():
            self._far.append(made[:, ~near])
            made = made[:, near]
        self._lay_out(made)

    def take(self, slot: int) -> list[Ints]:
        """The plans of this slot; ask for every slot in order."""
        if slot * self._slot_ns >= self._horizon_ns:
            self._horizon_ns += _SECOND_NS
            self._look_through()
        return self._near.pop(slot, [])

    def forget(self, population: int) -> Ints:
        """Strike out all plans of one population; what was struck out."""
        struck = []
        for parts in (self._far, *self._near.values()):
            for i, part in enumerate(parts):
                its = part[Field.POPULATION] == population
                struck.append(part[:, its])
                parts[i] = part[:, ~its]
        return np.concatenate(struck, axis=1) if struck else plans(NOTHING)

    def _look_through(self) -> None:
        if not self._far:
            return
        heap = self._far[0] if len(self._far) == 1 else np.concatenate(self._far, axis=1)
        due = heap[Field.TIME] < self._horizon_ns
        self._far = [heap[:, ~due]]
        self._lay_out(heap[:, due])

    def _lay_out(self, made: Ints) -> None:
        slots = made[Field.TIME] // self._slot_ns
        order = np.argsort(slots, kind="stable")
        made, slots = made[:, order], slots[order]
        edges = [0, *(np.flatnonzero(np.diff(slots)) + 1).tolist(), len(slots)]
        for start, end in pairwise(edges):
            if end > start:
                self._near.setdefault(int(slots[start]), []).append(made[:, start:end])
