"""One thing wrong with the settings."""

from __future__ import annotations

from typing import NamedTuple


class Problem(NamedTuple):
    """One thing wrong: the key, what was given, what is allowed, and whether it came by a flag."""

    key: str
    value: object
    allowed: str
    by_flag: bool = False

    def __str__(self) -> str:
        name = "--" + self.key.replace("_", "-") if self.by_flag else self.key
        return f"{name} = {self.value!r}: allowed is {self.allowed}"
