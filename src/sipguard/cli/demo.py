"""`sipguard demo`: the whole story in half a minute, on loopback."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Make it a command of `app`."""
    app.command("demo", epilog="Example: sipguard demo --out /tmp/sipguard-demo --no-live")(demo)


def demo(
    out: Annotated[Path, typer.Option(help="Directory of the picture and the logs.", metavar="DIRECTORY")] = Path(
        "out"
    ),
    live: Annotated[bool, typer.Option("--live/--no-live", help="A live view, or plain lines.")] = True,
) -> None:
    """Calm, a jump over LCPS, overload (503), silent drop, calm again: about 30 s, loopback only.

    Ends with a picture and a table; exit 1 when a state was not visited that should have been.
    """
    from sipguard.demo.run import run_demo

    raise typer.Exit(run_demo(out=out, live=live))
