"""What is wrong with a scenario: all of it at once, each with its key, what was given and what is allowed."""

from __future__ import annotations

from typing import NamedTuple

#: A refused value is shown in at most so many characters.
MAX_SHOWN = 80


class Problem(NamedTuple):
    """One thing wrong. key: where in the file, as `callers[0].rate`."""

    key: str
    value: object
    allowed: str

    def __str__(self) -> str:
        shown = repr(self.value)
        shown = shown if len(shown) <= MAX_SHOWN else shown[: MAX_SHOWN - 1] + "…"
        return f"{self.key} = {shown}: allowed is {self.allowed}"


class ScenarioError(ValueError):
    """A scenario that is refused; everything wrong with it, in ``problems``."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = problems
