"""Flags that several commands take: the six parameters, the policy, a configuration file, the admin address.

A flag that is not given is None, so that a file's value, or the default, stands.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

LAW = "The law"

Config = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="TOML file; its keys are the flags' names with _ for -. Flags win over it."),
]
Lc = Annotated[
    int | None, typer.Option(help="Level Critical, 1 … 10000 requests/s. (default: 1000)", rich_help_panel=LAW)
]
Lcdm = Annotated[
    str | None,
    typer.Option(
        help="Level Critical Drop Mode: denial_to_drop, denial_only, drop_only. (default: denial_to_drop)",
        metavar="MODE",
        rich_help_panel=LAW,
    ),
]
Lcps = Annotated[
    int | None,
    typer.Option(help="Limit Critical Per Second, 1 … 10000 requests/s of growth. (default: 500)", rich_help_panel=LAW),
]
Lrc = Annotated[
    int | None,
    typer.Option(help="Lockdown Relax Coefficient, 1 … 100 cycles of TR. (default: 15)", rich_help_panel=LAW),
]
Pc = Annotated[
    int | None,
    typer.Option(help="Patience Time Coefficient, 1 … 10000 cycles of TR. (default: 50)", rich_help_panel=LAW),
]
Tr = Annotated[
    int | None, typer.Option(help="Time Request (sampling period), 100 … 1000 ms. (default: 200)", rich_help_panel=LAW)
]
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


def names(given: Iterable[str] | None) -> list[str] | None:
    """`A,B` and repeated flags as one list; an empty value is the empty list; not given stays not given."""
    if not given:
        return None
    return [name.strip() for text in given for name in text.split(",") if name.strip()]


def items(given: Iterable[str] | None) -> list[str] | None:
    """A repeated flag as a list; typer gives an empty one for a flag that was not given."""
    return list(given) if given else None
