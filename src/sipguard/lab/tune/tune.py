"""A load in, advice out."""

from __future__ import annotations

from sipguard.core.policy import Policy
from sipguard.lab.tune.choice import choose
from sipguard.lab.tune.figures import Load, Objective
from sipguard.lab.tune.reasons import reasons
from sipguard.lab.tune.report import Advice
from sipguard.lab.tune.search import Bench, Log, OnProgress, search
from sipguard.lab.tune.space import Pinned

#: How often the recommended set moves to a better neighbour.
MAX_STEPS = 3

#: About so many more sets are tried to round the best one and to say what its neighbours would have done.
FOR_REASONS = 30


def tune(
    load: Load,
    bench: Bench,
    *,
    objective: Objective = Objective.GOODPUT,
    trials: int = 300,
    seed: int = 1,
    pinned: Pinned | None = None,
    policy: Policy | None = None,
    on_progress: OnProgress | None = None,
) -> Advice:
    """Search, choose, and say why.

    trials ≥ 1; pinned: values not searched for, in the ranges of SPEC §1. policy: whose method sets the load has been
    made with, for the configuration. on_progress: told after each candidate. The same load, trials, seed and pinned
    values give the same advice on any bench. Raises ModuleNotFoundError without optuna.
    """
    fixed = pinned or {}
    log = Log(bench, trials + FOR_REASONS, on_progress)
    search(load, log, trials=trials, seed=seed, pinned=fixed)
    choice = choose(load, log, objective, fixed)
    told = reasons(load, log, choice)
    for _ in range(MAX_STEPS):
        # To give reasons its neighbours were tried; one of them may be better.
        before, choice = choice, choose(load, log, objective, fixed)
        if choice.recommended == before.recommended:
            break
        told = reasons(load, log, choice)
    return Advice(load, choice, told, trials, seed, log.tried, policy or Policy())
