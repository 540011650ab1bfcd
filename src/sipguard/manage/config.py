"""Settings from a TOML file and the command line: flags override the file, every problem is named at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from sipguard.core.parameters import TERMS, ParameterError, Parameters
from sipguard.core.policy import Policy
from sipguard.manage.conflicts import conflicts
from sipguard.manage.endpoints import AdminAddress, Endpoint, UpstreamAddress
from sipguard.manage.headers import method_name
from sipguard.manage.settings import BOOL_FORM, METHODS_FORM, Allowed, RetryAfter, Settings
from sipguard.manage.warnings import warnings
from sipguard.problem import Problem
from sipguard.toml import TomlError, read_toml

__all__ = [
    "KEYS",
    "AdminAddress",
    "Endpoint",
    "Problem",
    "RetryAfter",
    "Settings",
    "SettingsError",
    "UpstreamAddress",
    "load_settings",
    "warnings",
]

PARAMETER_KEYS = tuple(term.name.lower() for term in TERMS)
POLICY_KEYS = ("shed", "shadow", "refuse_methods", "drop_methods")
_OWN_KEYS = tuple(name for name in Settings.model_fields if name not in ("parameters", "policy"))
#: Every key of a configuration file; a flag is the same name with - for _.
KEYS = (*PARAMETER_KEYS, *POLICY_KEYS, *_OWN_KEYS)


class SettingsError(ValueError):
    """Settings that are refused; all problems at once, in ``problems``."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("; ".join(str(problem) for problem in problems))
        self.problems = problems


def load_settings(toml_path: Path | str | None = None, flags: Mapping[str, object] | None = None) -> Settings:
    """The settings of a file (None: none) under those of flags (by key; None as a value: not given).

    Raises SettingsError with everything that is wrong in both, a file that cannot be read or parsed included.
    """
    problems: list[Problem] = []
    from_file = {} if toml_path is None else _read(Path(toml_path), problems)
    given = {key: value for key, value in (flags or {}).items() if value is not None}
    from_flags = _known(given, problems, by_flag=True)
    values = {**_known(from_file, problems, by_flag=False), **from_flags}
    found: list[Problem] = []
    parameters = _parameters(values, found)
    policy = _policy(values, found)
    own = {key: value for key, value in values.items() if key in _OWN_KEYS}
    try:
        settings = Settings.model_validate({"parameters": parameters, "policy": policy, **own})
    except ValidationError as error:
        settings = None
        found += [_problem(dict(detail), own) for detail in error.errors()]
    found += _conflicts(own, whole=settings is not None)
    problems += [problem._replace(by_flag=problem.key in from_flags) for problem in found]
    if problems or settings is None:
        raise SettingsError(tuple(problems))
    return settings


# -- inside ------------------------------------------------------------------------------------------------------------


def _read(path: Path, problems: list[Problem]) -> dict[str, Any]:
    try:
        return read_toml(path)
    except OSError as error:
        problems.append(Problem("config", str(path), f"a file that can be read ({error.strerror})", by_flag=True))
    except TomlError as error:
        problems.append(Problem("config", str(path), f"a TOML file ({error})", by_flag=True))
    return {}


def _known(given: Mapping[str, object], problems: list[Problem], *, by_flag: bool) -> dict[str, object]:
    """The known keys; parameters also in upper case (SPEC P1), but each once."""
    known: dict[str, object] = {}
    for name, value in given.items():
        key = name.lower() if name.isupper() and name.lower() in PARAMETER_KEYS else name
        if key not in KEYS:
            near = get_close_matches(name, KEYS, n=1)
            hint = f" (nearest: {near[0]})" if near else ""
            problems.append(Problem(name, value, f"one of the keys {', '.join(KEYS)}{hint}", by_flag))
        elif key in known:
            problems.append(Problem(name, value, f"given once, and {key} = {known[key]!r} was given before", by_flag))
        else:
            known[key] = value
    return known


def _parameters(values: Mapping[str, object], problems: list[Problem]) -> Parameters:
    try:
        return Parameters.of({key: values[key] for key in PARAMETER_KEYS if key in values})
    except ParameterError as error:
        problems += [Problem(name.lower(), value, allowed) for name, value, allowed in error.problems]
        return Parameters()


def _policy(values: Mapping[str, object], problems: list[Problem]) -> Policy:
    arguments: dict[str, Any] = {}
    for key in POLICY_KEYS:
        if key not in values:
            continue
        value = values[key]
        if key == "shed":
            if value in ("all", "excess"):
                arguments[key] = value
            else:
                problems.append(Problem(key, value, "all or excess"))
        elif key == "shadow":
            if isinstance(value, bool):
                arguments["enforce"] = not value
            else:
                problems.append(Problem(key, value, BOOL_FORM))
        elif not isinstance(value, list | tuple):
            problems.append(Problem(key, value, METHODS_FORM))
        else:
            arguments[key] = _parsed(value, method_name, key, problems)
    return Policy(**arguments)


def _problem(detail: Mapping[str, Any], own: Mapping[str, Any]) -> Problem:
    """One of pydantic's errors in our words: the key, the item of its list, what is allowed."""
    key, *index = detail["loc"]
    value = own[key]
    if index and isinstance(value, list | tuple) and isinstance(index[0], int):
        value = value[index[0]]
    if detail["type"] == "value_error":
        return Problem(key, value, str(detail["ctx"]["error"]))
    words = (mark.words for mark in Settings.model_fields[key].metadata if isinstance(mark, Allowed))
    return Problem(key, value, next(words, detail["msg"]))


Parsed = TypeVar("Parsed")


def _parsed(
    values: object, parse: Callable[[object], Parsed], key: str = "", problems: list[Problem] | None = None
) -> list[Parsed]:
    """What of a list can be parsed; the rest is reported here where problems is given, elsewhere where it is not."""
    found: list[Parsed] = []
    for value in values if isinstance(values, list | tuple) else ():
        try:
            found.append(parse(value))
        except ValueError as error:
            if problems is not None:
                problems.append(Problem(key, value, str(error)))
    return found


def _conflicts(own: Mapping[str, Any], *, whole: bool) -> list[Problem]:
    """What is wrong between keys that are each right. whole: nothing was left out for being wrong by itself."""
    listen = (
        _parsed(own["listen"], Endpoint.parse) if "listen" in own else list(Settings.model_fields["listen"].default)
    )
    upstream = _parsed(own.get("upstream"), UpstreamAddress.parse)
    inside = _parsed(own.get("inside"), Endpoint.parse)
    admin = _parsed([own.get("admin")], AdminAddress.parse)
    return conflicts(listen, upstream, inside, admin, whole=whole)
