"""What the commands say on standard error: one line each, whatever it repeats from outside."""

from __future__ import annotations

import typer

from sipguard.shown import line


def error(text: str) -> None:
    """Something asked for cannot be done."""
    typer.echo(f"error: {line(text)}", err=True)


def warning(text: str) -> None:
    """It can, and there is something to know."""
    typer.echo(f"warning: {line(text)}", err=True)


def failed(text: str) -> None:
    """It was done, and the answer is no."""
    typer.echo(f"failed: {line(text)}", err=True)
