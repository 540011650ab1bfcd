"""A scenario that is refused: all that is wrong with it at once, each with its key, what was given and what is allowed."""

from __future__ import annotations

from sipguard.problem import Problem


class ScenarioError(ValueError):
    """A scenario that is refused; everything wrong with it, in ``problems``."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = problems
