"""The search: candidates drawn by a seeded sampler in batches of a fixed size, tried anywhere, told in the order drawn.

So the same seed draws the same candidates however many processes or machines try them, and whatever comes back first.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from sipguard.lab.tune import space
from sipguard.lab.tune.figures import Candidate, Figures, Load, Tried
from sipguard.lab.tune.interrupts import interrupts_wait

if TYPE_CHECKING:
    import optuna

#: Candidates tried side by side; the same on every machine, since the sampler learns between batches.
BATCH = 12

#: Told how many candidates are done, and how many there will be as far as that is known: to give reasons takes some more.
OnProgress = Callable[[int, int], None]


class Bench(Protocol):
    """Where candidates are tried: local processes or a cluster."""

    def try_all(self, candidates: Sequence[Candidate]) -> Iterator[Figures]:
        """In the order given, each as soon as it and those before it are known."""
        ...


class Log:
    """Everything tried so far; a candidate that was tried is not tried again."""

    __slots__ = ("_bench", "_expected", "_figures", "_on_progress")

    def __init__(self, bench: Bench, expected: int = 0, on_progress: OnProgress | None = None) -> None:
        """expected: about how many there will be."""
        self._bench = bench
        self._expected = expected
        self._on_progress = on_progress
        self._figures: dict[Candidate, Figures] = {}

    def __repr__(self) -> str:
        return f"<Log {len(self._figures)} tried>"

    @property
    def tried(self) -> list[Tried]:
        """Each candidate once, in the order of the first time."""
        return [Tried(candidate, figures) for candidate, figures in self._figures.items()]

    def try_all(self, candidates: Sequence[Candidate]) -> list[Tried]:
        """In the order given."""
        fresh = [each for each in dict.fromkeys(candidates) if each not in self._figures]
        total = max(self._expected, len(self._figures) + len(fresh))
        for candidate, figures in zip(fresh, self._bench.try_all(fresh) if fresh else (), strict=True):
            self._figures[candidate] = figures
            if self._on_progress is not None:
                self._on_progress(len(self._figures), total)
        return [Tried(each, self._figures[each]) for each in candidates]


def search(load: Load, log: Log, *, trials: int, seed: int, pinned: space.Pinned) -> None:
    """Try so many candidates. Raises ModuleNotFoundError without optuna."""
    # It loads compiled modules, and some of them lose an interrupt that comes while they begin.
    with interrupts_wait():
        study = _study(seed)
    drawn = space.distributions(load.capacity, pinned)
    for guess in space.first_guesses(load.capacity, pinned)[:trials]:
        study.enqueue_trial(guess)
    done = 0
    while done < trials:
        asked = [study.ask(drawn) for _ in range(min(BATCH, trials - done))]
        found = log.try_all([space.candidate(trial.params, pinned) for trial in asked])
        for trial, tried in zip(asked, found, strict=True):
            study.tell(trial, tried.figures.losses())
        done += len(asked)


def _study(seed: int) -> optuna.Study:
    import optuna

    # Its line per trial is not for our terminal.
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=4 * BATCH, constant_liar=True)
    return optuna.create_study(directions=["minimize"] * 3, sampler=sampler)
