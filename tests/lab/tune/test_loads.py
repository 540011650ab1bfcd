"""The figures of a capture before a server of a given capacity, against sums done by hand."""

from __future__ import annotations

import pickle

import pytest

from sipguard import Parameters, Policy
from sipguard.core.policy import Shed
from sipguard.lab.sim.compare import compare
from sipguard.lab.sim.scenario_file import load as load_scenario
from sipguard.lab.tune.capture_load import CaptureLoad
from sipguard.lab.tune.figures import Candidate, Figures
from sipguard.lab.tune.recording import MAX_DURATION_NS, Recorder, RecordingError
from sipguard.lab.tune.scenario_load import ScenarioLoad
from tests.lab.tune.loads import events, recorded, steps

LOOSE = {"LCPS": 10_000}


def figures_of(shed: Shed, until_s: int | None = None, *rates: tuple[int, int], **law: int | str) -> Figures:
    recording = recorded(events(steps(*rates)), until_ns=None if until_s is None else until_s * 10**9)
    return CaptureLoad(recording, 100, "x").try_out(Candidate(Parameters.of({**LOOSE, **law}), shed))


def test_nothing_shed_is_served_up_to_the_capacity() -> None:
    """5 s of 300/s before 100/s and a guard that never acts: 500 served, 1,000 beyond."""
    found = figures_of("all", 15, (5, 50), (5, 300), (5, 50), LC=10_000)
    assert (found.offered, found.passed, found.served, found.wasted) == (2000, 2000, 1000, 1000)
    assert (found.wanted, found.goodput) == (1000, 0.0)
    assert (found.alarms, found.detect_s, found.recover_s) == (0, None, 0.0)


def test_excess_serves_what_the_server_can() -> None:
    """SPEC X1: one window of 200 ms passes before the level is seen (60 requests); then 20 in each of the other 24."""
    found = figures_of("excess", 15, (5, 50), (5, 300), (5, 50), LC=100, LRC=5, PC=100)
    assert found.refused == 24 * 40
    assert (found.passed, found.wasted) == (2000 - 960, 40)
    assert found.goodput == (found.served - 40) / 1000
    assert (found.alarms, found.false_alarms, found.needless) == (1, 0, 0)
    assert (found.detect_s, found.recover_s) == (0.2, 1.0)
    assert (found.around_s, found.critical_s) == (5.8, 0.0)


def test_all_serves_nobody_in_a_steady_overload() -> None:
    """The storm lasts to the end: nothing but its first window passes."""
    found = figures_of("all", None, (5, 50), (10, 300), LC=100, LCDM="drop_only")
    assert found.passed == 250 + 60
    assert found.dropped == 10 * 300 - 60
    assert found.recover_s is None
    assert found.recovery_s == 0.0


def test_what_is_shed_without_a_storm_is_told() -> None:
    """LC under the everyday load: an alarm that is false, and everything after it needless."""
    found = figures_of("all", 10, (10, 50), LC=40)
    assert (found.alarms, found.false_alarms) == (1, 1)
    assert found.needless == found.refused + found.dropped == 500 - 10
    assert found.detect_s is None


def test_recovery_that_does_not_come() -> None:
    """The everyday load is over LC: after the storm the state never becomes normal, which counts to the end."""
    found = figures_of("excess", 20, (5, 30), (5, 300), (10, 60), LC=50, LRC=5)
    assert (found.recover_s, found.recovery_s) == (None, 10.0)


def test_lcps_detects_by_its_first_refusal() -> None:
    """SPEC V3: 50 in the last second, so request 151 of the storm's first second: at 150/300 s."""
    found = figures_of("all", 15, (5, 50), (5, 300), (5, 50), LC=10_000, LCPS=100)
    assert found.by_lcps == found.refused > 0
    assert found.detect_s == 0.5
    assert found.alarms == 0


def test_storms_near_each_other_are_one() -> None:
    rates = ((5, 50), (2, 300), (3, 50), (2, 300), (9, 50), (1, 300), (5, 50), (2, 101), (4, 50))
    load = CaptureLoad(recorded(events(steps(*rates))), 100, "x")
    # 2 requests too many in two seconds are no storm.
    assert load.storms == ((5.0, 12.0), (21.0, 22.0))


def test_a_load_is_the_same_after_the_journey_to_another_process() -> None:
    load = CaptureLoad(recorded(events(steps((5, 50), (5, 300)))), 100, "x")
    candidate = Candidate(Parameters(LC=90, LRC=2), "excess")
    assert pickle.loads(pickle.dumps(load)).try_out(candidate) == load.try_out(candidate)


def test_what_cannot_be_shed_is_told() -> None:
    rows = [*steps((4, 60)), *steps((4, 20), method="BYE")]
    load = CaptureLoad(recorded(sorted(events(rows))), 100, "x")
    assert load.unsheddable == 0.25
    assert any(line.startswith("25.0 % of the requests cannot be shed") for line in load.about())


def test_what_cannot_be_recorded() -> None:
    empty = Recorder(Policy())
    empty.close(None)
    with pytest.raises(RecordingError, match="at least one"):
        empty.recording()
    with pytest.raises(RecordingError, match="at most 7"):
        recorded(events([(0, "INVITE", 1), (MAX_DURATION_NS / 1e6 + 1, "INVITE", 1)]))


def test_a_flood_of_invented_methods_takes_no_memory_of_its_own() -> None:
    recorder = Recorder(Policy())
    recorder.run_events(events((i, f"M{i}", 1) for i in range(5000)))
    recorder.run_events(events([(6000, "INVITE", 1)]))
    assert recorder._bits == {"INVITE": 3}


def test_a_scenario_s_figures_are_those_of_simulate() -> None:
    """Under the scenario's own law: the same numbers as `sipguard simulate` prints."""
    scenario = load_scenario("flash-one-second")
    assert scenario.guard is not None
    own = Candidate(scenario.guard.parameters, scenario.guard.policy.shed)
    found = ScenarioLoad(scenario, seed=5).try_out(own)
    variant = compare(scenario, [own.shed], 5)[0]
    summary = variant.summary
    assert (found.offered, found.refused, found.dropped) == (summary.offered, summary.refused, summary.dropped)
    assert (found.served, found.wanted) == (summary.served, summary.wanted)
    assert (found.detect_s, found.recover_s) == (summary.detect_s, summary.recover_s)
    assert found.passed + found.refused + found.dropped == found.offered
    total_s = found.normal_s + found.around_s + found.critical_s
    assert total_s == pytest.approx(scenario.duration_s * len(scenario.servers))
    assert found.alarms == sum(c.before.value == "normal" for changes in variant.run.changes for c in changes)
