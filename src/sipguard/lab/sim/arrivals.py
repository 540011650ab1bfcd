"""When new requests of an open population come: a Poisson process or an even one, at a rate that moves."""

from __future__ import annotations

import math

import numpy as np

from sipguard.lab.sim.arrays import NOTHING, Floats, Ints
from sipguard.lab.sim.scenario import Rate, Spacing

_SECOND_NS = 1_000_000_000


class Arrivals:
    """Times of arrivals, slot by slot, drawn a second at a time. Within a slot the rate is that of its middle."""

    def __init__(self, rate: Rate, spacing: Spacing, slot_ns: int, random: np.random.Generator) -> None:
        self._rate = rate
        self._spacing = spacing
        self._slot_ns = slot_ns
        self._slots = _SECOND_NS // slot_ns
        self._random = random
        self._times = NOTHING
        self._edges: list[int] = []
        self._reached = 0.0

    def take(self, slot: int) -> Ints:
        """The arrivals of this slot; ask for every slot in order."""
        within = slot % self._slots
        if within == 0:
            self._draw(slot)
        return self._times[self._edges[within] : self._edges[within + 1]]

    def _draw(self, first_slot: int) -> None:
        starts = (first_slot + np.arange(self._slots + 1)) * self._slot_ns
        means = rates_at(self._rate, (starts[:-1] + self._slot_ns / 2) / _SECOND_NS) * (self._slot_ns / _SECOND_NS)
        if self._spacing == "poisson":
            counts = self._random.poisson(means)
            within = self._random.integers(0, self._slot_ns, int(counts.sum()))
            self._times = np.repeat(starts[:-1], counts) + within
            self._edges = [0, *np.cumsum(counts).tolist()]
            return
        reached = self._reached + np.concatenate(([0.0], np.cumsum(means)))
        # The k-th request (from 0) comes when k + 1/2 are due.
        due = np.arange(math.ceil(reached[0] - 0.5), math.ceil(reached[-1] - 0.5)) + 0.5
        times = np.interp(due, reached, starts.astype(np.float64)).astype(np.int64)
        self._times = np.clip(times, starts[0], starts[-1] - 1)
        self._edges = np.searchsorted(self._times, starts).tolist()
        self._reached = float(reached[-1])


def rates_at(rate: Rate, times_s: Floats) -> Floats:
    """The rate at each of these times, requests/s."""
    if rate.repeat_s is not None:
        times_s = times_s % rate.repeat_s
    points_s, levels = zip(*rate.points, strict=True)
    found: Floats = np.interp(times_s, points_s, levels)
    return found
