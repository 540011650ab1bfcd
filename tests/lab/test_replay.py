"""Recorded events and the law on them (DESIGN §5 replay; SPEC M1, M4)."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sipguard import OverloadController, Parameters, Policy, Verdict
from sipguard.lab.replay import Event, Judged, Replay, RowError, ms_text, parse_ms, read_events, tick_row, verdict_row

PARAMETERS = Parameters(LC=100, LCPS=10000, LRC=3, PC=4, TR=100)


def read(text: str) -> list[tuple[int, str, int]]:
    return [(event.time_ns, event.method, event.requests) for event in read_events(text.splitlines(keepends=True))]


@pytest.mark.parametrize(
    "text",
    [
        "time_ms,method,count\n5,INVITE,2\n7.5,BYE,1\n",
        "time_ms,method,count\r\n5,INVITE,2\r\n7.5,BYE,1\r\n",
        "count,time_ms,method\n2,5,INVITE\n1,7.5,BYE\n",
        "5,INVITE,2\n7.5,BYE,1",
        '\n time_ms , "method",count\n\n"5", INVITE ,2\n,,\n7.50,BYE,1\n',
    ],
)
def test_the_spellings_of_one_file(text: str) -> None:
    assert read(text) == [(5_000_000, "INVITE", 2), (7_500_000, "BYE", 1)]


def test_without_a_count_each_row_is_one() -> None:
    assert read("time_ms,method\n1,INVITE\n1,x-own\n") == [(1_000_000, "INVITE", 1), (1_000_000, "x-own", 1)]
    assert read("method,time_ms\nBYE,2\n") == [(2_000_000, "BYE", 1)]
    assert read("") == []
    assert read("time_ms,method\n") == []


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("time_ms,method,count\n1,INVITE\n", 2),
        ("time_ms,method\n1,INVITE,5\n", 2),
        ("time_ms,method,count\n1,INVITE,1\n\n-1,INVITE,1\n", 4),
        ("time_ms,method,count\n1e3,INVITE,1\n", 2),
        ("time_ms,method,count\n1.1234567,INVITE,1\n", 2),
        ("time_ms,method,count\n1234567890123456,INVITE,1\n", 2),
        ("time_ms,method,count\n١,INVITE,1\n", 2),
        ("time_ms,method,count\n1,,1\n", 2),
        ("time_ms,method,count\n1,INVITÉ,1\n", 2),
        ("time_ms,method,count\n1,INVITE,\n", 2),
        ("time_ms,method,count\n1,INVITE,1.5\n", 2),
        ("time_ms,method,count\n1,INVITE,1000000000\n", 2),
        ("time_ms,time_ms,method\n", 1),
        ("time_ms,count\n", 1),
        ("method,count\n", 1),
        ("time_ms,method,count,more\n", 1),
        ('1,"' + "x" * 200_000 + '"\n', 1),
    ],
)
def test_a_row_that_cannot_be_used_is_named(text: str, line: int) -> None:
    with pytest.raises(RowError, match=rf"^line {line}: .+ = .+: allowed is ") as caught:
        read(text)
    assert caught.value.line == line
    assert len(str(caught.value)) < 500


@given(st.text(max_size=60))
def test_any_text_is_events_or_a_row_error(text: str) -> None:
    failed = False
    try:
        found = read("time_ms,method,count\n" + text)
    except RowError:
        failed = True
    assert failed or all(time_ns >= 0 and n >= 0 for time_ns, _, n in found)


@given(st.integers(0, 10**15 - 1), st.integers(0, 999_999))
def test_times_are_exact_and_written_as_they_were(whole: int, decimals: int) -> None:
    time_ns = whole * 10**6 + decimals
    assert parse_ms(ms_text(time_ns)) == time_ns
    assert parse_ms(f"{whole}.{decimals:06d}") == time_ns


def judged(events: list[tuple[float, str, int]], policy: Policy | None = None) -> tuple[Replay, list[Judged]]:
    replay = Replay(PARAMETERS, policy)
    rows = [Event(int(time * 10**6), method, n, str(time)) for time, method, n in events]
    return replay, list(replay.run(rows))


def test_a_time_that_goes_back_counts_as_the_last() -> None:
    """SPEC M4: the third row falls into window 1 (200 ms), not window 0; the row still answers with its own time."""
    replay, rows = judged([(50, "INVITE", 5), (150, "INVITE", 5), (20, "INVITE", 5)])
    assert verdict_row(rows[2]) == ("20", "INVITE", 5, 0, 0)
    assert [tick_row(cycle) for cycle in replay.advance(200 * 10**6)] == [("200", 10, 100, "normal")]


def test_a_request_at_the_end_of_a_window_is_the_next_ones() -> None:
    """SPEC M1, to the nanosecond."""
    replay, rows = judged([(99.999999, "INVITE", 3), (100, "INVITE", 4)])
    assert [cycle.requests for cycle in rows[1].cycles] == [3]
    assert [cycle.requests for cycle in replay.advance(200 * 10**6)] == [4]


def test_the_silence_after_an_overload_loses_no_cycle_that_changes_something() -> None:
    """DESIGN §5: 1,000 cycles are kept; the calm of LRC = 100 and 1,000 silent windows after it are more than that."""
    replay = Replay(PARAMETERS.replaced(LRC=100))
    list(replay.run([Event(0, "INVITE", 50, "0")]))
    cycles = replay.advance(1050 * 100 * 10**6)
    assert tick_row(cycles[0]) == ("100", 50, 500, "around_critical_limit")
    normal = next(cycle for cycle in cycles if cycle.state.value == "normal")
    assert tick_row(normal)[0] == str(100 + 100 * 100)


def test_a_gap_of_a_century_is_no_work() -> None:
    """DESIGN §5: of a long silence the cycles that change nothing are left out."""
    replay, rows = judged([(0, "INVITE", 50), (10**14, "INVITE", 1)])
    assert len(rows[1].cycles) < 2500
    assert rows[1].cycles[0].requests == 50
    assert rows[1].cycles[-1].time_ns == 10**20
    assert replay.controller.state.value == "normal"


@given(
    st.lists(
        st.tuples(st.integers(0, 3000), st.sampled_from(["INVITE", "BYE", "ACK"]), st.integers(0, 60)), max_size=30
    ),
    st.sampled_from([Policy(), Policy(shed="excess"), Policy(enforce=False)]),
)
def test_it_is_the_law_one_request_at_a_time(events: list[tuple[int, str, int]], policy: Policy) -> None:
    """DESIGN §1: one law; the counts of a row are those of as many single requests."""
    _, rows = judged([(float(time), method, n) for time, method, n in events], policy)
    single = OverloadController(PARAMETERS, policy, origin_ns=0)
    for row in rows:
        single.advance_to(row.event.time_ns)
        verdicts = [single.admit(row.event.method, now_ns=row.event.time_ns) for _ in range(row.event.requests)]
        assert [row.allow, row.reject, row.drop] == [verdicts.count(verdict) for verdict in Verdict]


def test_a_huge_file_is_streamed() -> None:
    """Memory stays the same whatever the length: 20,000 rows peak below what 2,000 of them would take in a list."""

    def lines() -> Iterator[str]:
        yield "time_ms,method,count\n"
        for time in range(20_000):
            yield f"{time},INVITE,1\n"

    tracemalloc.start()
    try:
        total = sum(row.allow + row.reject + row.drop for row in Replay(PARAMETERS).run(read_events(lines())))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert total == 20_000
    assert peak < 250_000
