"""Readings, judgement, tables and views of the demonstration."""

from __future__ import annotations

import io
import itertools
from typing import Any

import pytest
from rich.console import Console

from sipguard.core.levels import State
from sipguard.core.verdicts import Change
from sipguard.demo.performance import Moment
from sipguard.demo.recorder import Recorder
from sipguard.demo.report import clients_table, missing, states_table
from sipguard.demo.tally import Tally
from sipguard.demo.view import LiveView, PlainView
from sipguard.demo.walk import EXPECTED, PARAMETERS, WALK

SECOND = 1_000_000_000
N, A, C = State.NORMAL, State.AROUND, State.CRITICAL


def status(now_ns: int, allow: int, reject: int, drop: int, **other: Any) -> dict[str, Any]:
    return {
        "now_ns": now_ns,
        "origin_ns": 0,
        "state": "normal",
        "rps": 0,
        "verdicts": {"allow": allow, "reject": reject, "drop": drop},
        "kernel_dropped": 0,
        "lcps_refused": 0,
        "patience_run": 0,
        "relax_run": 0,
        **other,
    }


def test_samples_are_differences_on_the_guards_clock() -> None:
    recorder = Recorder()
    first = recorder.add(status(SECOND, 10, 0, 0))
    assert first is not None
    assert (first.start_ns, first.end_ns, first.offered) == (0, SECOND, 10)
    second = recorder.add(status(SECOND + SECOND // 2, 20, 30, 40))
    assert second == (SECOND, SECOND + SECOND // 2, 20, 60, 80)
    assert recorder.add(status(SECOND, 99, 99, 99)) is None
    assert len(recorder.samples) == 2


def test_lcps_refusals_between_two_moments() -> None:
    recorder = Recorder()
    for n, refused in enumerate([0, 0, 5, 9, 20]):
        recorder.add(status((n + 1) * SECOND, n, 0, 0, lcps_refused=refused))
    assert recorder.lcps_refused_between(2 * SECOND, 4 * SECOND) == 9
    assert recorder.lcps_refused_between(0, SECOND) == 0


def changes(*states: State) -> list[Change]:
    path = (N, *states)
    return [
        Change(n * SECOND, before, after, 500, 400, 0, 0, "level")
        for n, (before, after) in enumerate(itertools.pairwise(path), 1)
    ]


@pytest.mark.parametrize("states", [(A, C, N), (A, N, A, C, N), (A, C, N, A, N)])
def test_the_whole_way_misses_nothing(states: tuple[State, ...]) -> None:
    assert missing(changes(*states), 1) == []


@pytest.mark.parametrize("states", [(), (A,), (A, N), (A, C), (C, N), (C, A, N)])
def test_a_state_not_visited_is_missed(states: tuple[State, ...]) -> None:
    problems = missing(changes(*states), 1)
    assert len(problems) == 1
    assert " → ".join(state.value for state in EXPECTED) in problems[0]


def test_a_jump_without_503_is_missed() -> None:
    assert ["LCPS" in problem for problem in missing(changes(A, C, N), 0)] == [True]


def shown(*things: object) -> str:
    console = Console(file=io.StringIO(), width=110)
    for thing in things:
        console.print(thing)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_tables_name_each_state_and_each_method() -> None:
    text = shown(
        states_table(changes(A, C, N), 0, 9 * SECOND),
        clients_table(Tally({"INVITE": {"sent": 7, "ok": 3, "refused": 2, "none": 2}})),
    )
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines() if line.startswith("│")]
    assert [row[:3] for row in rows[:4]] == [
        ["normal", "0.0", "1.0"],
        ["around_critical_limit", "1.0", "1.0"],
        ["critical_limit", "2.0", "1.0"],
        ["normal", "3.0", "6.0"],
    ]
    assert rows[4] == ["INVITE", "7", "3", "2", "0", "2"]


def test_views_show_state_rate_and_limit() -> None:
    recorder = Recorder()
    sample = recorder.add(
        status(
            SECOND, 0, 880, 0, state=A.value, rps=900, patience_run=7, verdicts={"allow": 1, "reject": 880, "drop": 0}
        )
    )
    assert sample is not None
    assert recorder.last is not None
    moment = Moment(9.4, WALK[2], recorder.last, sample, Tally())
    plain = Console(file=io.StringIO(), width=110)
    with PlainView(plain) as view:
        view.step(WALK[2], 9.0)
        view.moment(moment)
    live = Console(file=io.StringIO(), width=100, force_terminal=True, color_system=None)
    with LiveView(live) as panel:
        panel.moment(moment)
    for console in (plain, live):
        assert isinstance(console.file, io.StringIO)
        text = console.file.getvalue()
        assert WALK[2].title in text
        for wanted in ("around_critical_limit", "900", f"LC {PARAMETERS.LC}", "880/s"):
            assert wanted in text, wanted
    assert isinstance(live.file, io.StringIO)
    assert "patience run 7 of PC 25" in live.file.getvalue()
