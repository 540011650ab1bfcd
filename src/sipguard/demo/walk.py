"""The way through the demonstration: which rate, until when, and what is to be seen."""

from __future__ import annotations

from typing import NamedTuple

from sipguard.core.levels import State
from sipguard.core.parameters import Lcdm, Parameters

PARAMETERS = Parameters(LC=400, LCDM=Lcdm.DENIAL_TO_DROP, LCPS=80, LRC=10, PC=25, TR=200)
"""5 s of patience, 2 s of calm to relax. TR 200 ms rather than 100: a stall of a busy machine's scheduler shorter than that
must not read as a silent window, which would start the patience anew (SPEC L4)."""

CALM, JUMP, OVERLOAD = 40, 240, 900
"""requests/s. JUMP − CALM is more than twice LCPS, so that one of two consecutive seconds grows by more than LCPS however the
jump falls between them, and JUMP is far below LC, as OVERLOAD is far above."""


class Step(NamedTuple):
    """One stretch of the walk: `rate` requests/s for hold_s, and before that until `state` is reached (at most wait_s).

    on_second: begins with a second of the guard's own (SPEC M3).
    """

    name: str
    title: str
    rate: int
    hold_s: float
    state: State | None = None
    wait_s: float = 0.0
    on_second: bool = False


WALK = (
    Step("calm", "calm: far below LC, everything is served", CALM, 3.6),
    Step("jump", "a jump: growth over LCPS is refused with 503, the state stays normal", JUMP, 2.6, on_second=True),
    Step(
        "overload",
        "overload: over LC, refused with 503 as long as patience lasts",
        OVERLOAD,
        0.0,
        state=State.CRITICAL,
        wait_s=20.0,
        on_second=True,
    ),
    Step("drop", "patience is over: dropped silently, by the kernel's filter", OVERLOAD, 5.6),
    Step(
        "relax",
        "calm again: to be proven for the relax time",
        CALM,
        0.0,
        state=State.NORMAL,
        wait_s=20.0,
        on_second=True,
    ),
    Step("normal", "back to normal: served as before", CALM, 5.0),
)

EXPECTED = (State.NORMAL, State.AROUND, State.CRITICAL, State.NORMAL)
"""The states the guard must visit, in this order; a busy machine may put others between them."""
