"""`sipguard tune`: parameters for a load, searched for, with reasons and a ready configuration."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from sipguard.cli import options, replay_asked, results, say
from sipguard.cli.loading import loading
from sipguard.cli.steps import steps
from sipguard.manage.config import Problem, Settings, SettingsError, load_settings
from sipguard.shown import cut, shown

if TYPE_CHECKING:
    from sipguard.lab.feed import CaptureOptions
    from sipguard.lab.tune.figures import Load, Objective
    from sipguard.lab.tune.report import Advice
    from sipguard.lab.tune.search import Bench

EXAMPLE = "Example: sipguard tune --capture trunk.pcapng --to 192.0.2.10:5060 --capacity 800/s --out tuned"
#: What a set-up without a package is told, by the package.
NEEDS = {
    "numpy": "tune needs numpy: pip install 'sipguard[lab]'",
    "optuna": "tune needs optuna: pip install 'sipguard[tune]'",
    "distributed": "--dask needs dask.distributed: pip install 'sipguard[tune]'",
}
#: Trials where none are asked for: one of a capture costs milliseconds, one of a scenario a whole simulation.
TRIALS = {"capture": 300, "scenario": 60}
#: What is written into --out.
OUTPUTS = ("sipguard.toml", "tune.json", "tune.png")
MAX_TRIALS, MAX_JOBS = 100_000, 256

_LAW = "The law (a value given is kept, not searched for)"


def register(app: typer.Typer) -> None:
    """Make it a command of `app`."""
    app.command("tune", epilog=EXAMPLE)(tune)


def _pinned(what: str) -> object:
    return typer.Option(help=f"{what}.", rich_help_panel=_LAW)


def tune(
    capture: Annotated[
        list[str] | None,
        typer.Option(help="pcap, pcapng, CSV or JSONL, as for replay; may be repeated.", metavar="FILE"),
    ] = None,
    scenario: Annotated[
        str | None, typer.Option(help="A storm, as for simulate: by name, or a TOML file.", metavar="NAME|FILE")
    ] = None,
    capacity: Annotated[
        str | None,
        typer.Option(help="What the protected servers can do, as 800/s. (scenario: its own)", metavar="RATE"),
    ] = None,
    objective: Annotated[
        str, typer.Option(help="What to be the best in: goodput, refused or recovery.", metavar="OBJECTIVE")
    ] = "goodput",
    trials: Annotated[
        int | None, typer.Option(help="How many sets to try. (default: 300; scenario: 60)", min=1, max=MAX_TRIALS)
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed, the same advice.", min=0, max=2**32 - 1)] = 1,
    jobs: Annotated[int | None, typer.Option(help="Processes here. (default: one a core)", min=1, max=MAX_JOBS)] = None,
    dask: Annotated[
        str | None, typer.Option(help="Try them on a dask.distributed cluster.", metavar="tcp://HOST:PORT")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write sipguard.toml, tune.json and tune.png there.", metavar="DIRECTORY")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON in place of the tables.")] = False,
    ports: options.Ports = None,
    to: options.To = None,
    at_guard: options.AtGuard = False,
    lc: Annotated[int | None, _pinned("Level Critical, 1 … 10000 requests/s")] = None,
    lcdm: Annotated[str | None, _pinned("Level Critical Drop Mode")] = None,
    lcps: Annotated[int | None, _pinned("Limit Critical Per Second, 1 … 10000 requests/s of growth")] = None,
    lrc: Annotated[int | None, _pinned("Lockdown Relax Coefficient, 1 … 100 cycles of TR")] = None,
    pc: Annotated[int | None, _pinned("Patience Time Coefficient, 1 … 10000 cycles of TR")] = None,
    tr: Annotated[int | None, _pinned("Time Request, 100 … 1000 ms")] = None,
    shed: Annotated[str | None, _pinned("all or excess")] = None,
    refuse_methods: options.RefuseMethods = None,
    drop_methods: options.DropMethods = None,
) -> None:
    """Search LC, LCPS, LRC, PC, TR, LCDM and shed for a load: the Pareto front, one set recommended and why, a ready TOML.

    A capture is an open loop: its clients do not answer to the guard, the server behind it is a capacity and no more. A
    scenario is a closed one: simulated clients repeat, redial, give up.
    """
    law = {"lc": lc, "lcdm": lcdm, "lcps": lcps, "lrc": lrc, "pc": pc, "tr": tr}
    methods = {"refuse_methods": options.names(refuse_methods), "drop_methods": options.names(drop_methods)}
    settings = load_settings(None, {**law, "shed": shed, **methods})
    pinned = {key.upper(): value for key, value in law.items() if value is not None}
    pinned |= {"shed": shed} if shed is not None else {}
    for text in settings.parameters.warnings():
        say.warning(text)
    with _needs():
        _load(dask)
        asked = _checked(capture, scenario, capacity, objective)
        _fitting(capture, {"ports": ports, "to": to, "at-guard": at_guard or None}, jobs if dask is not None else None)
        if out is not None:
            results.make_directory(out, OUTPUTS)
        if capture:
            reading = replay_asked.reading(settings, options.names(ports), options.names(to), at_guard, "first")
            load = _capture_load(capture, settings, reading, asked.capacity or 0.0)
        else:
            load = _scenario_load(scenario or "", asked.capacity, methods, seed)
        advice = _search(load, settings, pinned, asked.objective, trials or TRIALS[load.kind], seed, jobs, dask)
    _tell(advice, out, as_json)


class _Asked(NamedTuple):
    """What the flags mean, checked."""

    capacity: float | None
    objective: Objective


def _checked(capture: Sequence[str] | None, scenario: str | None, capacity: str | None, objective: str) -> _Asked:
    """Everything wrong with these flags at once."""
    from sipguard.lab.tune.figures import Objective

    if not capture and scenario is None:
        say.error(f"no load to tune for: allowed is --capture FILE with --capacity, or --scenario with {_scenarios()}")
        raise typer.Exit(2)
    problems: list[Problem] = []
    if capture and scenario is not None:
        problems.append(Problem("scenario", scenario, "--capture or --scenario, not both", by_flag=True))
    value = options.capacity_of(capacity)
    if (capacity is not None or capture) and value is None:
        problems.append(Problem("capacity", capacity, options.CAPACITY_FORM, by_flag=True))
    if objective not in list(Objective):
        problems.append(Problem("objective", objective, "one of " + ", ".join(Objective), by_flag=True))
    if problems:
        raise SettingsError(tuple(problems))
    return _Asked(value, Objective(objective))


def _fitting(capture: Sequence[str] | None, of_captures: Mapping[str, object], jobs: int | None) -> None:
    """Flags that would do nothing beside the others are mistakes. jobs: as given together with --dask."""
    problems = []
    if not capture:
        allowed = "given with --capture: a scenario has no packets"
        problems = [Problem(key, value, allowed, by_flag=True) for key, value in of_captures.items() if value]
    elif capture.count("-") > 1:
        problems.append(Problem("capture", "-", "standard input once", by_flag=True))
    if jobs is not None:
        problems.append(Problem("jobs", jobs, "given without --dask: the cluster's workers do the work", by_flag=True))
    if problems:
        raise SettingsError(tuple(problems))


def _load(dask: str | None) -> None:
    """What the search needs, before anything is begun: it may be missing, and an interrupt is simple here."""
    with loading():
        import optuna  # noqa: F401

        import sipguard.lab.sim.engine
        import sipguard.lab.tune.tune  # noqa: F401

        if dask is not None:
            import distributed  # noqa: F401


def _scenarios() -> str:
    from sipguard.lab.sim.scenario_file import shipped

    return ", ".join(shipped()) + " or a TOML file"


# -- loads -------------------------------------------------------------------------------------------------------------


def _capture_load(files: Sequence[str], settings: Settings, reading: CaptureOptions, capacity: float) -> Load:
    from sipguard.lab.capture.files import Input
    from sipguard.lab.capture.records import CaptureError
    from sipguard.lab.feed import feed
    from sipguard.lab.progress import progress
    from sipguard.lab.replay import RowError
    from sipguard.lab.tune.capture_load import CaptureLoad
    from sipguard.lab.tune.recording import Recorder, RecordingError

    recorders: list[Recorder] = []

    def make(origin_ns: int) -> Recorder:
        recorders.append(Recorder(settings.policy, origin_ns))
        return recorders[-1]

    try:
        inputs = [Input(name) for name in files]
        sizes = [each.size for each in inputs]
        with progress(None if None in sizes else sum(filter(None, sizes)), "reading") as on_read:
            fed = feed(inputs, make, reading, None, on_read)
        recording = recorders[0].recording(fed.instead)
    except OSError as error:
        allowed = f"files that can be read ({error.strerror})"
        raise SettingsError((Problem("capture", error.filename or files[0], allowed, by_flag=True),)) from None
    except (CaptureError, RowError, RecordingError) as error:
        say.error(f"{', '.join(files)}: {error}" if isinstance(error, RecordingError) else str(error))
        raise typer.Exit(2) from None
    for damage in fed.damages:
        say.warning(damage)
    return CaptureLoad(recording, capacity, cut(shown(", ".join(Path(name).name for name in files))))


def _scenario_load(name: str, capacity: float | None, methods: Mapping[str, list[str] | None], seed: int) -> Load:
    from sipguard.lab.sim.problem import ScenarioError
    from sipguard.lab.sim.scenario_file import load, with_capacity, with_law
    from sipguard.lab.tune.scenario_load import ScenarioLoad

    try:
        storm = with_law(load(name), methods)
    except ScenarioError as error:
        raise SettingsError(error.problems) from None
    if capacity is not None:
        storm = with_capacity(storm, capacity)
    return ScenarioLoad(storm, seed)


# -- the search --------------------------------------------------------------------------------------------------------


def _search(
    load: Load,
    settings: Settings,
    pinned: Mapping[str, int | str],
    objective: Objective,
    trials: int,
    seed: int,
    jobs: int | None,
    dask: str | None,
) -> Advice:
    from sipguard.lab.tune.cluster import ClusterError
    from sipguard.lab.tune.tune import tune as search

    with ExitStack() as opened:
        try:
            bench: Bench = opened.enter_context(_bench(load, jobs, dask))
            told = opened.enter_context(steps("trying"))
            return search(
                load,
                bench,
                objective=objective,
                trials=trials,
                seed=seed,
                pinned=pinned,
                policy=settings.policy,
                on_progress=told,
            )
        except ClusterError as error:
            say.error(f"--dask: {error}")
            raise typer.Exit(2) from None
        except BrokenProcessPool:
            say.error("a process died while trying a set (out of memory?); --jobs 1 needs the least")
            raise typer.Exit(2) from None


@contextmanager
def _bench(load: Load, jobs: int | None, dask: str | None) -> Iterator[Bench]:
    if dask is None:
        from sipguard.lab.tune.local import LocalBench

        with LocalBench(load, jobs or os.cpu_count() or 1) as local:
            yield local
        return
    from sipguard.lab.tune.cluster import ClusterBench

    with ClusterBench(load, dask) as cluster:
        yield cluster


@contextmanager
def _needs() -> Iterator[None]:
    """A package that is not installed: which command brings it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in NEEDS:
            raise
        say.error(NEEDS[error.name])
        raise typer.Exit(2) from None


# -- the result --------------------------------------------------------------------------------------------------------


def _tell(advice: Advice, out: Path | None, as_json: bool) -> None:
    from sipguard.lab.tune.report import document, print_advice, toml

    text, result = toml(advice), document(advice)
    written = [] if out is None else _write(out, advice, text, json.dumps(result, indent=1) + "\n")
    if as_json:
        typer.echo(json.dumps(result))
        return
    from rich.console import Console

    print_advice(advice, Console(markup=False, emoji=False))
    if out is None:
        typer.echo(text, nl=False)
    for path in written:
        typer.echo(str(path))


def _write(out: Path, advice: Advice, toml: str, document: str) -> list[Path]:
    """The files; without matplotlib the picture is left out and said so."""
    from sipguard.lab.plots import PlotError
    from sipguard.lab.tune.picture import draw

    contents = {"sipguard.toml": toml.encode(), "tune.json": document.encode()}
    try:
        contents["tune.png"] = draw(advice)
    except PlotError as error:
        say.warning(str(error))
    written = []
    for name, content in contents.items():
        results.write_whole(str(out / name), content)
        written.append(out / name)
    return written
