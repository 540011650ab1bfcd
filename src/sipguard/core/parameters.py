"""The six parameters of the customer's text, their ranges and what follows from them (SPEC §1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

#: The TR values that divide 1000, so that RPS is exact (SPEC P4).
EXACT_TR_MS = (100, 125, 200, 250, 500, 1000)


class Lcdm(StrEnum):
    """Level Critical Drop Mode: what happens past LC (SPEC §1, §4)."""

    DENIAL_TO_DROP = "denial_to_drop"
    DENIAL_ONLY = "denial_only"
    DROP_ONLY = "drop_only"


class Term(NamedTuple):
    """What one parameter is called and may be, and our default (SPEC P2)."""

    name: str
    long_name: str
    low: int
    high: int
    unit: str
    default: int | Lcdm

    @property
    def allowed(self) -> str:
        """The allowed values in words, for error messages and papers."""
        if self.name == "LCDM":
            return "one of " + ", ".join(Lcdm)
        return f"an integer {self.low} … {self.high} ({self.unit})"


#: SPEC §1, row by row. LCDM has no numeric range: low and high are 0.
TERMS = (
    Term("LC", "Level Critical", 1, 10000, "requests/s", 1000),
    Term("LCDM", "Level Critical Drop Mode", 0, 0, "mode", Lcdm.DENIAL_TO_DROP),
    Term("LCPS", "Limit Critical Per Second", 1, 10000, "requests/s of growth", 500),
    Term("LRC", "Lockdown Relax Coefficient", 1, 100, "cycles of TR ms", 15),
    Term("PC", "Patience Time Coefficient", 1, 10000, "cycles of TR ms", 50),
    Term("TR", "Time Request (sampling period)", 100, 1000, "ms", 200),
)
#: The same by upper-case name.
TERM = {term.name: term for term in TERMS}
# Only wholly upper or wholly lower: "Lc" is a slip, not a spelling (SPEC P1). A table, since str.upper() would also make
# LCPS of "lcpſ" (U+017F).
_SPELLINGS = {spelling: name for name in TERM for spelling in (name, name.lower())}

#: A refused value is shown in at most so many characters: it may come from outside.
MAX_SHOWN = 80


class Problem(NamedTuple):
    """One thing wrong with one parameter: what was given and what is allowed (SPEC P1)."""

    name: str
    value: object
    allowed: str

    def __str__(self) -> str:
        return f"{_shown(self.name, str)} = {_shown(self.value)}: allowed is {self.allowed}"


class ParameterError(ValueError):
    """Parameters that are refused (SPEC P1): all problems at once, in ``problems``."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("; ".join(str(problem) for problem in problems))
        self.problems = problems

    def __reduce__(self) -> tuple[type[ParameterError], tuple[tuple[Problem, ...]]]:
        # An exception is pickled by its text otherwise, and that is not what makes one.
        return type(self), (self.problems,)


def _field(name: str) -> Any:
    """A parameter's field: its row of TERMS. The mode is written as text, so it is not strict (see `_text`)."""
    term = TERM[name]
    if name == "LCDM":
        return Field(default=term.default, strict=False)
    return Field(default=term.default, ge=term.low, le=term.high)


def _text(value: object) -> object:
    """Strict for an enumeration that is written as text: pydantic's lax mode would take bytes too."""
    if not isinstance(value, str):
        raise ValueError("not a text")
    return value


class Parameters(BaseModel):
    """LC, LCDM, LCPS, LRC, PC, TR: integers in the ranges of SPEC §1, names in upper or lower case.

    Raises ParameterError, with every problem it found, for a value outside its range, of another type, an unknown name
    or a name given twice. Nothing is clamped. Ranges and defaults are those of TERMS.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    LC: int = _field("LC")
    LCDM: Annotated[Lcdm, BeforeValidator(_text)] = _field("LCDM")
    LCPS: int = _field("LCPS")
    LRC: int = _field("LRC")
    PC: int = _field("PC")
    TR: int = _field("TR")

    def __init__(self, /, **values: Any) -> None:
        given, problems = _canonical(values)
        try:
            super().__init__(**given)
        except ValidationError as error:
            for detail in error.errors():
                name = str(detail["loc"][0])
                problems.append(Problem(name, given[name], _allowed(name)))
        if problems:
            raise ParameterError(tuple(problems))

    @classmethod
    def of(cls, values: Mapping[str, object]) -> Parameters:
        """Parameters from a mapping of names (either case) to values. Raises ParameterError."""
        return cls(**values)

    def replaced(self, /, **changes: Any) -> Parameters:
        """These parameters with some changed (names in either case). Raises ParameterError, all problems at once."""
        changed, _ = _canonical(changes)
        kept = {name: value for name, value in self.as_dict().items() if name not in changed}
        return Parameters(**kept, **changes)

    def as_dict(self) -> dict[str, int | str]:
        """Plain values by upper-case name, in the order of SPEC §1."""
        return {
            "LC": self.LC,
            "LCDM": self.LCDM.value,
            "LCPS": self.LCPS,
            "LRC": self.LRC,
            "PC": self.PC,
            "TR": self.TR,
        }

    @property
    def scale(self) -> int:
        """1000 div TR: what one request in a window adds to RPS (SPEC P3, M1)."""
        return 1000 // self.TR

    @property
    def window_ns(self) -> int:
        """TR in nanoseconds."""
        return self.TR * 1_000_000

    @property
    def relax_ms(self) -> int:
        """LRC·TR: how long the calm must last (SPEC P3)."""
        return self.LRC * self.TR

    @property
    def patience_ms(self) -> int:
        """PC·TR: how long 503 lasts before the silent drop (SPEC P3)."""
        return self.PC * self.TR

    def warnings(self) -> tuple[str, ...]:
        """What is allowed but will surprise: today, a TR that does not divide 1000 (SPEC P4)."""
        if 1000 % self.TR == 0:
            return ()
        nearest = min(EXACT_TR_MS, key=lambda exact: (abs(exact - self.TR), exact))
        low = (1000 - self.scale * self.TR) / 10
        return (
            f"TR = {self.TR}: 1000 div TR is {self.scale}, so RPS reads {low:g} % low; "
            f"the nearest exact TR is {nearest} (exact: {', '.join(map(str, EXACT_TR_MS))})",
        )


def _shown(value: object, as_text: Callable[[object], str] = repr) -> str:
    """The value for an error text: short, and never failing (an int of over 4,300 digits has no repr in CPython)."""
    try:
        text = as_text(value)
    except ValueError:
        return f"{type(value).__name__} too long to show"
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…"


def _allowed(name: str) -> str:
    term = TERM.get(name)
    return term.allowed if term else "one of the names " + ", ".join(TERM)


def _canonical(values: Mapping[str, object]) -> tuple[dict[str, object], list[Problem]]:
    """Upper-case names; a name that comes twice (LC and lc) or is unknown is a problem, not a choice."""
    given: dict[str, object] = {}
    problems: list[Problem] = []
    for name, value in values.items():
        known = _SPELLINGS.get(name)
        if known is None:
            problems.append(Problem(name, value, _allowed(name)))
        elif known in given:
            problems.append(Problem(name, value, f"given once, and {known} = {_shown(given[known])} was given before"))
        else:
            given[known] = value
    return given, problems
