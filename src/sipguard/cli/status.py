"""`sipguard status`: what a running guard says of itself."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from sipguard.core.policy import SHEDDABLE_METHODS

TIMEOUT_S = 5.0
MAX_BYTES = 1 << 20
#: Parts of the status that are counts by a name.
COUNTED = ("parameters", "requests", "verdicts", "shadow", "responses", "outcomes", "discards", "checks", "edge")


def register(app: typer.Typer) -> None:
    """Make it a command of `app`."""
    app.command("status", epilog="Example: sipguard status --admin 127.0.0.1:8060 --json")(status)


def status(
    admin: Annotated[str, typer.Option(help="The guard's admin address.", metavar="IP:PORT")] = "127.0.0.1:8060",
    as_json: Annotated[bool, typer.Option("--json", help="The JSON as it came.")] = False,
) -> None:
    """Show a running guard's state, rate and counters.

    Exit 0 whatever the state is (a guard that sheds does its work); 1 when it cannot be reached or makes no sense.
    """
    from sipguard.manage.config import AdminAddress, Problem, SettingsError

    try:
        address = AdminAddress.parse(admin)
    except ValueError as error:
        raise SettingsError((Problem("admin", admin, str(error), by_flag=True),)) from None
    try:
        figures = fetch(address.host, address.port)
    except (OSError, http.client.HTTPException, ValueError) as error:
        typer.echo(f"no guard answers at {address}: {error or type(error).__name__}", err=True)
        raise typer.Exit(1) from None
    if as_json:
        typer.echo(json.dumps(figures, ensure_ascii=False))
    else:
        _print(figures)


def fetch(host: str, port: int) -> dict[str, Any]:
    """The status of the guard at host:port. Raises OSError, HTTPException, or ValueError for what is no status."""
    connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", "/api/v1/status")
        response = connection.getresponse()
        body = response.read(MAX_BYTES)
    finally:
        connection.close()
    if response.status != 200:
        raise ValueError(f"HTTP {response.status}")
    figures = json.loads(body)
    if not isinstance(figures, dict) or "state" not in figures:
        raise ValueError("the answer is no guard's status")
    return figures


def _print(figures: Mapping[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(show_header=False, box=None)
    for name, value in summary(figures):
        table.add_row(Text(name), Text(value))
    Console().print(table)


def summary(figures: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The figures an operator looks for first; what a status lacks is left out."""
    parameters = _part(figures, "parameters")
    rows = [("state", str(figures["state"]))]
    if "rps" in figures:
        rows.append(("rps", f"{figures['rps']} of LC {parameters.get('LC', '?')} requests/s"))
    if figures["state"] != "normal":
        rows.append(("patience run", f"{figures.get('patience_run', '?')} of PC {parameters.get('PC', '?')} cycles"))
        rows.append(("relax run", f"{figures.get('relax_run', '?')} of LRC {parameters.get('LRC', '?')} cycles"))
    policy = _part(figures, "policy")
    parts = [(name, _part(figures, name)) for name in COUNTED]
    parts.insert(1, ("policy", {key: policy[key] for key in policy if not _as_usual(key, policy)}))
    rows += [(name, ", ".join(f"{key} {_word(counts[key])}" for key in counts)) for name, counts in parts if counts]
    rows += [
        (name.replace("_", " "), str(figures[name]))
        for name in ("kernel_dropped", "absorbed", "overflowed")
        if name in figures
    ]
    evaluation = _part(figures, "evaluation")
    late = [
        f"{key} {_word(evaluation[f'late_ms_{key}'])}"
        for key in ("p50", "p99", "max")
        if f"late_ms_{key}" in evaluation
    ]
    if late:
        rows.append(("lateness ms", ", ".join(late)))
    for name in ("listeners", "upstreams"):
        given = figures.get(name)
        if isinstance(given, list) and given:
            rows.append((name, ", ".join(_place(row) for row in given if isinstance(row, Mapping))))
    rows += [
        (label, _word(figures[name]))
        for name, label in (("uptime_s", "uptime s"), ("version", "version"))
        if name in figures
    ]
    return rows


def _part(figures: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = figures.get(name)
    return part if isinstance(part, Mapping) else {}


def _place(row: Mapping[str, Any]) -> str:
    inside = " (inside)" if row.get("inside") else ""
    return f"{row.get('transport', '?')}:{row.get('address', '?')}{inside}"


def _as_usual(key: str, policy: Mapping[str, Any]) -> bool:
    """A set of methods that is the source's nine says nothing new."""
    return key.endswith("_methods") and isinstance(policy[key], list) and set(policy[key]) == SHEDDABLE_METHODS


def _word(value: object) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.1f}" if isinstance(value, float) else str(value)
