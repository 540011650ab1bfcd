"""One thing wrong with what was asked for: settings, a flag, a scenario."""

from __future__ import annotations

from typing import NamedTuple

from sipguard.shown import cut, echo, shown


class Problem(NamedTuple):
    """One thing wrong: the key, what was given, what is allowed, and whether it came by a flag."""

    key: str
    value: object
    allowed: str
    by_flag: bool = False

    def __str__(self) -> str:
        # A key of a file is any text.
        name = "--" + self.key.replace("_", "-") if self.by_flag else cut(shown(self.key))
        return f"{name} = {echo(self.value)}: allowed is {self.allowed}"
