"""Flags that several commands take: the six parameters, the policy, a configuration file, the admin address.

A flag that is not given is None, so that a file's value, or the default, stands.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from sipguard.core.parameters import TERM

LAW = "The law"
CAPTURES = "Captures"


def of_term(name: str, more: str = "") -> str:
    """The help of a parameter's flag, by its row of TERMS. more: what else is to be said of it."""
    term = TERM[name]
    return f"{term.long_name}: {term.allowed}{more}. (default: {term.default})"


Config = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="TOML file; its keys are the flags' names with _ for -. Flags win over it."),
]
Lc = Annotated[int | None, typer.Option(help=of_term("LC"), rich_help_panel=LAW)]
Lcdm = Annotated[str | None, typer.Option(help=of_term("LCDM"), metavar="MODE", rich_help_panel=LAW)]
Lcps = Annotated[int | None, typer.Option(help=of_term("LCPS"), rich_help_panel=LAW)]
Lrc = Annotated[int | None, typer.Option(help=of_term("LRC"), rich_help_panel=LAW)]
Pc = Annotated[int | None, typer.Option(help=of_term("PC"), rich_help_panel=LAW)]
Tr = Annotated[int | None, typer.Option(help=of_term("TR"), rich_help_panel=LAW)]
Shed = Annotated[
    str | None,
    typer.Option(
        help="all: everything sheddable; excess: only what is beyond LC. (default: all)",
        metavar="all|excess",
        rich_help_panel=LAW,
    ),
]
Shadow = Annotated[
    bool | None,
    typer.Option("--shadow/--no-shadow", help="Decide and count, let everything through.", rich_help_panel=LAW),
]
RefuseMethods = Annotated[
    list[str] | None,
    typer.Option(
        help="Methods 503 may touch, with commas. (default: the source's nine)",
        metavar="METHODS",
        rich_help_panel=LAW,
    ),
]
DropMethods = Annotated[
    list[str] | None,
    typer.Option(
        help="Methods the silent drop may touch, with commas. (default: the source's nine)",
        metavar="METHODS",
        rich_help_panel=LAW,
    ),
]
# What of a capture is looked at.
Ports = Annotated[
    list[str] | None,
    typer.Option(help="UDP and TCP ports to look at. (default: all)", rich_help_panel=CAPTURES, metavar="PORTS"),
]
To = Annotated[
    list[str] | None,
    typer.Option(
        help="Count only what is sent to these servers. (default: to any)",
        rich_help_panel=CAPTURES,
        metavar="IP[:PORT]",
    ),
]
AtGuard = Annotated[
    bool,
    typer.Option("--at-guard", help="Taken at a guard: ACKs to the 503s in it do not count.", rich_help_panel=CAPTURES),
]


CAPACITY_FORM = "requests per second that the protected servers can do, 1 … 10000, as 800/s or 800"
_CAPACITY = re.compile(r"([0-9]{1,5}(?:\.[0-9]{1,3})?)(?:/s)?", re.ASCII)


def capacity_of(text: str | None) -> float | None:
    """By CAPACITY_FORM; None for what is none."""
    found = None if text is None else _CAPACITY.fullmatch(text.strip())
    value = float(found[1]) if found else 0.0
    return value if 1 <= value <= 10_000 else None


def names(given: Iterable[str] | None) -> list[str] | None:
    """`A,B` and repeated flags as one list; an empty value is the empty list; not given stays not given."""
    if not given:
        return None
    return [name.strip() for text in given for name in text.split(",") if name.strip()]


def items(given: Iterable[str] | None) -> list[str] | None:
    """A repeated flag as a list; typer gives an empty one for a flag that was not given."""
    return list(given) if given else None
