"""Verdicts by windows against the law request by request (SPEC §3–§5, X1): equal to the last number."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sipguard import Parameters, Policy
from sipguard.core.levels import State
from sipguard.core.parameters import Lcdm
from sipguard.core.policy import Shed
from sipguard.lab.course import Course
from sipguard.lab.replay import Event
from sipguard.lab.tune.figures import SECOND_NS
from sipguard.lab.tune.windows import Windows
from tests.lab.tune.loads import MS, events, recorded

METHODS = ("INVITE", "BYE", "REGISTER", "ACK", "OPTIONS", "x-own")
#: One that 503 may touch and the drop may not, one the other way round, one neither, one that is never answered.
ODD = {"refuse_methods": ("INVITE", "BYE", "ACK"), "drop_methods": ("INVITE", "OPTIONS", "ACK")}


def course_of(rows: list[Event], parameters: Parameters, policy: Policy, until_ns: int | None) -> Course:
    """Request by request, with the controller that runs live."""
    course = Course(parameters, policy)
    for event in rows:
        for _ in range(event.requests):
            course.offer(event.time_ns, event.method, "")
    if until_ns is not None:
        course.advance(until_ns)
    course.finish()
    return course


def compare(rows: list[Event], parameters: Parameters, policy: Policy, until_ns: int | None) -> None:
    course = course_of(rows, parameters, policy, until_ns)
    judged = Windows(recorded(rows, policy, until_ns)).judge(parameters, policy.shed)
    refused, dropped = int(judged.refused.sum()), int(judged.dropped.sum())
    assert (int(judged.offered.sum()) - refused - dropped, refused, dropped) == course.verdicts
    assert int(judged.by_lcps.sum()) == course.lcps_refused
    assert [tuple(turn) for turn in judged.turns] == [
        (change.time_ns, change.before, change.after) for change in course.changes
    ]
    assert judged.state_ns == course.state_ns
    assert judged.peak_rps == course.peak_rps
    assert (judged.refused >= 0).all()
    assert (judged.refused + judged.dropped <= judged.offered).all()


@st.composite
def loads(draw: st.DrawFn) -> list[Event]:
    """Bursts with silences between them; times may go back (SPEC M4), several requests may come at one instant."""
    at_ms, rows = 0.0, []
    for _ in range(draw(st.integers(1, 25))):
        at_ms = max(0.0, at_ms + draw(st.sampled_from((-3, 0, 0.25, 7, 99.75, 100, 250, 1000, 2100))))
        method, n = draw(st.sampled_from(METHODS)), draw(st.integers(1, 40))
        if draw(st.booleans()):
            rows.append((at_ms, method, n))
        else:
            gap_ms = draw(st.sampled_from((0.5, 5, 33)))
            rows += [(at_ms + i * gap_ms, METHODS[(i + n) % len(METHODS)] if i % 3 else method, 1) for i in range(n)]
            at_ms += n * gap_ms
    return events(rows)


@settings(max_examples=300, deadline=None)
@given(
    loads(),
    st.builds(
        Parameters,
        LC=st.sampled_from((1, 7, 30, 100, 333)),
        LCDM=st.sampled_from(list(Lcdm)),
        LCPS=st.sampled_from((1, 5, 40, 10000)),
        LRC=st.integers(1, 6),
        PC=st.integers(1, 6),
        TR=st.sampled_from((100, 125, 200, 250, 300, 500, 600, 700, 1000)),
    ),
    st.sampled_from(("all", "excess")),
    st.sampled_from(({}, ODD)),
    st.sampled_from((None, 0, 1_000, 60_000)),
)
@example(events([(99, "INVITE", 30), (100, "INVITE", 5)]), Parameters(LC=7, TR=100), "excess", {}, 1_000)
@example(events([(999.999, "INVITE", 3), (1000, "INVITE", 9)]), Parameters(LCPS=5, TR=600), "all", {}, None)
def test_equal_to_the_law_request_by_request(
    rows: list[Event], parameters: Parameters, shed: Shed, sets: dict[str, tuple[str, ...]], until_ms: int | None
) -> None:
    last_ns = max(row.time_ns for row in rows)
    until_ns = None if until_ms is None else last_ns + until_ms * MS
    compare(rows, parameters, Policy(shed, True, **sets), until_ns)


@pytest.mark.parametrize(("mode", "shed"), list(product(Lcdm, ("all", "excess"))))
def test_a_long_load_through_every_state(mode: Lcdm, shed: Shed) -> None:
    """Ten minutes with two storms, a mixture of methods and a fraction to carry (LC 101, five windows a second)."""
    rows = events(
        (at_ms, METHODS[(at_ms * 7 // 13) % 6], 1)
        for second in range(600)
        for at_ms in range(second * 1000, second * 1000 + 1000, 4 if second in range(60, 200) or second > 580 else 40)
    )
    parameters = Parameters(LC=101, LCDM=mode, LCPS=20, LRC=10, PC=30, TR=200)
    compare(rows, parameters, Policy(shed), None)
    judged = Windows(recorded(rows)).judge(parameters, shed)
    assert judged.by_lcps.sum() > 0
    visited = {State.NORMAL, *(turn.after for turn in judged.turns)}
    assert len(visited) == (3 if mode is Lcdm.DENIAL_TO_DROP else 2)


def test_the_first_request_over_lcps_has_its_time() -> None:
    """SPEC V3: 3 in the first second, so the second one may have 3 + 2; the sixth request is refused."""
    rows = events([(100, "INVITE", 3), *((1000 + 10 * i, "INVITE", 1) for i in range(8))])
    judged = Windows(recorded(rows)).judge(Parameters(LCPS=2, LC=10000), "all")
    # In the first second (after one of 0) the third of three is over LCPS 2; in the next one the sixth.
    assert judged.first_over.tolist() == [100 * MS, SECOND_NS + 50 * MS]


def test_one_recording_under_many_laws_gives_each_its_own() -> None:
    """Grids are shared between trials; verdicts are not."""
    rows = events((10 * i, "INVITE", 1 + i % 3) for i in range(500))
    windows = Windows(recorded(rows))
    laws = [Parameters(LC=lc, TR=tr, LRC=2) for lc, tr in product((50, 150, 250), (100, 250, 1000))]
    once = [windows.judge(law, "excess").refused.tolist() for law in laws]
    again = [Windows(recorded(rows)).judge(law, "excess").refused.tolist() for law in reversed(laws)]
    assert once == again[::-1]
    assert len({str(each) for each in once}) > 3
