"""What the law says: a verdict per request, a cycle per window, a change per transition."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from sipguard.core.levels import State


class Verdict(Enum):
    """What becomes of one request (SPEC §5)."""

    ALLOW = "allow"
    REJECT = "reject"
    """503."""
    DROP = "drop"
    """No answer at all."""

    def __repr__(self) -> str:
        return self.value


class Cycle(NamedTuple):
    """One evaluated window (SPEC M1).

    time_ns: its end, on the controller's clock. requests: counted in it. rps: requests × (1000 div TR).
    state: after the evaluation.
    """

    time_ns: int
    requests: int
    rps: int
    state: State


class Change(NamedTuple):
    """One change of the state, and the figures that made it.

    time_ns: when, on the controller's clock (for the level: the end of the evaluated window). rps and lc: what was
    compared. patience_run, relax_run: the runs as they stood when the rule fired, in cycles. cause: "level" (SPEC §4) or
    "reconfigure" (SPEC C2).
    """

    time_ns: int
    before: State
    after: State
    rps: int
    lc: int
    patience_run: int
    relax_run: int
    cause: str
