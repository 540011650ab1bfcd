"""`sipguard`: the commands and their exit codes.

0 ok; 1 it ran and the answer is no; 2 something asked for cannot be done: wrong usage or configuration, a file that cannot be
read or written; 130 broken off (SIGINT; `run` takes it as its regular end); 141 whoever read the output has gone (SIGPIPE). One
file per command; what a command needs is imported when it runs, so that --help and mistakes answer at once.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Annotated

import typer

from sipguard import __version__
from sipguard.cli import check, demo, params, replay, run, say, simulate, status, tune
from sipguard.cli.loading import INTERRUPTED
from sipguard.manage.config import SettingsError

CANNOT, READER_GONE = 2, 141

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
    """Run a command: every one ends in the same way, without a traceback."""
    code = _run()
    try:
        # What is still in the buffer is asked for too; None where there is no standard output at all.
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        code = READER_GONE
    except OSError as error:
        code = _cannot(error)
    if code in (READER_GONE, CANNOT):
        _let_go_of_output()
    sys.exit(code)


def _run() -> int:
    """Run the command; its exit code."""
    try:
        app()
    except SettingsError as error:
        # Also where nobody can be told.
        with contextlib.suppress(OSError):
            for problem in error.problems:
                say.error(str(problem))
        return CANNOT
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as error:
        return _cannot(error)
    except SystemExit as ended:
        # typer and rich end the process with 1 when the reader of the output has gone; why, only the context tells.
        if isinstance(ended.__context__, BrokenPipeError):
            return READER_GONE
        return ended.code if isinstance(ended.code, int) else CANNOT if ended.code else 0
    return 0


def _cannot(error: OSError) -> int:
    """What the system refused: a full disk, a file that has vanished meanwhile."""
    if isinstance(error, BrokenPipeError):
        return READER_GONE
    about = f"{error.filename}: " if error.filename is not None else ""
    with contextlib.suppress(OSError):
        say.error(about + (error.strerror or str(error)))
    return CANNOT


def _let_go_of_output() -> None:
    """What could not be written stays in the buffer, and Python would complain about it once more at its end."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.__stdout__.fileno())  # type: ignore[union-attr]
        os.close(nowhere)
