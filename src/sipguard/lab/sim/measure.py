"""What is counted while a simulation runs: per tenth of a second, per population and outcome, and every set-up delay."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from sipguard.lab.sim.arrays import Codes, Floats, Ints
from sipguard.lab.sim.transactions import Outcome, Role

#: The length of a bin.
BIN_NS = 100_000_000


class Count(IntEnum):
    """A row of `Measure.bins`: how many in each bin. At the guard: FRESH to DROPPED; at clients: WANTED to GIVEN_UP."""

    FRESH = 0
    """First copies that came to the guard (ACK and BYE included)."""
    COPIES = 1
    """Further copies (retransmissions)."""
    ALLOWED = 2
    REJECTED = 3
    DROPPED = 4
    OVERFLOW = 5
    """Allowed, and the server had no room or was away."""
    LATE = 6
    """Answered by the server when the client had given up, or been refused: wasted work."""
    WANTED = 7
    """Things clients began to want: calls, refreshes, probes."""
    SERVED = 8
    """Attempts answered in time: goodput."""
    REFUSED = 9
    TIMED_OUT = 10
    GIVEN_UP = 11
    """Things wanted that no client will try again."""
    INSIDE = 12
    """The longest queue, all servers together."""


class Measure:
    """Counters of one run.

    opened[population, role], outcomes[population, role, outcome]: requests begun, and ended so.
    """

    def __init__(self, duration_ns: int, populations: int) -> None:
        self.bins = np.zeros((len(Count), -(-duration_ns // BIN_NS)), np.int64)
        self.outcomes = np.zeros((populations, len(Role), len(Outcome)), np.int64)
        self.opened = np.zeros((populations, len(Role)), np.int64)
        self._bin = 0
        self._delays: list[Floats] = []
        self._delay_bins: list[int] = []

    def at(self, now_ns: int) -> None:
        """What is counted from now on falls into the bin of this time."""
        self._bin = now_ns // BIN_NS

    def count(self, what: Count, n: int) -> None:
        """n more of these now."""
        self.bins[what, self._bin] += n

    def inside(self, n: int) -> None:
        """So many are in the servers now."""
        row = self.bins[Count.INSIDE]
        if n > row[self._bin]:
            row[self._bin] = n

    def ended(self, populations: Ints, roles: Codes, outcome: Outcome) -> None:
        """These requests have ended so."""
        places = (populations * len(Role) + roles) * len(Outcome) + outcome.value
        flat = self.outcomes.reshape(-1)
        flat += np.bincount(places, minlength=len(flat))

    def delays(self, delays_ns: Ints) -> None:
        """From wanting to the answer, for attempts served now."""
        self._delays.append(delays_ns / 1e9)
        self._delay_bins.append(self._bin)

    def all_delays(self) -> tuple[Floats, Ints]:
        """Every set-up delay, s, and the bin its answer came in."""
        if not self._delays:
            return np.empty(0), np.empty(0, np.int64)
        lengths = [len(part) for part in self._delays]
        return np.concatenate(self._delays), np.repeat(np.array(self._delay_bins, np.int64), lengths)
