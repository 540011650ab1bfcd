"""`sipguard check`: a configuration file, without running it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sipguard.manage.config import Settings, load_settings, warnings

_RMEM_MAX = Path("/proc/sys/net/core/rmem_max")


def register(app: typer.Typer) -> None:
    """Make it a command of `app`."""
    app.command("check", epilog="Example: sipguard check /etc/sipguard/sipguard.toml")(check)


def check(file: Annotated[Path, typer.Argument(help="TOML configuration file.", metavar="FILE")]) -> None:
    """Check a configuration file: every problem at once (exit 2), else its warnings and derived times (exit 0)."""
    settings = load_settings(file)
    for warning in (*warnings(settings), *buffer_warnings(settings, _granted_bytes())):
        typer.echo(f"warning: {warning}", err=True)
    for line in derived(settings):
        typer.echo(line)


def derived(settings: Settings) -> list[str]:
    """What follows from the parameters (SPEC P3), a line each."""
    parameters = settings.parameters
    patience = f"{parameters.patience_ms} ms of 503 before the silent drop (PC {parameters.PC} × TR {parameters.TR} ms)"
    if parameters.LCDM != "denial_to_drop":
        patience = f"not used: LCDM is {parameters.LCDM}"
    return [
        f"mode      {parameters.LCDM}, shed {settings.policy.shed}{'' if settings.policy.enforce else ', shadow'}",
        f"level     LC {parameters.LC} requests/s, LCPS {parameters.LCPS} requests/s of growth",
        f"scale     {parameters.scale} (1000 div TR {parameters.TR} ms): over LC from "
        f"{parameters.LC // parameters.scale + 1} requests in a window",
        f"patience  {patience}",
        f"relax     {parameters.relax_ms} ms below LC before normal (LRC {parameters.LRC} × TR {parameters.TR} ms)",
    ]


def buffer_warnings(settings: Settings, granted: int | None) -> list[str]:
    """Whether this kernel would grant the receive buffer. granted: its limit in bytes, None when it cannot be read."""
    if granted is None or settings.receive_buffer <= granted:
        return []
    return [
        f"receive_buffer = {settings.receive_buffer}: this kernel grants {granted} bytes; "
        f"sysctl net.core.rmem_max={settings.receive_buffer} allows it"
    ]


def _granted_bytes() -> int | None:
    try:
        return int(_RMEM_MAX.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
