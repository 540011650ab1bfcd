"""Filter and full buffer: told apart by arithmetic (DESIGN §3)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sipguard.edge.kernel.attribution import Drops, Taken, Tally, attribute, may_have_overflowed
from sipguard.edge.kernel.socketfilter import Memory
from sipguard.edge.kernel.udp_errors import ErrorCounts

V4, V6, DUAL = (4,), (6,), (4, 6)


def test_without_a_filter_all_is_overflow() -> None:
    assert attribute([Tally(V4, unfiltered=30)], {4: ErrorCounts()}) == [Drops(0, 30)]


def test_with_a_filter_the_hosts_counter_bounds_the_overflow() -> None:
    assert attribute([Tally(V4, screened=1000)], {4: ErrorCounts(full=40)}) == [Drops(960, 40)]
    assert attribute([Tally(V4, screened=1000)], {4: ErrorCounts(memory=40)}) == [Drops(960, 40)]
    assert attribute([Tally(V4, screened=1000)], {4: ErrorCounts(full=5000)}) == [Drops(0, 1000)]


def test_an_unfiltered_socket_uses_up_its_share_first() -> None:
    tallies = [Tally(V4, screened=500), Tally(V4, unfiltered=100), Tally(V4, unfiltered=50, screened=10)]
    assert attribute(tallies, {4: ErrorCounts(full=160)}) == [Drops(490, 10), Drops(0, 100), Drops(10, 50)]


def test_families_are_apart() -> None:
    tallies = [Tally(V4, screened=100), Tally(V6, screened=100), Tally(DUAL, screened=200)]
    lost = {4: ErrorCounts(full=7), 6: ErrorCounts(full=3)}
    assert attribute(tallies, lost) == [Drops(100, 0), Drops(100, 0), Drops(190, 10)]
    assert attribute(tallies[:2], lost) == [Drops(93, 7), Drops(97, 3)]


def test_a_socket_that_was_never_full_leaves_the_overflow_to_others() -> None:
    tallies = [Tally(V4, screened=1000, may_overflow=False), Tally(V4, screened=50)]
    assert attribute(tallies, {4: ErrorCounts(full=20)}) == [Drops(1000, 0), Drops(30, 20)]


def test_without_the_hosts_figures_all_screened_is_filtered() -> None:
    assert attribute([Tally(V6, unfiltered=1, screened=9)], {}) == [Drops(9, 1)]


COUNTS = st.integers(0, 1000)
TALLIES = st.lists(st.builds(Tally, st.sampled_from([V4, V6, DUAL]), COUNTS, COUNTS, st.booleans()), max_size=6)
LOST = st.dictionaries(st.sampled_from([4, 6]), st.builds(ErrorCounts, COUNTS, COUNTS))


@given(tallies=TALLIES, lost=LOST)
def test_nothing_is_lost_or_invented(tallies: list[Tally], lost: dict[int, ErrorCounts]) -> None:
    drops = attribute(tallies, lost)
    assert all(count >= 0 for drop in drops for count in drop)
    assert [sum(drop) for drop in drops] == [tally.unfiltered + tally.screened for tally in tallies]
    told_apart = sum(drop.overflowed - tally.unfiltered for drop, tally in zip(drops, tallies, strict=True))
    assert told_apart <= sum(counts.full + counts.memory for counts in lost.values())


@pytest.mark.parametrize(
    ("queued_bytes", "taken", "expected"),
    [
        (0, Taken(0, 0), False),
        (0, Taken(255, 255 * 800), True),  # 255 datagrams and 199 KiB more: 454 · 16 KiB > 4 MiB
        (0, Taken(100, 100 * 800), False),
        (0, Taken(256, 0), True),
        (0, Taken(4, 4 * 65_000), True),
        (4 << 20, Taken(0, 0), True),
    ],
)
def test_evidence_that_a_buffer_was_never_full(queued_bytes: int, taken: Taken, expected: bool) -> None:
    assert may_have_overflowed(Memory(queued_bytes, 8 << 20, 0), taken) is expected
