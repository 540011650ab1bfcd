"""Conditions on a result, as `refused>0` or `peak_rps >= 250.5`: a metric, a comparison, a number; nothing is evaluated."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping

_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}
_FORM = re.compile(r"\s*([a-z][a-z0-9_]*)\s*(>=|<=|==|!=|>|<)\s*([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*", re.ASCII)


class Condition:
    """One comparison. text: as it was written."""

    __slots__ = ("_compare", "_number", "metric", "text")

    def __init__(self, text: str, metrics: tuple[str, ...]) -> None:
        """Raises ValueError whose text says what is allowed."""
        found = _FORM.fullmatch(text)
        if found is None or found[1] not in metrics:
            raise ValueError(condition_form(metrics))
        self.text = text
        self.metric = found[1]
        self._compare = _OPERATORS[found[2]]
        self._number = float(found[3])

    def __repr__(self) -> str:
        return f"<Condition {self.text}>"

    def holds(self, values: Mapping[str, float]) -> bool:
        """Whether it holds for these values by metric."""
        return self._compare(values[self.metric], self._number)


def condition_form(metrics: tuple[str, ...]) -> str:
    """What a condition looks like."""
    return (
        f"METRIC OP NUMBER, as refused>0; metrics: {', '.join(metrics)}; comparisons: {' '.join(_OPERATORS)}; "
        "a number of 0 or more"
    )
