"""Where a search looks: the ranges of SPEC §1, narrowed to what can matter for a server of this capacity."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import TYPE_CHECKING

from sipguard.core.parameters import EXACT_TR_MS, Lcdm, Parameters
from sipguard.lab.tune.figures import Candidate

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

#: RFC 3261 17: Timer B and F, 64 × T1: how long a client repeats a request that nobody answers.
TIMER_B_MS = 32_000
#: 503 for so long before the silence, where nothing says otherwise: silence makes clients that listen repeat themselves for
#: TIMER_B_MS each, so it is for those that have not listened for several times that.
PATIENCE_MS = 120_000
#: A calm of so long ends a storm, where nothing says otherwise (SPEC P2).
CALM_MS = 3000
NAMES = (*Parameters.model_fields, "shed")

Pinned = Mapping[str, int | str]
"""Values that are not searched for, by upper-case name or `shed`."""


def limits(capacity: float) -> dict[str, tuple[int, int]]:
    """Of the numbers that are searched for. LC: a quarter of the capacity to twice of it: lower starves the server, higher
    does not protect it. LCPS: from a twentieth of it."""
    return {
        "LC": (_within(capacity / 4, 10_000), _within(capacity * 2, 10_000)),
        "LCPS": (_within(capacity / 20, 10_000), 10_000),
        "LRC": (1, 100),
        "PC": (1, 10_000),
    }


def distributions(capacity: float, pinned: Pinned) -> dict[str, BaseDistribution]:
    """What a trial draws, by name. TR: only values that divide 1000, since the others under-read the rate (SPEC P4)."""
    from optuna.distributions import CategoricalDistribution, IntDistribution

    found: dict[str, BaseDistribution] = {
        name: IntDistribution(low, high, log=True) for name, (low, high) in limits(capacity).items()
    }
    found["LCDM"] = CategoricalDistribution([mode.value for mode in Lcdm])
    found["TR"] = CategoricalDistribution(EXACT_TR_MS)
    found["shed"] = CategoricalDistribution(["all", "excess"])
    return {name: found[name] for name in NAMES if name not in pinned}


def candidate(values: Mapping[str, int | str], pinned: Pinned) -> Candidate:
    """Drawn and pinned values together. Raises ParameterError."""
    every = {**values, **pinned}
    shed = every.pop("shed", "all")
    return Candidate(Parameters.of(every), "excess" if shed == "excess" else "all")


def first_guesses(capacity: float, pinned: Pinned) -> list[dict[str, int | str]]:
    """What somebody who knows the load but has not tried would set; tried first, without the pinned names."""
    guesses: list[dict[str, int | str]] = []
    for share in (1.0, 0.9, 0.75):
        for shed in ("excess", "all"):
            for mode in (Lcdm.DENIAL_ONLY, Lcdm.DENIAL_TO_DROP):
                lc = _within(capacity * share, 10_000)
                guess: dict[str, int | str] = {
                    **{name: habit(name, 200) for name in ("LRC", "PC")},
                    "LC": lc,
                    "LCPS": lc,
                    "LCDM": mode.value,
                    "TR": 200,
                    "shed": shed,
                }
                left = {name: value for name, value in guess.items() if name not in pinned}
                if left not in guesses:
                    guesses.append(left)
    return guesses


def habit(name: str, tr_ms: int) -> int:
    """LRC or PC where the load does not care."""
    return min(ceil(CALM_MS / tr_ms), 100) if name == "LRC" else ceil(PATIENCE_MS / tr_ms)


def _within(value: float, high: int) -> int:
    return max(1, min(round(value), high))
