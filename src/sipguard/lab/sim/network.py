"""The network between clients and guards: one delay, losses of datagrams each way; what is under way lies by slot."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from sipguard.lab.sim.arrays import Bools, Ints
from sipguard.lab.sim.transactions import Transactions


class Answer(IntEnum):
    """What a client may hear. Only the guard's refusals carry a Retry-After."""

    OK = 0
    GUARD_503 = 1
    SERVER_503 = 2


class Answers(NamedTuple):
    """Answers and when they reach their clients."""

    times_ns: Ints
    ids: Ints
    kind: Answer


class Requests(NamedTuple):
    """Requests and when they reach their guards. copies: retransmissions."""

    times_ns: Ints
    ids: Ints
    copies: bool


class Network:
    """Carries messages from slot to slot; times given to it are those of sending.

    delay_ns: one way, a multiple of slot_ns. loss: of datagrams, each by itself; reliable[population]: over TCP, where
    none is lost.
    """

    def __init__(
        self,
        table: Transactions,
        *,
        slot_ns: int,
        delay_ns: int,
        loss: float,
        reliable: Bools,
        random: np.random.Generator,
    ) -> None:
        self.delay_ns = delay_ns
        self._slots = delay_ns // slot_ns
        self._table = table
        self._loss = loss
        self._reliable = reliable
        self._random = random
        self._requests: dict[int, list[Requests]] = {}
        self._answers: dict[int, list[Answers]] = {}

    def __repr__(self) -> str:
        return f"<Network {self.delay_ns} ns, requests in {len(self._requests)} slots, answers in {len(self._answers)}>"

    def send(self, slot: int, times_ns: Ints, ids: Ints, *, copies: bool) -> Ints:
        """Requests sent in this slot; the ids of those it loses."""
        arriving_ns, arriving = self.carried(times_ns, ids)
        self._requests.setdefault(slot + self._slots, []).append(Requests(arriving_ns, arriving, copies))
        return ids[:0] if len(arriving) == len(ids) else np.setdiff1d(ids, arriving, assume_unique=True)

    def answer(self, slot: int, times_ns: Ints, ids: Ints, kind: Answer) -> None:
        """Answers sent in this slot."""
        self._answers.setdefault(slot + self._slots, []).append(Answers(*self.carried(times_ns, ids), kind))

    def requests_in(self, slot: int) -> list[Requests]:
        """What reaches the guards in this slot."""
        return self._requests.pop(slot, [])

    def answers_in(self, slot: int) -> list[Answers]:
        """What reaches clients in this slot, servers' own departures apart."""
        return self._answers.pop(slot, [])

    def carried(self, times_ns: Ints, ids: Ints) -> tuple[Ints, Ints]:
        """What of these messages is not lost, and when it is there."""
        times_ns = times_ns + self.delay_ns
        if not self._loss or not len(ids):
            return times_ns, ids
        kept = self._random.random(len(ids)) >= self._loss
        kept |= self._reliable[self._table.population[ids - self._table.base]]
        return times_ns[kept], ids[kept]
