"""Short ways to say what comes in: windows of requests on a controller that stands at the beginning of one."""

from __future__ import annotations

from typing import Any

from sipguard import OverloadController, Parameters, Policy, State

MS = 10**6
SECOND = 10**9

N, A, C = State.NORMAL, State.AROUND, State.CRITICAL


def controller(policy: Policy | None = None, origin_ns: int = 0, **parameters: Any) -> OverloadController:
    """LC 100 at TR 100 (so 10 requests are equal, 11 are over, 9 below), LRC 3, PC 4; LCPS out of the way."""
    values: dict[str, Any] = {"LC": 100, "LCDM": "denial_to_drop", "LCPS": 10000, "LRC": 3, "PC": 4, "TR": 100}
    return OverloadController(Parameters(**{**values, **parameters}), policy, origin_ns=origin_ns)


def states(c: OverloadController, *loads: int, method: str = "INVITE") -> list[State]:
    """The state after each of the windows that hold so many requests, each fed at its window's beginning."""
    found = []
    for n in loads:
        end_ns = c.next_deadline_ns
        c.admit_many(method, n, now_ns=end_ns - c.parameters.window_ns)
        c.advance_to(end_ns)
        found.append(c.state)
    return found


def in_state(state: State, policy: Policy | None = None, **parameters: Any) -> OverloadController:
    """A controller at the beginning of the first window after the way into that state, runs at 0."""
    mode = "drop_only" if state is C else "denial_only"
    c = controller(policy, **{"LCDM": mode, **parameters})
    if state is not N:
        # One over in the scaled measure, whatever TR is.
        states(c, c.parameters.LC // c.parameters.scale + 1)
    assert c.state is state
    c.advance(now_ns=0)
    c.changes()
    return c
