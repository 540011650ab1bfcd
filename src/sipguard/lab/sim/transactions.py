"""Every request that a client still waits for, as columns: one row per transaction, whatever the number of its copies."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import numpy as np

from sipguard.lab.sim.arrays import Bools, Ints


class Outcome(IntEnum):
    """How a request ended for its client; each ends in exactly one way."""

    LIVE = 0
    """Not ended: still waiting."""
    SERVED = 1
    """Answered by the server in time."""
    REFUSED = 2
    """503, by the guard or the server itself."""
    TIMED_OUT = 3
    """Timer B or F, or the user's patience."""
    DROPPED = 4
    """Sent without timers, dropped by the guard."""
    LOST = 5
    """Sent without timers, lost on the way or in a full or dead server."""
    GONE = 6
    """Its client lost power."""


class Role(IntEnum):
    """What a request is to its client."""

    ATTEMPT = 0
    """An attempt at what the client wants: retried, failed over, measured."""
    WITHIN = 1
    """A BYE: timers, but nobody tries again."""
    LONE = 2
    """An ACK or a flood's request: no timers, no answer heard."""


_NEVER: Final = np.iinfo(np.int64).max
_COLUMNS: Final = {
    "sent_ns": np.int64,
    "wanted_ns": np.int64,
    "deadline_ns": np.int64,
    "ended_ns": np.int64,
    "client": np.int32,
    "known": np.int32,
    "population": np.int16,
    "attempt": np.int16,
    "method": np.int8,
    "role": np.int8,
    "server": np.int8,
    "hop": np.int8,
    "outcome": np.int8,
}


class Transactions:
    """Columns by row. A request's id never changes and is never used again; its row is id − base.

    sent_ns: its first copy. wanted_ns: when the client first wanted this (before failing over). deadline_ns: when it gives
    up. ended_ns: when it was answered. client: the device, −1 for none. known: the server's life that has this request,
    −1 for none. attempt: tries before this one. hop: servers tried before this one.
    """

    def __init__(self) -> None:
        self.base = 0
        self.next = 0
        self._capacity = 4096
        self.sent_ns = np.zeros(self._capacity, np.int64)
        self.wanted_ns = np.zeros(self._capacity, np.int64)
        self.deadline_ns = np.zeros(self._capacity, np.int64)
        self.ended_ns = np.zeros(self._capacity, np.int64)
        self.client = np.zeros(self._capacity, np.int32)
        self.known = np.zeros(self._capacity, np.int32)
        self.population = np.zeros(self._capacity, np.int16)
        self.attempt = np.zeros(self._capacity, np.int16)
        self.method = np.zeros(self._capacity, np.int8)
        self.role = np.zeros(self._capacity, np.int8)
        self.server = np.zeros(self._capacity, np.int8)
        self.hop = np.zeros(self._capacity, np.int8)
        self.outcome = np.zeros(self._capacity, np.int8)

    def __repr__(self) -> str:
        return f"<Transactions {self.base}…{self.next}>"

    def open(self, sent_ns: Ints, *, population: int, method: int, role: Role, timeout_ns: int) -> Ints:
        """A row for each time; the ids. What is not given here is 0 (client: −1), to be set by the caller."""
        n = len(sent_ns)
        if self.next - self.base + n > self._capacity:
            self._grow(n)
        ids = np.arange(self.next, self.next + n)
        rows = slice(self.next - self.base, self.next - self.base + n)
        self.next += n
        self.sent_ns[rows] = self.wanted_ns[rows] = sent_ns
        self.deadline_ns[rows] = sent_ns + timeout_ns
        self.ended_ns[rows] = _NEVER
        self.client[rows] = self.known[rows] = -1
        self.population[rows] = population
        self.method[rows] = method
        self.role[rows] = role
        self.attempt[rows] = self.server[rows] = self.hop[rows] = 0
        self.outcome[rows] = Outcome.LIVE
        return ids

    def waiting_at(self, rows: Ints, times_ns: Ints) -> Bools:
        """Not answered before these times. (Answers of a slot are taken in before its timers fire.)"""
        found: Bools = self.ended_ns[rows] > times_ns
        return found

    def end(self, rows: Ints, outcome: Outcome, times_ns: Ints) -> None:
        """These have ended so, then."""
        self.outcome[rows] = outcome
        self.ended_ns[rows] = times_ns

    def retire(self, before_id: int) -> None:
        """Nobody will ask for ids below this one again."""
        gone = before_id - self.base
        if gone * 2 < self._capacity:
            return
        kept = self.next - before_id
        for name in _COLUMNS:
            column = getattr(self, name)
            column[:kept] = column[gone : gone + kept].copy()
        self.base = before_id

    def _grow(self, n: int) -> None:
        while self.next - self.base + n > self._capacity:
            self._capacity *= 2
        for name, kind in _COLUMNS.items():
            column = np.zeros(self._capacity, kind)
            old = getattr(self, name)
            column[: len(old)] = old
            setattr(self, name, column)
