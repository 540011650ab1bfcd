"""The level machine: SPEC §4 as a table, a row an arrow, under its rules.

    over = RPS > LC; below = RPS < LC; RPS = LC is neither.

L1. normal, over: to critical_limit if LCDM is drop_only, else to around_critical_limit. Both runs start at 0.
L2. around, over, denial_to_drop: patience run + 1; at PC: critical_limit. 503 lasts exactly PC cycles after entry.
L3. around, over, denial_only: stays. PC is not used.
L4. around, not over: patience run = 0 (the excess must be continuous).
L5. around or critical, below: relax run + 1; at LRC: normal. Any cycle that is not below: relax run = 0.
L6. critical, over: stays critical, never back through around.
L7. The way back is always straight to normal.

    New parameters while running move it too:

C2. PC, LCDM: patience run = 0. LRC: relax run = 0. TR: both. A new LCDM in a critical state: drop_only to critical_limit,
    denial_only to around_critical_limit, denial_to_drop keeps the state.

The source spells the second state `aroud_critical_limit` in places; it is the same state.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from sipguard.core.parameters import Lcdm, Parameters


class State(Enum):
    """The three states of the source (SPEC §2)."""

    NORMAL = "normal"
    AROUND = "around_critical_limit"
    """Sheddable requests are refused with 503."""
    CRITICAL = "critical_limit"
    """Sheddable requests are dropped silently."""

    def __repr__(self) -> str:
        return self.value


class Load(Enum):
    """RPS against LC."""

    OVER = "over"
    EQUAL = "equal"
    BELOW = "below"


class Run(Enum):
    """What a cycle does to a run counter."""

    UP = "+1"
    ZERO = "0"
    KEEP = "·"


class When(Enum):
    """When a row's way to its next state is taken."""

    AT_ONCE = "at once"
    PATIENCE_OVER = "patience run = PC"
    CALM_PROVEN = "relax run = LRC"
    NEVER = "never"


class Row(NamedTuple):
    """One row of the table: in `state`, under one of `loads` and `modes`, the runs move and `to` follows `when`."""

    rules: str
    state: State
    loads: tuple[Load, ...]
    modes: tuple[Lcdm, ...]
    patience: Run
    relax: Run
    when: When
    to: State


_NORMAL, _AROUND, _CRITICAL = State.NORMAL, State.AROUND, State.CRITICAL
_TO_DROP, _DENIAL, _DROP = Lcdm.DENIAL_TO_DROP, Lcdm.DENIAL_ONLY, Lcdm.DROP_ONLY

# fmt: off
TABLE = (
    #   rules       state      loads                      modes                       patience  relax     when                to
    Row("L1",       _NORMAL,   (Load.OVER,),              (_TO_DROP, _DENIAL),        Run.ZERO, Run.ZERO, When.AT_ONCE,       _AROUND),
    Row("L1",       _NORMAL,   (Load.OVER,),              (_DROP,),                   Run.ZERO, Run.ZERO, When.AT_ONCE,       _CRITICAL),
    Row("L1",       _NORMAL,   (Load.EQUAL, Load.BELOW),  (_TO_DROP, _DENIAL, _DROP), Run.KEEP, Run.KEEP, When.NEVER,         _NORMAL),
    Row("L2",       _AROUND,   (Load.OVER,),              (_TO_DROP,),                Run.UP,   Run.ZERO, When.PATIENCE_OVER, _CRITICAL),
    Row("L3",       _AROUND,   (Load.OVER,),              (_DENIAL,),                 Run.KEEP, Run.ZERO, When.NEVER,         _AROUND),
    Row("L4 L5",    _AROUND,   (Load.EQUAL,),             (_TO_DROP, _DENIAL),        Run.ZERO, Run.ZERO, When.NEVER,         _AROUND),
    Row("L4 L5 L7", _AROUND,   (Load.BELOW,),             (_TO_DROP, _DENIAL),        Run.ZERO, Run.UP,   When.CALM_PROVEN,   _NORMAL),
    Row("L6 L5",    _CRITICAL, (Load.OVER,),              (_TO_DROP, _DROP),          Run.KEEP, Run.ZERO, When.NEVER,         _CRITICAL),
    Row("L5",       _CRITICAL, (Load.EQUAL,),             (_TO_DROP, _DROP),          Run.KEEP, Run.ZERO, When.NEVER,         _CRITICAL),
    Row("L5 L7",    _CRITICAL, (Load.BELOW,),             (_TO_DROP, _DROP),          Run.KEEP, Run.UP,   When.CALM_PROVEN,   _NORMAL),
)
# fmt: on
# The two pairs that have no row cannot occur: around under drop_only and critical under denial_only (L1, C2).

_ROW = {(row.state, load, mode): row for row in TABLE for load in row.loads for mode in row.modes}


class Step(NamedTuple):
    """What one evaluation did: the state after it, and the runs as they stood when the rule fired."""

    state: State
    patience_run: int
    relax_run: int


class LevelMachine:
    """The state and its two runs; moved once a cycle by `evaluate` (SPEC §4), else only by `reconfigure` (SPEC C2)."""

    __slots__ = ("patience_run", "relax_run", "state")

    def __init__(self) -> None:
        self.state = State.NORMAL
        self.patience_run = 0
        self.relax_run = 0

    def __repr__(self) -> str:
        return f"<level {self.state.value} patience={self.patience_run} relax={self.relax_run}>"

    def evaluate(self, rps: int, parameters: Parameters) -> Step:
        """One cycle with this RPS (requests/s)."""
        lc = parameters.LC
        load = Load.OVER if rps > lc else Load.BELOW if rps < lc else Load.EQUAL
        row = _ROW[self.state, load, parameters.LCDM]
        self.patience_run = _moved(self.patience_run, row.patience)
        self.relax_run = _moved(self.relax_run, row.relax)
        if (
            row.when is When.AT_ONCE
            or (row.when is When.PATIENCE_OVER and self.patience_run >= parameters.PC)
            or (row.when is When.CALM_PROVEN and self.relax_run >= parameters.LRC)
        ):
            step = Step(row.to, self.patience_run, self.relax_run)
            self.state = row.to
            self.patience_run = self.relax_run = 0
            return step
        return Step(self.state, self.patience_run, self.relax_run)

    def reconfigure(self, old: Parameters, new: Parameters) -> None:
        """New parameters while running (SPEC C2)."""
        if new.LCDM != old.LCDM:
            self.change_mode(new.LCDM)
        if new.PC != old.PC or new.TR != old.TR:
            self.patience_run = 0
        if new.LRC != old.LRC or new.TR != old.TR:
            self.relax_run = 0

    def change_mode(self, mode: Lcdm) -> None:
        """A new LCDM while running (SPEC C2): the patience run starts again; a critical state follows the mode."""
        self.patience_run = 0
        if self.state is State.NORMAL:
            return
        if mode is Lcdm.DROP_ONLY:
            self.state = State.CRITICAL
        elif mode is Lcdm.DENIAL_ONLY:
            self.state = State.AROUND


def _moved(run: int, move: Run) -> int:
    if move is Run.UP:
        return run + 1
    return 0 if move is Run.ZERO else run
