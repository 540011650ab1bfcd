"""`sipguard`: the commands and their exit codes.

0 ok, 1 it ran and the answer is no (or its reader went away), 2 wrong usage or configuration. One file per command;
what a command needs is imported when it runs, so that --help and mistakes answer at once.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from sipguard import __version__
from sipguard.cli import check, demo, params, replay, run, simulate, status, tune
from sipguard.manage.config import SettingsError

app = typer.Typer(
    name="sipguard",
    help="SIP overload control: refuses with 503 past LC, then drops silently, then recovers after a proven calm.",
    epilog="Example: sipguard run --upstream udp:192.0.2.10:5060 --admin 127.0.0.1:8060 --lc 100",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"sipguard {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Options of no command."""


for _command in (run, demo, check, params, replay, simulate, tune, status):
    _command.register(app)


def main() -> None:
    """The entry point: wrong settings are told one a line, without a traceback."""
    try:
        app()
    except SettingsError as error:
        for problem in error.problems:
            typer.echo(f"error: {problem}", err=True)
        sys.exit(2)
