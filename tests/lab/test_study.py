"""An input under sets of parameters: the record of each is what the law alone gives (DESIGN §1; SPEC §3–§5, X2)."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sipguard import OverloadController, Parameters, Policy
from sipguard.core.levels import State
from sipguard.core.verdicts import Change
from sipguard.lab.capture.records import Request
from sipguard.lab.condition import Condition
from sipguard.lab.incidents import MAX_KEPT, Incidents
from sipguard.lab.jsonl import read_jsonl
from sipguard.lab.outcome import METRICS, document, metrics_of, varied
from sipguard.lab.replay import Event, RowError
from sipguard.lab.shares import MAX_OTHER_METHODS, OTHER_METHODS, MethodShares, Share, SourceShares
from sipguard.lab.study import MAX_SETS, Study
from sipguard.lab.timeline import Timeline
from sipguard.wire.scan import KNOWN_METHODS

MS = 1_000_000
PARAMETERS = Parameters(LC=100, LCPS=60, LRC=3, PC=4, TR=100)
ORIGIN_NS = 1_700_000_000 * 10**9
SOURCES = [bytes((192, 0, 2, last)) for last in range(5)]

REQUESTS = st.lists(
    st.tuples(
        st.integers(0, 4000),
        st.sampled_from(["INVITE", "REGISTER", "BYE", "ACK", "x-own"]),
        st.sampled_from(SOURCES),
        st.integers(1, 40),
    ),
    max_size=40,
)


def requests(rows: list[tuple[int, str, bytes, int]]) -> Iterator[Request]:
    for at_ms, method, source, n in rows:
        for _ in range(n):
            yield Request(ORIGIN_NS + at_ms * MS, method, source, "udp")


@given(REQUESTS, st.sampled_from([Policy(), Policy(shed="excess"), Policy(enforce=False)]))
def test_the_record_is_what_the_law_says(rows: list[tuple[int, str, bytes, int]], policy: Policy) -> None:
    """Counted here once more from a bare controller: by verdict, method, source, state; incidents and timeline add up."""
    study = Study([(PARAMETERS, policy), (PARAMETERS.replaced(LC=50), policy)], ORIGIN_NS)
    study.run_requests(requests(rows))
    study.close(study.last_ns)
    course = study.main
    law = OverloadController(PARAMETERS, Policy(policy.shed), origin_ns=0)
    by_method: Counter[tuple[str, str]] = Counter()
    by_source: Counter[tuple[bytes, str]] = Counter()
    in_normal = 0
    cycles = []
    for at_ms, method, source, n in rows:
        for _ in range(n):
            cycles += law.advance(now_ns=at_ms * MS)
            verdict = law.admit(method, now_ns=at_ms * MS).value
            by_method[method, verdict] += 1
            by_source[source, verdict] += 1
            in_normal += verdict == "reject" and law.state is State.NORMAL
    cycles += law.advance(now_ns=study.last_ns)
    assert course.verdicts == (law.allowed, law.rejected, law.dropped)
    for share in course.methods.top():
        for place, verdict in enumerate(("allow", "reject", "drop"), 1):
            assert share[place] == by_method[share.name, verdict]
    assert course.sources is not None
    assert sum(share.requests for share in course.sources.top()) == sum(by_source.values())
    assert course.lcps_refused == in_normal
    assert course.peak_rps == max((cycle.rps for cycle in cycles), default=0)
    incidents = course.incidents.all()
    assert sum(each.refused for each in incidents) == law.rejected - in_normal
    assert sum(each.dropped for each in incidents) == law.dropped
    assert all(each.end_ns is not None for each in incidents[:-1])
    assert sum(course.state_ns.values()) == (cycles[-1].time_ns if cycles else 0)
    buckets = list(course.timeline.buckets())
    assert tuple(sum(column) for column in zip(*(bucket[2:5] for bucket in buckets), strict=True)) in (
        course.verdicts,
        (),
    )
    by_end = {bucket.end_ns: bucket for bucket in buckets}
    for cycle in cycles:
        bucket = by_end[cycle.time_ns]
        assert (bucket.allow + bucket.reject + bucket.drop, bucket.peak_rps) == (cycle.requests, cycle.rps)


@given(REQUESTS)
def test_side_by_side_is_each_alone(rows: list[tuple[int, str, bytes, int]]) -> None:
    sets = [(PARAMETERS.replaced(LC=lc, TR=tr), Policy(shed="excess")) for lc in (50, 100, 300) for tr in (100, 250)]
    together = Study(sets, ORIGIN_NS)
    together.run_requests(requests(rows))
    together.close(together.last_ns)
    for course, each in zip(together.courses, sets, strict=True):
        alone = Study([each], ORIGIN_NS)
        alone.run_requests(requests(rows))
        alone.close(alone.last_ns)
        assert metrics_of(course) == metrics_of(alone.main)
        assert course.incidents.all() == alone.main.incidents.all()
    assert varied(together.courses) == ["LC", "TR"]


@given(REQUESTS)
def test_packets_one_by_one_are_rows_with_a_count(rows: list[tuple[int, str, bytes, int]]) -> None:
    one, many = Study([(PARAMETERS, Policy())], ORIGIN_NS), Study([(PARAMETERS, Policy())])
    one.run_requests(requests(rows))
    many.run_events(Event(at_ms * MS, method, n, "", source.hex()) for at_ms, method, source, n in rows)
    assert one.main.verdicts == many.main.verdicts
    assert one.main.methods.top() == many.main.methods.top()


def test_times_before_the_origin_and_times_that_go_back() -> None:
    """SPEC M4, and said in the result; what is before the origin is left out."""
    study = Study([(PARAMETERS, Policy())], ORIGIN_NS)
    study.run_requests(Request(ORIGIN_NS + at_ms * MS, "BYE", SOURCES[0], "udp") for at_ms in (-5, 50, 150, 20, 160))
    study.close(200 * MS)
    assert (study.early, study.back, study.back_ns) == (1, 1, 130 * MS)
    assert [bucket[2] for bucket in study.main.timeline.buckets()] == [1, 3]
    found = document(study, {"kind": "capture"})
    assert (found["before_origin"], found["times_back"]) == (1, {"requests": 1, "most_ms": 130})


def test_sets_are_bounded() -> None:
    with pytest.raises(ValueError, match=f"allowed is 1 … {MAX_SETS}"):
        Study([(PARAMETERS, Policy())] * (MAX_SETS + 1))


# -- the parts ---------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(1, 3000), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=60))
def test_a_timeline_that_outgrows_its_buckets_keeps_its_sums(cycles: list[tuple[int, int, int]]) -> None:
    """Widths double; counts stay, the peak and the furthest state of what was put together stay."""
    small, large = Timeline(100, max_buckets=8), Timeline(100, max_buckets=10_000)
    for end, allow, drop in sorted(cycles):
        state = State.CRITICAL if drop > 7 else State.NORMAL
        for timeline in (small, large):
            timeline.add(end * 100, allow, 0, drop, allow + drop, state)
    found = list(small.buckets())
    assert len(found) <= 8
    assert small.width_ns == 100 * 2 ** (small.width_ns // 100).bit_length() // 2
    for bucket in found:
        within = [each for each in large.buckets() if bucket.start_ns <= each.start_ns < bucket.end_ns]
        assert bucket.allow == sum(each.allow for each in within)
        assert bucket.drop == sum(each.drop for each in within)
        assert bucket.peak_rps == max((each.peak_rps for each in within), default=0)
        assert (bucket.state is State.CRITICAL) == any(each.state is State.CRITICAL for each in within)


def test_a_century_is_no_more_buckets() -> None:
    timeline = Timeline(100 * MS)
    timeline.add(100 * MS, 1, 0, 0, 10, State.NORMAL)
    timeline.add(10**18 * 3, 1, 0, 0, 10, State.NORMAL)
    assert sum(bucket.allow for bucket in timeline.buckets()) == 2


def test_incidents_are_kept_up_to_a_number_and_counted_beyond() -> None:
    incidents = Incidents()
    for number in range(MAX_KEPT + 5):
        for before, after, at in ((State.NORMAL, State.AROUND, 0), (State.AROUND, State.NORMAL, 5)):
            incidents.change(Change(number * 10 + at, before, after, 200, 100, 0, 0, "level"))
            incidents.shed(1, 0)
    assert (incidents.total, len(incidents.all())) == (MAX_KEPT + 5, MAX_KEPT)
    assert {each.refused for each in incidents.all()} == {1}


def test_invented_methods_cannot_grow_the_table_nor_hide_the_known() -> None:
    shares = MethodShares()
    for number in range(10_000):
        shares.row(f"X{number}")[0] += 1
    for method in KNOWN_METHODS:
        shares.row(method)[1] += 1
    found = {share.name: share for share in shares.top()}
    assert len(found) <= MAX_OTHER_METHODS + 2 * len(KNOWN_METHODS) + 1
    assert found[OTHER_METHODS].allow > 9000
    assert set(KNOWN_METHODS) <= set(found)


def test_sources_beyond_the_cap_go_together_the_greatest_stay() -> None:
    shares = SourceShares(max_sources=100)
    assert shares.exact
    for number in range(5000):
        shares.row(number.to_bytes(4))[0] += 1
        shares.row(b"\x0a\0\0\x01")[2] += 1
    assert len(shares) <= 100
    assert shares.top(1) == [Share("10.0.0.1", 0, 0, 5000)]
    assert not shares.exact
    assert sum(share.requests for share in shares.top(100)) + sum(shares.others) == 10_000


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("refused>0", True),
        ("refused > 5", False),
        (" refused>=5 ", True),
        ("refused<5", False),
        ("refused<=5.0", True),
        ("refused==5", True),
        ("refused!=5", False),
        ("peak_rps>=250.5", False),
    ],
)
def test_conditions(text: str, holds: bool) -> None:
    assert Condition(text, METRICS).holds({"refused": 5, "peak_rps": 250}) is holds


@pytest.mark.parametrize(
    "text",
    ["", "refused", "refused>", ">0", "refused>-1", "refused=0", "refused>0 or 1", "Refused>0", "x>1", "refused>1e3"],
)
def test_a_wrong_condition_says_what_is_allowed(text: str) -> None:
    with pytest.raises(ValueError, match=r"METRIC OP NUMBER.*critical_s.*>= <= == != > <"):
        Condition(text, METRICS)


@given(st.text(max_size=40))
def test_any_text_is_a_condition_or_a_value_error(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert Condition("refused" + text, METRICS).holds({"refused": 5}) in (True, False)


def test_json_lines() -> None:
    lines = [
        '{"time_ms": 5, "method": "INVITE"}\n',
        "\n",
        '{"method": "BYE", "time_ms": 7.123456, "count": 3, "source": "192.0.2.1"}\n',
        '{"time_ms": "7.5", "method": "x-own"}',
    ]
    assert list(read_jsonl(lines)) == [
        Event(5 * MS, "INVITE", 1, "5"),
        Event(7_123_456, "BYE", 3, "7.123456", "192.0.2.1"),
        Event(7_500_000, "x-own", 1, "7.5"),
    ]


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("[]", "line"),
        ("{", "line"),
        ('{"time_ms": 5}', "line"),
        ('{"time_ms": 5, "method": "INVITE", "more": 1}', "line"),
        ('{"time_ms": -5, "method": "INVITE"}', "time_ms"),
        ('{"time_ms": 1e3, "method": "INVITE"}', "time_ms"),
        ('{"time_ms": null, "method": "INVITE"}', "time_ms"),
        ('{"time_ms": NaN, "method": "INVITE"}', "time_ms"),
        ('{"time_ms": 5, "method": 7}', "method"),
        ('{"time_ms": 5, "method": "IN VITE"}', "method"),
        ('{"time_ms": 5, "method": "INVITE", "count": -1}', "count"),
        ('{"time_ms": 5, "method": "INVITE", "count": "1"}', "count"),
        ('{"time_ms": 5, "method": "INVITE", "count": 1.5}', "count"),
        ('{"time_ms": 5, "method": "INVITE", "count": 1000000000}', "count"),
        ('{"time_ms": 5, "method": "INVITE", "source": 5}', "source"),
        ("[" * 50_000, "line"),
        ('"' + "x" * 100_000, "line"),
    ],
)
def test_a_line_that_cannot_be_used_is_named(line: str, what: str) -> None:
    with pytest.raises(RowError, match=rf"^line 2: {what} = ") as caught:
        list(read_jsonl(['{"time_ms": 5, "method": "INVITE"}\n', line]))
    assert len(str(caught.value)) < 600


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists, max_leaves=5))
def test_any_json_is_an_event_or_a_row_error(value: object) -> None:
    for key in ("time_ms", "method", "count", "source"):
        row = {"time_ms": 1, "method": "INVITE", key: value}
        try:
            list(read_jsonl([json.dumps(row)]))
        except RowError:
            continue
