"""What may happen to a controller, as hypothesis strategies: parameters, policies and scripts of steps."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from sipguard.core.policy import SHEDDABLE_METHODS

# The machine may be slow, and slow now and then: nothing here is about time. So many examples take about ten seconds a file.
settled = settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.too_slow])

MS = 10**6
MODES = ("denial_to_drop", "denial_only", "drop_only")
TRS = (100, 125, 150, 200, 250, 333, 400, 500, 600, 999, 1000)
#: Sheddable ones, ones that pass, an unknown one, one in the wrong case.
METHODS = ("INVITE", "REGISTER", "OPTIONS", "ACK", "BYE", "CANCEL", "NOTIFY", "PUBLISH", "FOO", "invite")

# Small limits and runs, so that a short script goes through every state.
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "LC": st.integers(1, 60),
    "LCDM": st.sampled_from(("denial_to_drop", *MODES)),
    "LCPS": st.one_of(st.integers(1, 40), st.just(10000)),
    "LRC": st.integers(1, 4),
    "PC": st.integers(1, 4),
    "TR": st.sampled_from(TRS),
}


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happens wait_ns and so many windows (of the TR in force) after the latest step before.

    wait_ns < 0: a clock that went back. kind: "requests" (n ≥ 1 of a method at one instant), "count" (n decided elsewhere),
    "tick" (a timer), "set" (new parameters).
    """

    wait_ns: int
    kind: str
    method: str = ""
    n: int = 0
    changes: tuple[tuple[str, Any], ...] = ()
    windows: int = 0

    def now_ns(self, latest_ns: int, window_ns: int) -> int:
        return latest_ns + self.wait_ns + self.windows * window_ns


#: Steps that belong together; a script is made of them.
Segment = tuple[Step, ...]


def parameters() -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(VALUES)


def policies() -> st.SearchStrategy[dict[str, Any]]:
    sets = st.one_of(st.just(set(SHEDDABLE_METHODS)), st.sets(st.sampled_from(METHODS)))
    return st.fixed_dictionaries(
        {
            "shed": st.sampled_from(("all", "excess")),
            "enforce": st.sampled_from((True, True, True, False)),
            "refuse_methods": sets,
            "drop_methods": sets,
        },
    )


def waits() -> st.SearchStrategy[int]:
    """ns: none, within a window, whole windows and seconds to the nanosecond beside them, back."""
    whole = st.sampled_from((*TRS, 2000, 3000))
    beside = st.builds(lambda ms, ns: ms * MS + ns, whole, st.sampled_from((-1, 0, 0, 0, 1)))
    return st.one_of(st.just(0), st.integers(0, 250 * MS), beside, st.integers(-2000 * MS, -1))


def methods() -> st.SearchStrategy[str]:
    return st.one_of(st.just("INVITE"), st.sampled_from(METHODS))


def amounts() -> st.SearchStrategy[int]:
    return st.one_of(st.integers(1, 4), st.integers(5, 40))


def requests() -> st.SearchStrategy[Segment]:
    """One burst."""
    return st.builds(lambda wait_ns, method, n: (Step(wait_ns, "requests", method, n),), waits(), methods(), amounts())


def loads() -> st.SearchStrategy[Segment]:
    """The same burst in several windows one after the other: what wears patience out."""
    return st.builds(
        lambda method, n, times: (Step(0, "requests", method, n, windows=1),) * times,
        methods(),
        amounts(),
        st.integers(2, 6),
    )


def ticked_loads() -> st.SearchStrategy[Segment]:
    """As `loads`, with the timer of a live edge at, or late after, the end of each window."""
    return st.builds(
        lambda n, times, late_ns: (Step(0, "requests", "INVITE", n), Step(late_ns, "tick", windows=1)) * times,
        amounts(),
        st.integers(2, 6),
        st.sampled_from((0, 0, 1, 7 * MS)),
    )


def calms() -> st.SearchStrategy[Segment]:
    """Windows with little or nothing in them."""
    return st.builds(lambda windows: (Step(0, "requests", "INVITE", 1, windows=windows),), st.integers(1, 6))


def counts() -> st.SearchStrategy[Segment]:
    return st.builds(lambda wait_ns, n: (Step(wait_ns, "count", n=n),), waits(), st.integers(0, 40))


def sets() -> st.SearchStrategy[Segment]:
    changes = st.sampled_from(sorted(VALUES)).flatmap(lambda name: st.tuples(st.just(name), VALUES[name]))
    several = st.lists(changes, min_size=1, max_size=2, unique_by=lambda change: change[0])
    return st.builds(lambda wait_ns, found: (Step(wait_ns, "set", changes=tuple(found)),), waits(), several)


def turns() -> st.SearchStrategy[Segment]:
    """A load that leads into a critical state, and a new LCDM there (SPEC C2)."""
    return st.builds(
        lambda times, mode: (
            *(Step(0, "requests", "INVITE", 40, windows=1),) * times,
            Step(0, "set", changes=(("LCDM", mode),)),
        ),
        st.integers(2, 6),
        VALUES["LCDM"],
    )


def ticks() -> st.SearchStrategy[Segment]:
    return st.builds(lambda wait_ns: (Step(wait_ns, "tick"),), waits())


def scripts(*segments: st.SearchStrategy[Segment], least: int = 6) -> st.SearchStrategy[list[Step]]:
    """Scripts of the given segments; of everything but counts and ticks when none is given."""
    chosen = st.one_of(*(segments or (requests(), requests(), loads(), calms(), sets(), turns())))
    return st.lists(chosen, min_size=least, max_size=16).map(lambda found: list(chain.from_iterable(found)))
