"""Of all that was tried: the Pareto front, the recommended one, and values made round where that costs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sipguard.core.parameters import Lcdm
from sipguard.lab.tune import space
from sipguard.lab.tune.figures import Candidate, Load, Objective, Tried
from sipguard.lab.tune.search import Log

#: What an objective may cost of the best goodput: even for goodput, what nobody would notice may buy a calmer guard.
GOODPUT_SLACK = {Objective.GOODPUT: 0.01, Objective.REFUSED: 0.05, Objective.RECOVERY: 0.05}
#: Differences below these are none: share of goodput, share shed, s of recovery.
STEPS = (0.002, 0.005, 0.5)
#: As long as nobody waits for it, recovery is the same within so many seconds: a guard that is back in a fifth of a second
#: is one that will flutter under a load less even than this one.
EASY_RECOVERY_S = 5.0


class Choice(NamedTuple):
    """front: every candidate that no other beats in goodput, share shed and recovery at once, best goodput first.
    recommended: the best of it for the objective, its values then made round; it may stand beside the front. best: of
    all that was tried, the best goodput."""

    objective: Objective
    front: list[Tried]
    recommended: Tried
    best: float


def choose(load: Load, log: Log, objective: Objective, pinned: space.Pinned) -> Choice:
    """From what was tried; tries a few more for round values. log: not empty."""
    tried = _allowed(log, pinned)
    best = max(each.figures.goodput for each in tried)
    recommended = _rounded(load, log, _best(front(tried), objective, best), objective, best, pinned)
    return Choice(objective, front(_allowed(log, pinned)), recommended, best)


def front(tried: Sequence[Tried]) -> list[Tried]:
    """Those that none of the others beats, by whole STEPS; of equal ones the one that left normal least often."""
    by_losses: dict[tuple[int, ...], Tried] = {}
    for each in sorted(tried, key=lambda each: (_steps(each), each.figures.alarms, each.figures.losses())):
        steps = _steps(each)
        # Sorted by the first loss: only what is in the front already can beat it.
        if not any(all(a <= b for a, b in zip(other, steps, strict=True)) for other in by_losses):
            by_losses[steps] = each
    return list(by_losses.values())


def thinned(front: Sequence[Tried], most: int) -> list[Tried]:
    """At most so many of a front: the best in each of the three, and the rest evenly along it."""
    if len(front) <= most:
        return list(front)
    columns = zip(*(each.figures.losses() for each in front), strict=True)
    best = {column.index(min(column)) for column in columns}
    places = sorted(best | {i * (len(front) - 1) // (most - 1) for i in range(most)})
    while len(places) > most:
        # The closest neighbours lose one of them, never one of the best.
        gaps = [(places[i + 1] - places[i - 1], i) for i in range(1, len(places) - 1) if places[i] not in best]
        del places[min(gaps)[1]]
    return [front[i] for i in places]


# -- inside ------------------------------------------------------------------------------------------------------------


def _allowed(log: Log, pinned: space.Pinned) -> list[Tried]:
    """What was tried with the pinned values: to give reasons others were tried as well."""
    return [each for each in log.tried if pinned.items() <= each.candidate.as_dict().items()]


def _steps(each: Tried) -> tuple[int, ...]:
    return tuple(round(loss / step) for loss, step in zip(each.figures.losses(), STEPS, strict=True))


def _rank(each: Tried, objective: Objective, best: float) -> tuple[float, ...]:
    """The less the better: whether its goodput is acceptable, then the objective, then how calm the guard was."""
    figures = each.figures
    lost, shed, recovery = _steps(each)
    below = max(0.0, best - GOODPUT_SLACK[objective] - figures.goodput)
    unacceptable = -(-below // STEPS[0])
    if objective is Objective.RECOVERY:
        return unacceptable, recovery, figures.alarms, lost, shed
    easy = figures.recovery_s // EASY_RECOVERY_S
    if objective is Objective.REFUSED:
        return unacceptable, shed, figures.alarms, easy, lost
    return unacceptable, easy, figures.alarms, lost, shed


def _best(tried: Sequence[Tried], objective: Objective, best: float) -> Tried:
    return min(tried, key=lambda each: _rank(each, objective, best))


def _rounded(load: Load, log: Log, chosen: Tried, objective: Objective, best: float, pinned: space.Pinned) -> Tried:
    """One value after the other, as far as the rank is no worse: what does not matter gets the value it usually has."""
    for name in ("shed", "LCDM", "TR", "LC", "LCPS", "LRC", "PC"):
        if name in pinned:
            continue
        others = [value for value in _usual(name, chosen.candidate, load.capacity) if value != _value(chosen, name)]
        tried = log.try_all([chosen.candidate.replaced(name, value) for value in others])
        rank = _rank(chosen, objective, best)
        chosen = next((each for each in tried if _rank(each, objective, best) <= rank), chosen)
    return chosen


def _usual(name: str, candidate: Candidate, capacity: float) -> list[int | str]:
    """Values to prefer, the most preferred first."""
    parameters = candidate.parameters
    if name == "shed":
        return ["excess"]
    if name == "LCDM":
        # A 503 ends what silence would have repeated.
        return [Lcdm.DENIAL_ONLY.value]
    if name == "TR":
        return [200]
    if name == "LC":
        return [max(1, min(round(capacity), 10_000)), _two_digits(parameters.LC)]
    if name == "LCPS":
        return [parameters.LC, _two_digits(parameters.LCPS)]
    return [space.habit(name, parameters.TR)]


def _value(tried: Tried, name: str) -> int | str:
    return tried.candidate.as_dict()[name]


def _two_digits(value: int) -> int:
    step = int(10 ** max(0, len(str(value)) - 2))
    return max(1, min(round(value / step) * step, 10_000))
