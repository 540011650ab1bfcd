"""`sipguard replay`: the law on recorded events, as it would have judged them live."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from sipguard.cli import options
from sipguard.manage.config import Problem, SettingsError, load_settings

if TYPE_CHECKING:
    from sipguard.core.verdicts import Change
    from sipguard.lab.replay import Judged, Replay

#: Changes of state the summary shows; a file may hold any number.
MAX_SHOWN = 50
EXAMPLE = "Example: sipguard replay events.csv --ticks t.csv --verdicts v.csv --until 60000 --lc 100 --tr 200"


def register(app: typer.Typer) -> None:
    """Make it a command of `app`."""
    app.command("replay", epilog=EXAMPLE)(replay)


def replay(
    events: Annotated[
        str, typer.Argument(help="CSV: time_ms,method and, if wanted, count; - is standard input.", metavar="INPUT.csv")
    ],
    ticks: Annotated[
        str | None,
        typer.Option(help="Write time_ms,requests,rps,state, a row per cycle; - is standard output.", metavar="CSV"),
    ] = None,
    verdicts: Annotated[
        str | None,
        typer.Option(
            help="Write time_ms,method,allow,reject,drop, a row per input row; - is standard output.", metavar="CSV"
        ),
    ] = None,
    until: Annotated[
        str | None, typer.Option(help="Close every window that ends by then, after the last event.", metavar="MS")
    ] = None,
    config: options.Config = None,
    lc: options.Lc = None,
    lcdm: options.Lcdm = None,
    lcps: options.Lcps = None,
    lrc: options.Lrc = None,
    pc: options.Pc = None,
    tr: options.Tr = None,
    shed: options.Shed = None,
    shadow: options.Shadow = None,
    refuse_methods: options.RefuseMethods = None,
    drop_methods: options.DropMethods = None,
) -> None:
    """Feed recorded events to the law and write its cycles and verdicts; without an output file, a summary.

    The first row that cannot be used ends it with its line number (exit 2); what came before stands in the files.
    """
    from sipguard.lab.replay import TIME_FORM, Replay, RowError, parse_ms, read_events

    law = {"lc": lc, "lcdm": lcdm, "lcps": lcps, "lrc": lrc, "pc": pc, "tr": tr, "shed": shed, "shadow": shadow}
    methods = {"refuse_methods": options.names(refuse_methods), "drop_methods": options.names(drop_methods)}
    settings = load_settings(config, {**law, **methods})
    until_ns = None if until is None else parse_ms(until)
    if until is not None and until_ns is None:
        raise SettingsError((Problem("until", until, TIME_FORM, by_flag=True),))
    _check_files(events, ticks, verdicts)
    run = Replay(settings.parameters, settings.policy)
    with ExitStack() as files:
        source = files.enter_context(_reading(events))
        outputs = [
            None if name is None else files.enter_context(_writing(key, name))
            for key, name in (("ticks", ticks), ("verdicts", verdicts))
        ]
        try:
            changes = _write(run, run.run(read_events(source)), outputs, until_ns)
        except RowError as error:
            typer.echo(f"error: {events}: {error}", err=True)
            raise typer.Exit(2) from None
    if ticks is None and verdicts is None:
        _print_summary(run, changes)


def _write(run: Replay, judged: Iterator[Judged], outputs: list[TextIO | None], until_ns: int | None) -> list[Change]:
    """Write both files as the events come; the changes of state, as many as the summary needs and one more."""
    from sipguard.lab.replay import TICK_COLUMNS, VERDICT_COLUMNS, tick_row, verdict_row

    ticks, verdicts = (None if file is None else csv.writer(file, lineterminator="\n") for file in outputs)
    if ticks is not None:
        ticks.writerow(TICK_COLUMNS)
    if verdicts is not None:
        verdicts.writerow(VERDICT_COLUMNS)
    changes: list[Change] = []
    for event in judged:
        if ticks is not None:
            ticks.writerows(map(tick_row, event.cycles))
        if verdicts is not None:
            verdicts.writerow(verdict_row(event))
        changes += run.changes()[: MAX_SHOWN + 1 - len(changes)]
    if until_ns is not None:
        cycles = run.advance(until_ns)
        if ticks is not None:
            ticks.writerows(map(tick_row, cycles))
        changes += run.changes()[: MAX_SHOWN + 1 - len(changes)]
    return changes


def _check_files(events: str, ticks: str | None, verdicts: str | None) -> None:
    """An output that is the input, or the other output, would destroy what it is made from."""
    problems: list[Problem] = []
    taken = set() if events == "-" else {Path(events).resolve()}
    for key, name in (("ticks", ticks), ("verdicts", verdicts)):
        place = None if name is None else Path("-") if name == "-" else Path(name).resolve()
        if place in taken:
            problems.append(Problem(key, name, "a file of its own", by_flag=True))
        elif place is not None:
            taken.add(place)
    if problems:
        raise SettingsError(tuple(problems))


def _reading(name: str) -> AbstractContextManager[TextIO]:
    if name == "-":
        # Read as a file is, whatever the locale says of standard input.
        name = "/dev/stdin"
    try:
        # Bytes that are no UTF-8 become characters no method has: the row is named, not the codec.
        return Path(name).open(encoding="utf-8-sig", errors="surrogateescape", newline="")
    except OSError as error:
        raise _unusable("input", name, error) from None


def _writing(key: str, name: str) -> AbstractContextManager[TextIO]:
    if name == "-":
        return nullcontext(sys.stdout)
    try:
        return Path(name).open("w", encoding="utf-8", newline="")
    except OSError as error:
        raise _unusable(key, name, error) from None


def _unusable(key: str, name: str, error: OSError) -> SettingsError:
    return SettingsError((Problem(key, name, f"a file that can be opened ({error.strerror})", by_flag=key != "input"),))


def _print_summary(run: Replay, changes: list[Change]) -> None:
    from rich.console import Console
    from rich.table import Table

    from sipguard.lab.replay import ms_text

    law = run.controller
    table = Table("at ms", "state", "rps", "patience run", "relax run")
    table.add_row("0", "normal", "", "", "")
    for change in changes[:MAX_SHOWN]:
        runs = (str(change.patience_run), str(change.relax_run))
        table.add_row(ms_text(change.time_ns), change.after.value, str(change.rps), *runs)
    console = Console()
    console.print(table)
    if len(changes) > MAX_SHOWN:
        console.print(f"(the first {MAX_SHOWN} changes; --ticks writes every cycle)")
    console.print(f"at the end: {law.state.value}")
    console.print(f"allow {law.allowed}, reject {law.rejected}, drop {law.dropped}")
    if not law.policy.enforce:
        console.print(f"shadow: would reject {law.shadow_rejected}, would drop {law.shadow_dropped}")
