"""The same storm under several policies: none, the source's `all`, and `excess` (SPEC X1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from sipguard.core.parameters import Parameters
from sipguard.core.policy import Policy, Shed
from sipguard.lab.sim.engine import Run, Simulation
from sipguard.lab.sim.problem import ScenarioError
from sipguard.lab.sim.scenario import Guard, Scenario
from sipguard.lab.sim.summary import Summary, summarise
from sipguard.problem import Problem

NO_GUARD = "none"
#: none: no guard at all; all, excess: the guard with that shed.
POLICIES = (NO_GUARD, "all", "excess")
POLICIES_FORM = "none, all and excess, with commas, each once"


class Variant(NamedTuple):
    """One policy's run and its figures."""

    policy: str
    run: Run
    summary: Summary

    @property
    def guarded(self) -> bool:
        """Whether this run had a guard, and so states."""
        return self.run.scenario.guard is not None


def parameters_of(variants: Sequence[Variant]) -> Parameters | None:
    """The guard's, which all runs that had one share; None: none had."""
    guards = (variant.run.scenario.guard for variant in variants)
    return next((guard.parameters for guard in guards if guard is not None), None)


def policies(text: str) -> list[str]:
    """`none,all` as a list. Raises ScenarioError."""
    names = [name.strip() for name in text.split(",")]
    if not set(names) <= set(POLICIES) or len(set(names)) != len(names):
        raise ScenarioError((Problem("compare", text, POLICIES_FORM),))
    return names


def policy_of(scenario: Scenario) -> str:
    """The name of the policy a scenario has."""
    return NO_GUARD if scenario.guard is None else scenario.guard.policy.shed


def under(scenario: Scenario, policy: str) -> Scenario:
    """The scenario under one of `POLICIES`; its parameters stay."""
    if policy == NO_GUARD:
        return replace(scenario, guard=None)
    old = scenario.guard
    assert old is not None
    shed: Shed = "excess" if policy == "excess" else "all"
    law = Policy(shed, old.policy.enforce, old.policy.refuse_methods, old.policy.drop_methods)
    return replace(scenario, guard=Guard(old.parameters, law, old.retry_after_s, old.retry_after_methods))


def compare(
    scenario: Scenario,
    names: Sequence[str],
    seed: int,
    progress: Callable[[str, float], None] | None = None,
) -> list[Variant]:
    """Run them one after another with the same seed: the same clients, other guards. progress: policy, virtual time s."""
    variants = []
    for name in names:
        told = None if progress is None else lambda at_s, name=name: progress(name, at_s)
        run = Simulation(under(scenario, name), seed).run(told)
        variants.append(Variant(name, run, summarise(run)))
    return variants
