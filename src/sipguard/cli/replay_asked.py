"""What a `sipguard replay` asks for, checked: sets of parameters, how captures are read, where the results go."""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import ip_address
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sipguard.cli.results import hindrance
from sipguard.manage.config import Problem, Settings, SettingsError, load_settings

if TYPE_CHECKING:
    from sipguard.lab.condition import Condition
    from sipguard.lab.feed import CaptureOptions

PORTS_FORM = "port numbers 1 … 65535, with commas"
TO_FORM = "IP or IP:PORT, with commas, as 192.0.2.10:5060,[2001:db8::1]"
ORIGIN_FORM = "first, second, or a Unix time in seconds with at most 9 decimals"
PICTURE_FORM = "a file name that ends in .png or .svg"
NEEDS_MATPLOTLIB = "none without matplotlib: pip install 'sipguard[lab]'"

_INTEGER = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)
_UNIX_TIME = re.compile(r"([0-9]{1,11})(?:\.([0-9]{1,9}))?", re.ASCII)
_HOST_PORT = re.compile(r"(?:\[([^\]]+)\]|([^:]+))(?::([0-9]{1,5}))?", re.ASCII)


class Outputs(NamedTuple):
    """Where each goes: a file name, - for standard output, None for nowhere."""

    ticks: str | None
    verdicts: str | None
    json: str | None
    html: str | None
    picture: str | None

    @property
    def summary(self) -> bool:
        """Whether the terminal gets one: not when rows were asked for, nor when standard output is taken."""
        return self.ticks is None and self.verdicts is None and self.json != "-"

    @property
    def rows_on_terminal(self) -> bool:
        """Whether somebody looks at rows as they come."""
        return "-" in (self.ticks, self.verdicts) and sys.stdout is not None and sys.stdout.isatty()


def sets(config: Path | None, law: Mapping[str, str | None], fixed: Mapping[str, object]) -> list[Settings]:
    """The settings of every combination of the values given; all problems at once."""
    from sipguard.lab.study import MAX_SETS

    given = {key: _values(text) for key, text in law.items() if text is not None}
    count = 1
    for values in given.values():
        count *= len(values)
    if count > MAX_SETS:
        key, values = max(given.items(), key=lambda item: len(item[1]))
        form = f"at most {MAX_SETS} sets of parameters in all, and these are {count}"
        raise SettingsError((Problem(key, ",".join(map(str, values)), form, by_flag=True),))
    settings: list[Settings] = []
    problems: dict[str, Problem] = {}
    for chosen in product(*given.values()):
        try:
            settings.append(load_settings(config, {**dict(zip(given, chosen, strict=True)), **fixed}))
        except SettingsError as error:
            problems |= {str(problem): problem for problem in error.problems}
    if problems:
        raise SettingsError(tuple(problems.values()))
    return settings


def _values(text: str) -> list[int | str]:
    """`100,200` as integers; what is none stays text, to be refused by its parameter or to be a mode. Each once."""
    words = dict.fromkeys(word.strip() for word in text.split(","))
    return [int(word) if _INTEGER.fullmatch(word) else word for word in words]


def reading(
    settings: Settings, ports: list[str] | None, to: list[str] | None, at_guard: bool, origin: str
) -> CaptureOptions:
    from sipguard.lab.feed import CaptureOptions

    problems: list[Problem] = []
    numbers = frozenset(int(text) for text in ports or () if text.isascii() and text.isdecimal() and len(text) < 6)
    if ports and (len(numbers) != len(set(ports)) or not all(0 < number < 65536 for number in numbers)):
        problems.append(Problem("ports", ",".join(ports), PORTS_FORM, by_flag=True))
    targets = [_target(text) for text in to or ()]
    if None in targets:
        problems.append(Problem("to", ",".join(to or ()), TO_FORM, by_flag=True))
    origin_ns = _unix_ns(origin)
    if origin_ns is None and origin not in ("first", "second"):
        problems.append(Problem("origin", origin, ORIGIN_FORM, by_flag=True))
    if problems:
        raise SettingsError(tuple(problems))
    return CaptureOptions(
        ports=numbers or None,
        targets=frozenset(target for target in targets if target is not None) or None,
        own_finals=at_guard,
        max_body=settings.max_body,
        exempt_uris=tuple(settings.exempt_uris),
        origin_ns=origin_ns,
        whole_second=origin == "second",
    )


def _target(text: str) -> tuple[bytes, int] | None:
    """An address and a port, 0 for any; IPv6 with a port stands in brackets."""
    try:
        return ip_address(text).packed, 0
    except ValueError:
        found = _HOST_PORT.fullmatch(text)
    if found is None:
        return None
    try:
        address = ip_address(found[1] or found[2]).packed
    except ValueError:
        return None
    port = int(found[3] or 0)
    return (address, port) if port < 65536 else None


def _unix_ns(text: str) -> int | None:
    found = _UNIX_TIME.fullmatch(text)
    return None if found is None else int(found[1]) * 10**9 + int((found[2] or "").ljust(9, "0"))


def until(text: str | None) -> int | None:
    from sipguard.lab.replay import TIME_FORM, parse_ms

    until_ns = None if text is None else parse_ms(text)
    if text is not None and until_ns is None:
        raise SettingsError((Problem("until", text, TIME_FORM, by_flag=True),))
    return until_ns


def conditions(texts: Iterable[str]) -> list[Condition]:
    from sipguard.lab.condition import Condition
    from sipguard.lab.outcome import METRICS

    conditions, problems = [], []
    for text in texts:
        try:
            conditions.append(Condition(text, METRICS))
        except ValueError as error:
            problems.append(Problem("fail_if", text, str(error), by_flag=True))
    if problems:
        raise SettingsError(tuple(problems))
    return conditions


def _identity(name: str) -> object:
    """What makes two names one file: links of either kind lead to the same."""
    try:
        found = os.stat(name)
    except OSError:
        return os.path.realpath(name)
    return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else os.path.realpath(name)


def check_files(files: Sequence[str], outputs: Outputs) -> None:
    """An output that is an input, or another output, would destroy what it is made from; one that cannot be written would be
    found out at the end of a long reading."""
    problems: list[Problem] = []
    taken = {_identity(name) for name in files if name != "-"}
    for key, name in outputs._asdict().items():
        place = None if name is None else name if name == "-" else _identity(name)
        if name == "-" and key in ("html", "picture"):
            problems.append(Problem(key, name, "a file name", by_flag=True))
        elif name == "-" and sys.stdout is None:
            problems.append(Problem(key, name, "a standard output that is open", by_flag=True))
        elif place in taken:
            problems.append(Problem(key, name, "a file of its own", by_flag=True))
        elif place is not None:
            taken.add(place)
            why = None if name is None or name == "-" else hindrance(name)
            if why is not None:
                problems.append(Problem(key, name, f"a file that can be written ({why})", by_flag=True))
    if outputs.picture is not None and Path(outputs.picture).suffix not in (".png", ".svg"):
        problems.append(Problem("picture", outputs.picture, PICTURE_FORM, by_flag=True))
    elif outputs.picture is not None and not _can_draw():
        problems.append(Problem("picture", outputs.picture, NEEDS_MATPLOTLIB, by_flag=True))
    if files.count("-") > 1:
        problems.append(Problem("input", "-", "standard input once"))
    if problems:
        raise SettingsError(tuple(problems))


def _can_draw() -> bool:
    try:
        import matplotlib  # noqa: F401  asked for before a long reading, not after it
    except ImportError:
        return False
    return True
