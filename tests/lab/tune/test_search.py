"""The search: the same advice for the same seed on any bench; the front; what a choice keeps to."""

from __future__ import annotations

from itertools import product

import pytest

from sipguard import Parameters
from sipguard.core.parameters import EXACT_TR_MS
from sipguard.lab.sim.scenario_file import parse
from sipguard.lab.tune.capture_load import CaptureLoad
from sipguard.lab.tune.choice import GOODPUT_SLACK, front, thinned
from sipguard.lab.tune.figures import Candidate, Figures, Objective, Tried
from sipguard.lab.tune.local import LocalBench
from sipguard.lab.tune.report import Advice, document
from sipguard.lab.tune.scenario_load import ScenarioLoad
from sipguard.lab.tune.space import NAMES, limits
from sipguard.lab.tune.tune import tune
from tests.lab.tune.loads import events, recorded, steps

STORM = {
    "title": "Small",
    "about": "A step, for tests.",
    "duration_s": 30,
    "storm": {"begins_s": 5, "ends_s": 12},
    "servers": [{"name": "a", "capacity": 60}],
    "callers": [{"name": "c", "method": "MESSAGE", "rate": [[5, 20], [5, 200], [12, 200], [12, 20]]}],
}


def capture() -> CaptureLoad:
    """100 requests/s before a server of 200, for 10 s 800; then 100 again."""
    return CaptureLoad(recorded(events(steps((20, 100), (10, 800), (30, 100)))), 200, "step")


def advise(load: CaptureLoad | ScenarioLoad, processes: int = 1, **how: object) -> Advice:
    with LocalBench(load, processes) as bench:
        return tune(load, bench, **{"trials": 36, "seed": 3, **how})  # type: ignore[arg-type]


def test_processes_change_nothing() -> None:
    one, two = advise(capture()), advise(capture(), processes=2)
    assert document(one) == document(two)


def test_another_seed_is_another_search() -> None:
    assert document(advise(capture()))["front"] != document(advise(capture(), seed=4))["front"]


def test_a_scenario_gives_the_same_again() -> None:
    load = ScenarioLoad(parse(STORM, "small"), seed=2)
    assert document(advise(load, trials=8)) == document(advise(load, trials=8, processes=2))


def test_the_advice_on_a_step() -> None:
    """A storm of four times the capacity: `excess` near the capacity serves all that can be; `all` would serve nobody."""
    load = capture()
    assert load.storms == ((20.0, 30.0),)
    advice = advise(load)
    chosen = advice.choice.recommended
    assert chosen.candidate.shed == "excess"
    assert 100 < chosen.candidate.parameters.LC <= 220
    assert chosen.figures.goodput > 0.95
    assert (chosen.figures.alarms, chosen.figures.false_alarms) == (1, 0)
    shed = next(reason for reason in advice.reasons if reason.name == "shed")
    assert "With shed all: goodput" in str(shed)
    under_all = load.try_out(chosen.candidate.replaced("shed", "all"))
    # 60 s of at most 200 requests/s, 10 of them stormy: what `all` cannot serve is the storm's.
    assert chosen.figures.served - under_all.served > 0.8 * 10 * 200


@pytest.mark.parametrize("objective", list(Objective))
def test_the_objective_is_kept_to(objective: Objective) -> None:
    choice = advise(capture(), objective=objective).choice
    chosen = choice.recommended.figures
    assert chosen.goodput >= choice.best - GOODPUT_SLACK[objective] - 1e-9
    rivals = [each.figures for each in choice.front if each.figures.goodput >= choice.best - GOODPUT_SLACK[objective]]
    if objective is Objective.REFUSED:
        assert chosen.shed <= min(each.shed for each in rivals) + 0.005
    if objective is Objective.RECOVERY:
        assert chosen.recovery_s <= min(each.recovery_s for each in rivals) + 0.5


def test_pinned_values_are_kept() -> None:
    pinned: dict[str, int | str] = {"LC": 150, "TR": 600, "shed": "all", "LCDM": "drop_only"}
    advice = advise(capture(), pinned=pinned)
    for each in (advice.choice.recommended, *advice.choice.front):
        assert pinned.items() <= each.candidate.as_dict().items()


def test_everything_tried_is_in_range() -> None:
    """SPEC §1 and P4: values within the ranges (Parameters would refuse others), TR one that divides 1000."""
    advice = advise(capture(), trials=60)
    for each in advice.choice.front:
        assert each.candidate.parameters.TR in EXACT_TR_MS
    for low, high in limits(1).values():
        assert 1 <= low <= high <= 10_000
    for low, high in limits(10_000).values():
        assert 1 <= low <= high <= 10_000


def test_a_load_without_a_storm_is_left_alone_and_told() -> None:
    advice = advise(CaptureLoad(recorded(events(steps((30, 100)))), 500, "calm"), trials=24)
    chosen = advice.choice.recommended
    assert (chosen.figures.refused, chosen.figures.dropped, chosen.figures.alarms) == (0, 0, 0)
    # Nothing in the load speaks for other values, so they are the usual ones.
    assert chosen.candidate == Candidate(
        Parameters(LC=500, LCDM="denial_only", LCPS=500, LRC=15, PC=600, TR=200), "excess"
    )
    assert any("never passes the capacity" in line for line in advice.load.about())


def figures(goodput: float, shed: int, recovery_s: float) -> Figures:
    return Figures(
        offered=1000,
        passed=1000 - shed,
        refused=shed,
        dropped=0,
        by_lcps=None,
        wanted=0,
        served=0,
        wasted=0,
        needless=0,
        normal_s=0.0,
        around_s=0.0,
        critical_s=0.0,
        alarms=0,
        false_alarms=0,
        detect_s=None,
        recover_s=None,
        goodput=goodput,
        recovery_s=recovery_s,
    )


def tried(goodput: float, shed: int, recovery_s: float) -> Tried:
    return Tried(Candidate(Parameters(), "all"), figures(goodput, shed, recovery_s))


def test_the_front_against_every_pair() -> None:
    grid = [
        tried(g / 10, s, r) for g, s, r in product((5, 7, 9), (100, 200, 300), (1.0, 5.0, 9.0)) if (g + s / 100 + r) % 3
    ]
    kept = front(grid)
    assert kept

    def beats(a: Tried, b: Tried) -> bool:
        one, other = a.figures.losses(), b.figures.losses()
        return one != other and all(x <= y for x, y in zip(one, other, strict=True))

    assert {str(each) for each in kept} == {str(each) for each in grid if not any(beats(rival, each) for rival in grid)}
    assert [each.figures.goodput for each in kept] == sorted((e.figures.goodput for e in kept), reverse=True)


def test_a_thinned_front_keeps_the_best_of_each() -> None:
    whole = [tried(1 - i / 100, 500 - 5 * i, abs(37 - i)) for i in range(90)]
    kept = thinned(whole, 7)
    assert len(kept) == 7
    assert {str(whole[i]) for i in (0, 37, 89)} <= {str(each) for each in kept}
    assert thinned(whole[:5], 7) == whole[:5]


def test_names_are_those_of_the_law() -> None:
    assert set(NAMES) == {*Parameters().as_dict(), "shed"}
