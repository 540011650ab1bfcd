"""What is wrong with a scenario: all of it at once, each with its key, what was given and what is allowed."""

from __future__ import annotations

from typing import NamedTuple

from sipguard.shown import cut, echo, shown


class Problem(NamedTuple):
    """One thing wrong. key: where in the file, as `callers[0].rate`."""

    key: str
    value: object
    allowed: str

    def __str__(self) -> str:
        return f"{cut(shown(self.key))} = {echo(self.value)}: allowed is {self.allowed}"


class ScenarioError(ValueError):
    """A scenario that is refused; everything wrong with it, in ``problems``."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = problems
