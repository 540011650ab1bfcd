"""What a key of a scenario file may hold: a parser that raises ValueError, and the words for what it allows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from itertools import pairwise
from typing import Any, NamedTuple

from sipguard.lab.sim.methods import METHODS
from sipguard.lab.sim.scenario import Rate
from sipguard.problem import Problem

#: Points of one rate.
MAX_POINTS = 10_000


class Field(NamedTuple):
    """How one key is read. parse: raises ValueError for what is not allowed."""

    parse: Callable[[object], Any]
    allowed: str
    required: bool = False


def number(low: float, high: float, unit: str, *, above: bool = False, required: bool = False) -> Field:
    """A number from low (above: beyond it) to high."""

    def parse(value: object) -> float:
        # Written so that nan, which is in no range, is refused.
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise ValueError
        if above and value == low:
            raise ValueError
        return float(value)

    span = f"above {low:g}, at most {high:g}" if above else f"{low:g} … {high:g}"
    return Field(parse, f"a number {span} ({unit})", required)


def integer(low: int, high: int, unit: str, *, required: bool = False) -> Field:
    """An integer from low to high."""

    def parse(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError
        return value

    return Field(parse, f"an integer {low} … {high} ({unit})", required)


def text(what: str, *, required: bool = False) -> Field:
    """A text of visible characters; line ends are spaces."""

    def parse(value: object) -> str:
        line = " ".join(value.split()) if isinstance(value, str) else ""
        if not line or not line.isprintable():
            raise ValueError
        return line

    return Field(parse, f"{what}, of visible characters", required)


def choice(*values: str, required: bool = False) -> Field:
    """One of these."""

    def parse(value: object) -> str:
        if value not in values:
            raise ValueError
        return str(value)

    return Field(parse, "one of " + ", ".join(values), required)


def boolean() -> Field:
    """true or false."""

    def parse(value: object) -> bool:
        if not isinstance(value, bool):
            raise ValueError
        return value

    return Field(parse, "true or false")


def span(low: float, high: float, unit: str, *, optional: bool = False) -> Field:
    """Two numbers, the lower first; optional: false for none."""
    one = number(low, high, unit)

    def parse(value: object) -> tuple[float, float] | None:
        if optional and value is False:
            return None
        if not isinstance(value, list) or len(value) != 2:
            raise ValueError
        first, second = (one.parse(part) for part in value)
        if first > second:
            raise ValueError
        return first, second

    return Field(parse, f"two numbers [from, to], {low:g} … {high:g} ({unit})" + (" or false" if optional else ""))


def methods() -> Field:
    """A list of methods."""

    def parse(value: object) -> frozenset[str]:
        if not isinstance(value, list) or any(method not in METHODS for method in value):
            raise ValueError
        return frozenset(value)

    return Field(parse, "a list of " + ", ".join(METHODS))


def costs() -> Field:
    """A table of work by method."""
    one = number(0, 1000, "times the mean service time")

    def parse(value: object) -> dict[str, float]:
        if not isinstance(value, Mapping) or any(method not in METHODS for method in value):
            raise ValueError
        return {method: one.parse(cost) for method, cost in value.items()}

    return Field(parse, f"a table of {', '.join(METHODS)} with numbers 0 … 1000 (times the mean service time)")


def anything(allowed: str = "") -> Field:
    """Checked elsewhere."""
    return Field(lambda value: value, allowed)


def rate() -> Field:
    """A number, or points [[s, requests/s], …] with times that never go back."""
    level, time = number(0, 100_000, "requests/s"), number(0, 1e6, "s")

    def parse(value: object) -> Rate:
        if not isinstance(value, list):
            return Rate(((0.0, level.parse(value)),))
        if not 1 <= len(value) <= MAX_POINTS or any(not isinstance(p, list) or len(p) != 2 for p in value):
            raise ValueError
        points = tuple((time.parse(at), level.parse(per_second)) for at, per_second in value)
        if any(before[0] > after[0] for before, after in pairwise(points)):
            raise ValueError
        return Rate(points)

    allowed = "a number 0 … 100000 (requests/s) or points [[s, requests/s], …] in order of time"
    return Field(parse, allowed, required=True)


def read(table: object, fields: Mapping[str, Field], where: str, problems: list[Problem]) -> dict[str, Any]:
    """The values of a table by key; what is wrong goes to problems: unknown keys, values, required keys that miss."""
    if not isinstance(table, Mapping):
        problems.append(Problem(where, table, "a table"))
        return {}
    found: dict[str, Any] = {}
    for key, value in table.items():
        place = f"{where}.{key}" if where else key
        field = fields.get(key)
        if field is None:
            problems.append(Problem(place, value, f"one of the keys {', '.join(fields)}{_hint(key, fields)}"))
            continue
        try:
            found[key] = field.parse(value)
        except ValueError:
            problems.append(Problem(place, value, field.allowed))
    for key, field in fields.items():
        if field.required and key not in table:
            problems.append(Problem(f"{where}.{key}" if where else key, None, field.allowed))
    return found


def _hint(key: str, known: Iterable[str]) -> str:
    near = get_close_matches(key, list(known), n=1)
    return f" (nearest: {near[0]})" if near else ""
