"""The figures of a run, on storms whose figures are known."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sipguard.lab.sim.compare import compare, policies, under
from sipguard.lab.sim.document import document
from sipguard.lab.sim.problem import ScenarioError
from sipguard.lab.sim.report import ROWS, cells, html
from sipguard.lab.sim.scenario import Scenario
from sipguard.lab.sim.summary import summarise
from tests.lab.sim.storms import guard, rate, run, server, steady, storm


def step(**more: Any) -> Scenario:
    """From 20/s to 200/s at 10 s for 10 s; even, fixed: nothing is random. LC 100, window 200 ms, calm 1 s."""
    clients = steady(0, rate=rate((10, 20), (10, 200), (20, 200), (20, 20)), spacing="even")
    return storm(
        clients,
        **{
            "duration_s": 40.0,
            "servers": (server(1000, service="fixed"),),
            "guard": guard(LC=100, LCPS=10_000, LCDM="denial_only", TR=200, LRC=5),
            "storm_begins_s": 10.0,
            "storm_ends_s": 20.0,
            **more,
        },
    )


def test_the_figures_of_a_step() -> None:
    """By hand. The first window with the step in it is [10.0, 10.2) s: 25 ms of it at 20/s (what is sent at 10 s is there
    25 ms later), 35 or 36 requests, 180/s > 100: 503 from 10.2 s on (SPEC L1). The last window above is [20, 20.2):
    5 + 4 requests, 45/s, is below; 1 s of calm ends at 21 s (L5), or at 21.2 s when the 25 ms make it 5 cycles more."""
    summary = compare(step(), ["all"], 1)[0].summary
    assert summary.wanted == 20 * 30 + 200 * 10
    assert summary.detect_s == pytest.approx(0.2)
    assert summary.recover_s in (1.0, 2.0)
    assert summary.oscillations == 0
    assert summary.dropped == summary.timed_out == summary.retransmissions == summary.wasted == summary.overflow == 0
    # 9.8 s of the storm and 1 s of calm are refused, all of them for good.
    assert summary.refused == summary.given_up == pytest.approx(9.8 * 200 + 1 * 20, abs=10)
    assert summary.served + summary.refused + summary.pending == summary.wanted
    assert summary.pending <= 1  # what is sent in the last 50 ms
    assert summary.goodput == pytest.approx(0.2 * 200 / 10, abs=1)
    assert summary.setup_p50_s == pytest.approx(0.05 + 0.001, abs=1e-6)
    assert summary.offered_peak == 200
    assert summary.capacity_used == pytest.approx(summary.served / 40 / 1000, rel=0.001)


def test_without_a_guard_nothing_is_detected() -> None:
    summary = compare(step(), ["none"], 1)[0].summary
    assert summary.detect_s is None
    assert (summary.served + summary.pending, summary.recover_s) == (summary.wanted, 0.0)


def test_a_level_that_swings_is_counted() -> None:
    """Over for 2 s, calm for 3 s (relax 1 s), four times: left normal four times, three of them again."""
    waves = rate((0, 20), (1, 20), (1, 200), (3, 200), (3, 20), (5, 20), repeat_s=5)
    scenario = step()
    ran = run(steady(0, rate=waves, spacing="even"), duration_s=20.0, servers=scenario.servers, guard=scenario.guard)
    assert summarise(ran).oscillations == 3


def test_lcps_is_detected_without_a_change_of_state() -> None:
    """SPEC V3: the first refusal counts, to a tenth of a second."""
    summary = compare(step(guard=guard(LC=10_000, LCPS=50)), ["all"], 1)[0].summary
    # 20 last second + 50: the 71st request of this second, at 200/s after 0.35 s.
    assert summary.detect_s == pytest.approx(0.3, abs=0.11)
    assert summary.oscillations == 0


def test_a_storm_that_is_never_over() -> None:
    assert compare(step(storm_ends_s=None), ["all"], 1)[0].summary.recover_s is None
    assert compare(step(duration_s=21.0), ["all"], 1)[0].summary.recover_s is None


def test_nobody_served() -> None:
    summary = summarise(run(steady(10), duration_s=2.0, servers=(server(0.001, queue=1),)))
    assert (summary.setup_p50_s, summary.setup_p99_s, summary.served) == (None, None, 0)
    assert summary.pending == summary.wanted > 0


def test_policies_are_named_each_once() -> None:
    assert policies("none, excess") == ["none", "excess"]
    for text in ("", "some", "all,all", "all,"):
        with pytest.raises(ScenarioError, match="none, all and excess"):
            policies(text)


def test_policies_leave_the_rest_of_the_guard_alone() -> None:
    scenario = step()
    assert under(scenario, "none").guard is None
    excess = under(scenario, "excess").guard
    assert excess is not None
    assert scenario.guard is not None
    assert (excess.policy.shed, excess.parameters) == ("excess", scenario.guard.parameters)


def test_excess_serves_lc_where_all_serves_nobody() -> None:
    """SPEC X1, issue 3 §2: under a steady overload, the server idle enough: LC per second, against nothing."""
    served = {v.policy: v.summary.goodput for v in compare(step(), ["all", "excess"], 1)}
    assert served["all"] < 5
    assert served["excess"] == pytest.approx(100, rel=0.05)


def test_the_document_is_plain_and_adds_up() -> None:
    variants = compare(step(), ["none", "all"], 3)
    told = json.loads(json.dumps(document(step(), variants, 3)))
    assert (told["seed"], told["parameters"]["LC"], list(told["policies"])) == (3, 100, ["none", "all"])
    found = told["policies"]["all"]
    assert [state for _, state in found["states"]["a"]] == ["normal", "around_critical_limit", "normal"]
    series = found["series"]
    assert {len(row) for row in series.values()} == {40}
    assert sum(series["served"]) == found["summary"]["served"]
    assert sum(series["refused"]) == found["summary"]["refused"]
    assert series["setup_p50_s"][5] == pytest.approx(0.051, abs=1e-6)
    assert series["setup_p50_s"][15] is None


def test_the_page_stands_alone() -> None:
    """One file: no address in it but the picture's own data; names from a file are text, not markup."""
    scenario = step(title="<b>&", about='"quoted" <script>')
    variants = compare(scenario, ["none", "all"], 1)
    page = html(scenario, variants, 1, b"\x89PNG")
    assert "data:image/png;base64,iVBORw==" in page
    assert "<script" not in page
    assert "&lt;b&gt;&amp;" in page
    assert "http" not in page.replace("http-equiv", "")
    assert page.count("<tr>") == len(ROWS) + 1
    assert "<img" not in html(scenario, variants, 1, None)


def test_the_table_has_a_cell_for_each_policy() -> None:
    rows = cells(compare(step(), ["none", "all", "excess"], 1))
    assert {len(row) for row in rows} == {4}
    assert {row[0]: row[2] for row in rows}["time to detect"] == "0.2 s"
    assert {row[0]: row[1] for row in rows}["time to detect"] == "–"


def test_what_is_shed_before_the_storm_is_told() -> None:
    """A guard that sheds already detects nothing at the storm's begin; how much it shed for nothing stands beside it."""
    calm = compare(step(), ["all"], 1)[0].summary
    assert calm.early == 0
    eager = compare(step(guard=guard(LC=10, LCPS=10_000, LCDM="denial_only", TR=200, LRC=5)), ["all"], 1)[0].summary
    assert eager.early == pytest.approx(9.8 * 20, abs=25)
