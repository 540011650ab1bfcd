"""When the load sends: absolute time, no bursts; and the walk's rates against the thresholds."""

from __future__ import annotations

import pytest

from sipguard.core.levels import State
from sipguard.demo.pace import CATCH_UP_NS, Pace
from sipguard.demo.walk import CALM, JUMP, OVERLOAD, PARAMETERS, WALK

SECOND = 1_000_000_000


def test_the_walks_rates_are_clear_of_the_thresholds() -> None:
    # SPEC V3: the jump grows by more than LCPS in one of two seconds however it falls between them; L1, L5 for the rest.
    assert JUMP - CALM > 2 * PARAMETERS.LCPS
    assert 2 * CALM < 1.5 * JUMP < PARAMETERS.LC < OVERLOAD / 2
    assert [step.state for step in WALK if step.state is not None] == [State.CRITICAL, State.NORMAL]


def test_pace_is_absolute() -> None:
    pace = Pace()
    pace.change(100, 5)
    times_ns = [5 + n * 7_300_000 for n in range(1000)]
    taken = sum(pace.take(now_ns) for now_ns in times_ns)
    assert taken == (times_ns[-1] - 5) * 100 // SECOND
    assert pace.skipped == 0


def test_pace_changes_at_its_moment() -> None:
    pace = Pace()
    pace.change(1000, 0)
    pace.change(10, SECOND)
    assert sum(pace.take(now_ns) for now_ns in range(0, SECOND, 1_000_000)) == 999
    assert sum(pace.take(SECOND + now_ns) for now_ns in range(0, SECOND + 1, 1_000_000)) == 10


def test_pace_counts_what_went_out_besides() -> None:
    pace = Pace()
    pace.change(100, 0)
    assert pace.take(0) == 0
    pace.spend(3)
    assert [pace.take(n * 10_000_000) for n in range(1, 6)] == [0, 0, 0, 1, 1]


def test_a_stalled_sender_skips_and_does_not_burst() -> None:
    pace = Pace()
    pace.change(1000, 0)
    assert pace.take(10 * SECOND) == 1000 * CATCH_UP_NS // SECOND
    assert pace.skipped == 10_000 - 1000 * CATCH_UP_NS // SECOND
    assert pace.take(10 * SECOND + 1_000_000) == 1


def test_pace_refuses_a_negative_rate() -> None:
    with pytest.raises(ValueError, match="rate = -1"):
        Pace().change(-1, 0)
