"""The law on a recording, window by window: the same verdicts as request by request, in milliseconds.

What makes it exact and not a sample: on recorded load RPS is what was offered (SPEC M2), so the states follow from the
windows' counts alone, by the level machine that runs live. In a stretch that lies in one window and one second the
verdicts are a cut: the first so many requests pass, of the rest every sheddable one is shed. The cut is at the stretch's
start under `all`, after the window's allowance under `excess` (SPEC X1: what cannot be shed uses it up as well), and in
the normal state where the second's running total passes the last one's by LCPS (SPEC V3).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sipguard.core.levels import LevelMachine, State
from sipguard.core.parameters import Parameters
from sipguard.core.policy import Shed
from sipguard.lab.sim.arrays import Codes, Ints
from sipguard.lab.tune.figures import SECOND_NS
from sipguard.lab.tune.recording import DROPPABLE, REFUSABLE, Recording

_STATES = tuple(State)
_NORMAL, _AROUND, _CRITICAL = range(3)


class Turn(NamedTuple):
    """A change of the state at the end of a cycle."""

    time_ns: int
    before: State
    after: State


class Judged(NamedTuple):
    """What the law does to a recording.

    starts_ns, offered, refused, dropped: by stretch (a window or a part of one, each within one second). by_lcps: of
    `refused`, in the normal state. state_ns: time in each state up to the last evaluated cycle. first_over: of each
    stretch in which LCPS refused, the time of the first request over it.
    """

    starts_ns: Ints
    offered: Ints
    refused: Ints
    dropped: Ints
    by_lcps: Ints
    turns: list[Turn]
    state_ns: dict[State, int]
    first_over: Ints
    peak_rps: int


class _Grid(NamedTuple):
    """A recording cut at the windows of one TR and at the seconds.

    Positions count requests from the first one. windows: positions at the windows' ends, 0 first; evaluated: how many
    of them end by the recording's end. Of each stretch: start, first and last + 1 position, window, and the position of
    its second's first request plus the last second's total (SPEC M3).
    """

    windows: Ints
    evaluated: int
    starts_ns: Ints
    begins: Ints
    ends: Ints
    window: Ints
    growth_from: Ints


class Windows:
    """A recording made ready; grids are kept by TR, since trials share them."""

    __slots__ = ("_droppable", "_grids", "_positions", "_recording", "_refusable")

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._positions = _running(recording.counts)
        self._refusable = _running(recording.counts * (recording.codes & REFUSABLE > 0))
        self._droppable = _running(recording.counts * (recording.codes & DROPPABLE > 0))
        self._grids: dict[int, _Grid] = {}

    def judge(self, parameters: Parameters, shed: Shed) -> Judged:
        """The recording under this law."""
        grid = self._grid(parameters)
        turns, states, peak_rps = _levels(grid, parameters)
        state = states[grid.window]
        cut = grid.growth_from + parameters.LCPS
        if shed == "excess":
            allowance = _allowances(states, parameters.LC, parameters.scale)
            critical_cut = (grid.windows[:-1] + allowance)[grid.window]
        else:
            critical_cut = grid.begins
        cut = np.clip(np.where(state == _NORMAL, cut, critical_cut), grid.begins, grid.ends)
        refused = np.where(state != _CRITICAL, self._among(self._refusable, cut, grid.ends), 0)
        dropped = np.where(state == _CRITICAL, self._among(self._droppable, cut, grid.ends), 0)
        by_lcps = np.where(state == _NORMAL, refused, 0)
        over = cut[by_lcps > 0]
        return Judged(
            grid.starts_ns,
            grid.ends - grid.begins,
            refused,
            dropped,
            by_lcps,
            turns,
            _times(turns, grid.evaluated * parameters.window_ns),
            self._recording.times_ns[np.searchsorted(self._positions, over, "right") - 1],
            peak_rps,
        )

    def _among(self, running: Ints, first: Ints, end: Ints) -> Ints:
        """How many of a kind are at the positions [first, end)."""
        return self._before(running, end) - self._before(running, first)

    def _before(self, running: Ints, position: Ints) -> Ints:
        row = np.searchsorted(self._positions, position, "right") - 1
        following = np.minimum(row + 1, len(running) - 1)
        # Within a row of several requests all are of one kind.
        share = np.where(running[following] > running[row], position - self._positions[row], 0)
        found: Ints = running[row] + share
        return found

    def _grid(self, parameters: Parameters) -> _Grid:
        grid = self._grids.get(parameters.TR)
        if grid is None:
            grid = self._grids[parameters.TR] = self._cut(parameters.window_ns)
        return grid

    def _cut(self, window_ns: int) -> _Grid:
        evaluated = self._recording.end_ns // window_ns
        # The last window stays open: its requests are judged, its cycle is not evaluated.
        window_ends = np.arange(evaluated + 2, dtype=np.int64) * window_ns
        seconds = np.arange(window_ends[-1] // SECOND_NS + 1, dtype=np.int64)
        edges = np.union1d(window_ends, seconds * SECOND_NS)
        edges = edges[edges <= window_ends[-1]]
        starts = edges[:-1]
        at = self._at(edges)
        totals = np.diff(self._at(np.append(seconds, seconds[-1] + 1) * SECOND_NS))
        last = np.append(0, totals)[: len(seconds)]
        return _Grid(
            self._at(window_ends),
            evaluated,
            starts,
            at[:-1],
            at[1:],
            starts // window_ns,
            (self._at(seconds * SECOND_NS) + last)[starts // SECOND_NS],
        )

    def _at(self, times_ns: Ints) -> Ints:
        """How many requests came before each time (SPEC M1: one at the end of a window is the next one's)."""
        found: Ints = self._positions[np.searchsorted(self._recording.times_ns, times_ns, "left")]
        return found


# -- inside ------------------------------------------------------------------------------------------------------------


def _running(values: Ints) -> Ints:
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(values, dtype=np.int64)))


def _levels(grid: _Grid, parameters: Parameters) -> tuple[list[Turn], Codes, int]:
    """The changes, the state each window is judged in (0, 1, 2 as in SPEC §2), the highest evaluated RPS."""
    rps = (np.diff(grid.windows)[: grid.evaluated] * parameters.scale).astype(np.int64)
    over, rates = np.flatnonzero(rps > parameters.LC), rps.tolist()
    machine, turns = LevelMachine(), []
    states = np.zeros(grid.evaluated + 1, np.int8)
    k = since = 0
    while k < grid.evaluated:
        if machine.state is State.NORMAL:
            # Nothing but an excess changes anything in normal (L1).
            following = np.searchsorted(over, k)
            if following == len(over):
                break
            k = int(over[following])
        before = machine.state
        after = machine.evaluate(rates[k], parameters).state
        k += 1
        if after is not before:
            states[since:k] = _STATES.index(before)
            since = k
            turns.append(Turn(k * parameters.window_ns, before, after))
    states[since:] = _STATES.index(machine.state)
    return turns, states, max(rates, default=0)


def _allowances(states: Codes, lc: int, scale: int) -> Ints:
    """What each window may pass under `excess` (SPEC X1): LC / scale, its fraction carried from the stay's first window."""
    places = np.arange(len(states))
    normal = np.where(states == _NORMAL, places, -1)
    stay = places - np.maximum.accumulate(normal)
    allowances: Ints = stay * lc // scale - (stay - 1) * lc // scale
    return allowances


def _times(turns: list[Turn], end_ns: int) -> dict[State, int]:
    found = dict.fromkeys(State, 0)
    state, since_ns = State.NORMAL, 0
    for turn in turns:
        found[turn.before] += turn.time_ns - since_ns
        state, since_ns = turn.after, turn.time_ns
    found[state] += end_ns - since_ns
    return found
