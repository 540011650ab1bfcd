"""`sipguard replay`: the law on recorded traffic, as it would have judged it live."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from sipguard.cli import options, say
from sipguard.cli import replay_asked as asked
from sipguard.cli.results import write_whole
from sipguard.manage.config import Problem, Settings, SettingsError

if TYPE_CHECKING:
    from sipguard.lab.capture.files import Input
    from sipguard.lab.condition import Condition
    from sipguard.lab.feed import CaptureOptions, Fed
    from sipguard.lab.study import Study

EXAMPLE = "Example: sipguard replay trunk.pcapng --to 192.0.2.10:5060 --lc 100,200,400 --html report.html --fail-if 'dropped>0'"
#: Writes a row.
_Rows = Callable[[Iterable[object]], None]
_SEVERAL = "; several with commas are compared side by side"
_LAW, _INPUT, _OUTPUT = options.LAW, options.CAPTURES, "Output"


def _several(text: str) -> object:
    return typer.Option(help=text, metavar="VALUE[,…]", rich_help_panel=_LAW)


Lc = Annotated[str | None, _several(options.of_term("LC", _SEVERAL))]
Lcdm = Annotated[str | None, _several(options.of_term("LCDM", _SEVERAL))]
Lcps = Annotated[str | None, _several(options.of_term("LCPS", _SEVERAL))]
Lrc = Annotated[str | None, _several(options.of_term("LRC", _SEVERAL))]
Pc = Annotated[str | None, _several(options.of_term("PC", _SEVERAL))]
Tr = Annotated[str | None, _several(options.of_term("TR", _SEVERAL))]
Shed = Annotated[
    str | None, _several(f"all (everything sheddable) or excess (only what is beyond LC){_SEVERAL}. (default: all)")
]


def register(app: typer.Typer) -> None:
    """Make it a command of `app`."""
    app.command("replay", epilog=EXAMPLE)(replay)


def replay(
    files: Annotated[
        list[str],
        typer.Argument(
            help="pcap, pcapng, CSV (time_ms,method[,count]) or JSONL, plain or in gzip or zstd; - is standard input.",
            metavar="FILE…",
        ),
    ],
    ticks: Annotated[
        str | None,
        typer.Option(help="Write time_ms,requests,rps,state, a row per cycle; - is standard output.", metavar="CSV"),
    ] = None,
    verdicts: Annotated[
        str | None,
        typer.Option(
            help="Write time_ms,method,allow,reject,drop, a row per request or input row; - is standard output.",
            metavar="CSV",
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(help="Close every window that ends by then. (captures: the last packet's time)", metavar="MS"),
    ] = None,
    json_file: Annotated[
        str | None,
        typer.Option(
            "--json",
            help="Write the result for machines; - is standard output.",
            rich_help_panel=_OUTPUT,
            metavar="FILE",
        ),
    ] = None,
    html: Annotated[
        str | None, typer.Option(help="Write a report in one file.", rich_help_panel=_OUTPUT, metavar="FILE")
    ] = None,
    picture: Annotated[
        str | None,
        typer.Option(help="Draw the run, as .png or .svg.", rich_help_panel=_OUTPUT, metavar="FILE"),
    ] = None,
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            help="Exit 1 when it holds for the first set of parameters, as 'refused>0'; may be repeated.",
            rich_help_panel=_OUTPUT,
            metavar="CONDITION",
        ),
    ] = None,
    ports: options.Ports = None,
    to: options.To = None,
    at_guard: options.AtGuard = False,
    origin: Annotated[
        str,
        typer.Option(
            help="Where windows and seconds begin: the first packet, its whole second, a Unix time.",
            rich_help_panel=_INPUT,
            metavar="first|second|TIME",
        ),
    ] = "first",
    config: options.Config = None,
    lc: Lc = None,
    lcdm: Lcdm = None,
    lcps: Lcps = None,
    lrc: Lrc = None,
    pc: Pc = None,
    tr: Tr = None,
    shed: Shed = None,
    shadow: options.Shadow = None,
    refuse_methods: options.RefuseMethods = None,
    drop_methods: options.DropMethods = None,
) -> None:
    """Feed recorded traffic to the law: what it would have refused and dropped, when, and of whom.

    The requests are those of the recording: clients that would have given up or come again are not in it. A damaged capture
    is used as far as it can be read, and the place told. The first row of events that cannot be used ends it with its line
    number (exit 2); what came before stands in the files.
    """
    outputs = asked.Outputs(ticks, verdicts, json_file, html, picture)
    law = {"lc": lc, "lcdm": lcdm, "lcps": lcps, "lrc": lrc, "pc": pc, "tr": tr, "shed": shed}
    fixed = {
        "shadow": shadow,
        "refuse_methods": options.names(refuse_methods),
        "drop_methods": options.names(drop_methods),
    }
    settings = asked.sets(config, law, fixed)
    reading = asked.reading(settings[0], options.names(ports), options.names(to), at_guard, origin)
    until_ns, conditions = asked.until(until), asked.conditions(fail_if or [])
    asked.check_files(files, outputs)
    fed = _run(files, settings, reading, until_ns, outputs)
    code = _tell(fed, outputs, conditions, settings)
    if code:
        raise typer.Exit(code)


# -- the run -----------------------------------------------------------------------------------------------------------


def _run(
    files: Sequence[str],
    settings: Sequence[Settings],
    reading: CaptureOptions,
    until_ns: int | None,
    outputs: asked.Outputs,
) -> Fed:
    """Read everything; rows are written as they come, and stay when it is broken off."""
    from sipguard.lab.capture.records import CaptureError
    from sipguard.lab.feed import feed
    from sipguard.lab.progress import progress
    from sipguard.lab.replay import RowError

    try:
        inputs = [_input(name) for name in files]
        sizes = [each.size for each in inputs]
        total = None if None in sizes else sum(filter(None, sizes))
        with ExitStack() as opened:
            rows = [
                _writer(key, name, opened) for key, name in (("ticks", outputs.ticks), ("verdicts", outputs.verdicts))
            ]
            # A bar among rows on the same terminal would spoil both.
            told = None if outputs.rows_on_terminal else opened.enter_context(progress(total, "reading"))
            return feed(inputs, _study_maker(settings, *rows), reading, until_ns, told)
    except (CaptureError, RowError) as error:
        say.error(str(error))
        raise typer.Exit(2) from None


def _study_maker(settings: Sequence[Settings], ticks: _Rows | None, verdicts: _Rows | None) -> Callable[[int], Study]:
    """What makes the study, with the writers at its hooks."""
    from sipguard.lab.replay import TICK_COLUMNS, VERDICT_COLUMNS, ms_text, tick_row
    from sipguard.lab.study import Study

    if ticks is not None:
        ticks(TICK_COLUMNS)
    if verdicts is not None:
        verdicts(VERDICT_COLUMNS)

    def make(origin_ns: int) -> Study:
        study = Study([(each.parameters, each.policy) for each in settings], origin_ns)
        if ticks is not None:
            study.main.on_cycle = lambda cycle: ticks(tick_row(cycle))
        if verdicts is not None:
            study.on_verdict = lambda at, *rest: verdicts((at if isinstance(at, str) else ms_text(at), *rest))
        return study

    return make


def _writer(key: str, name: str | None, opened: ExitStack) -> _Rows | None:
    if name is None:
        return None
    writer = csv.writer(opened.enter_context(_writing(key, name)), lineterminator="\n")

    def write(row: Iterable[object]) -> None:
        writer.writerow(row)

    return write


def _input(name: str) -> Input:
    from sipguard.lab.capture.files import Input

    try:
        return Input(name)
    except OSError as error:
        allowed = f"a file that can be read ({error.strerror}); nothing was read"
        raise SettingsError((Problem("input", name, allowed),)) from None


def _writing(key: str, name: str) -> AbstractContextManager[TextIO]:
    if name == "-":
        return nullcontext(sys.stdout)
    try:
        return Path(name).open("w", encoding="utf-8", newline="")
    except OSError as error:
        raise _unwritable(key, name, error) from None


def _unwritable(key: str, name: str, error: OSError) -> SettingsError:
    return SettingsError((Problem(key, name, f"a file that can be written ({error.strerror})", by_flag=True),))


# -- the result --------------------------------------------------------------------------------------------------------


def _tell(fed: Fed, outputs: asked.Outputs, conditions: Sequence[Condition], settings: Sequence[Settings]) -> int:
    """Everything that is told at the end; the exit code."""
    from sipguard.lab.outcome import metrics_of

    remarks = _remarks(fed, settings, rows=outputs.ticks is not None or outputs.verdicts is not None)
    for text in (*fed.damages, *remarks):
        say.warning(text)
    try:
        # First what was asked for by name: the summary's reader may go away.
        done = _leave(fed, outputs, remarks)
    finally:
        if outputs.summary:
            _print_summary(fed)
    code = 0 if done else 2
    values = metrics_of(fed.study.main, len(fed.damages))
    for condition in conditions:
        if condition.holds(values):
            say.failed(f"{condition.text} ({condition.metric} is {_number(values[condition.metric])})")
            code = code or 1
    return code


def _remarks(fed: Fed, settings: Sequence[Settings], *, rows: bool) -> list[str]:
    """What is no damage and still to be known: that nothing was judged, or otherwise than a guard would have."""
    found = (
        [] if fed.study.main.requests else [f"no SIP request in {', '.join(_some(fed.about['inputs']))}: {fed.instead}"]
    )
    if not rows:
        # Each once, in the order of the sets. Whoever asked for rows compares them with the formula itself.
        found += dict.fromkeys(text for each in settings for text in each.parameters.warnings())
    if settings[0].transactions == "one_verdict":
        found.append(
            "transactions = one_verdict: replay judges each copy by the state it meets; a guard with it would not"
        )
    if settings[0].stream_drop == "reject":
        found.append(
            "stream_drop = reject: what came on a stream and is told as dropped here, a guard with it answers 503"
        )
    return found


def _leave(fed: Fed, outputs: asked.Outputs, remarks: Sequence[str]) -> bool:
    """The result in files; whether all of them were to be had."""
    from sipguard.lab.html import page, picture
    from sipguard.lab.outcome import document
    from sipguard.lab.plots import PlotError

    title = "replay of " + ", ".join(Path(name).name for name in _some(fed.about["inputs"]))
    done = True
    if outputs.json is not None:
        text = json.dumps(document(fed.study, fed.about, fed.damages, remarks), indent=1) + "\n"
        _write("json", outputs.json, text.encode("ascii"))
    if outputs.picture is not None:
        try:
            _write("picture", outputs.picture, picture(fed.study.main, Path(outputs.picture).suffix, title))
        except PlotError as error:
            say.error(f"--picture: {error}")
            done = False
    if outputs.html is not None:
        _write("html", outputs.html, page(fed.study, title, fed.facts, fed.damages, remarks).encode("utf-8"))
    return done


def _write(key: str, name: str, content: bytes) -> None:
    if name == "-":
        sys.stdout.write(content.decode("ascii"))
        return
    try:
        write_whole(name, content)
    except OSError as error:
        raise _unwritable(key, name, error) from None


def _number(value: float) -> str:
    """A metric as a person compares it with a limit: counts whole, the rest to three decimals."""
    return str(int(value)) if value == int(value) else f"{value:.3f}"


def _some(names: Sequence[str]) -> Iterator[str]:
    yield from names[:3]
    if len(names) > 3:
        yield f"… ({len(names)} files)"


def _print_summary(fed: Fed) -> None:
    from rich.console import Console

    from sipguard.lab.tables import print_study

    # What is printed holds names from outside: no markup, no emoji by their names.
    console = Console(markup=False, emoji=False)
    for name, value in fed.facts[1:]:
        console.print(f"{name}: {value}", highlight=False)
    print_study(fed.study, console)
