"""`sipguard simulate`: a storm on virtual time, with and without the guard."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sipguard.cli import options, results, say
from sipguard.cli.loading import loading
from sipguard.cli.steps import Told, steps
from sipguard.manage.config import Problem, SettingsError

if TYPE_CHECKING:
    from sipguard.lab.sim.compare import Variant
    from sipguard.lab.sim.scenario import Scenario

#: Where a set-up without numpy is told to look.
NEEDS_LAB = "simulate needs numpy: pip install 'sipguard[lab]'"
#: What is written into --out, by the end of its name.
KINDS = ("png", "html", "json")
#: Keys of problems that came by a flag.
FLAGS = ("compare", "lc", "lcdm", "lcps", "lrc", "pc", "tr", "shed", "shadow", "refuse_methods", "drop_methods")


def register(app: typer.Typer) -> None:
    """Make it a command of `app`."""
    app.command("simulate", epilog="Example: sipguard simulate steady-2x --compare none,all,excess --out out")(simulate)


def simulate(
    scenario: Annotated[
        str | None, typer.Argument(help="A shipped scenario by name, or a TOML file.", metavar="NAME|FILE")
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="The shipped scenarios and what they show.")] = False,
    compare: Annotated[
        str | None,
        typer.Option(help="Policies side by side: none, all, excess, with commas.", metavar="POLICIES"),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of all random numbers: the same seed, the same run.", min=0)] = 1,
    capacity: Annotated[
        str | None,
        typer.Option(help="What its servers can do together, as 800/s. (default: the scenario's own)", metavar="RATE"),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write NAME.png, NAME.html and NAME.json there.", metavar="DIRECTORY")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON in place of the table.")] = False,
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
    """Clients with their timers, redials and refreshes, servers that drown, the guard between them; the loop is closed.

    The flags of the law win over the scenario's own settings, which also are their defaults, not those shown here.
    """
    law = {
        **dict(zip(("lc", "lcdm", "lcps", "lrc", "pc", "tr"), (lc, lcdm, lcps, lrc, pc, tr), strict=True)),
        "shed": shed,
        "shadow": shadow,
        "refuse_methods": options.names(refuse_methods),
        "drop_methods": options.names(drop_methods),
    }
    try:
        with loading():
            from sipguard.lab.sim import compare as side_by_side
            from sipguard.lab.sim import scenario_file
    except ModuleNotFoundError as error:
        if error.name != "numpy":
            raise
        say.error(NEEDS_LAB)
        raise typer.Exit(2) from None
    if list_:
        _print_list()
        return
    with _as_settings_errors():
        if scenario is None:
            raise SettingsError((Problem("scenario", None, "a name (--list shows them) or a TOML file"),))
        storm = scenario_file.with_law(scenario_file.load(scenario), law)
        if capacity is not None:
            able = options.capacity_of(capacity)
            if able is None:
                raise SettingsError((Problem("capacity", capacity, options.CAPACITY_FORM, by_flag=True),))
            storm = scenario_file.with_capacity(storm, able)
        names = [side_by_side.policy_of(storm)] if compare is None else side_by_side.policies(compare)
    if storm.guard is not None and any(name != side_by_side.NO_GUARD for name in names):
        for text in storm.guard.parameters.warnings():
            say.warning(text)
    if out is not None:
        results.make_directory(out, [f"{storm.name}.{kind}" for kind in KINDS])
    with steps("virtual seconds") as told:
        variants = side_by_side.compare(storm, names, seed, _counted(names, storm.duration_s, told))
    written: list[Path] = []
    try:
        # First what was asked for by name: the table's reader may go away. A full disk costs no table.
        written = [] if out is None else _write(out, storm, variants, seed)
    finally:
        _tell(storm, variants, seed, written, as_json=as_json)


@contextmanager
def _as_settings_errors() -> Iterator[None]:
    """A scenario's problems as every command tells its own."""
    from sipguard.lab.sim.problem import ScenarioError

    try:
        yield
    except ScenarioError as error:
        problems = (problem._replace(by_flag=problem.key in FLAGS) for problem in error.problems)
        raise SettingsError(tuple(problems)) from None


def _counted(policies: Sequence[str], duration_s: float, told: Told) -> Callable[[str, float], None]:
    """One count for runs one after the other."""
    return lambda policy, at_s: told(policies.index(policy) * duration_s + at_s, len(policies) * duration_s)


def _write(out: Path, scenario: Scenario, variants: list[Variant], seed: int) -> list[Path]:
    """The files; without matplotlib the picture is left out and said so."""
    from sipguard.lab.plots import PlotError
    from sipguard.lab.sim.document import document
    from sipguard.lab.sim.picture import draw
    from sipguard.lab.sim.report import html

    png: bytes | None = None
    try:
        png = draw(scenario, variants)
    except PlotError as error:
        say.warning(str(error))
    page, data = html(scenario, variants, seed, png), json.dumps(document(scenario, variants, seed))
    contents = {"png": png, "html": page.encode(), "json": data.encode()}
    written = []
    for kind, content in contents.items():
        if content is not None:
            path = out / f"{scenario.name}.{kind}"
            results.write_whole(str(path), content)
            written.append(path)
    return written


def _tell(scenario: Scenario, variants: list[Variant], seed: int, written: list[Path], *, as_json: bool) -> None:
    if as_json:
        from sipguard.lab.sim.document import document

        typer.echo(json.dumps(document(scenario, variants, seed)))
        return
    _print_table(scenario, variants, seed)
    for path in written:
        typer.echo(str(path))


def _print_list() -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from sipguard.lab.sim import scenario_file

    table = Table("scenario", "what it shows", show_lines=True)
    for name in scenario_file.shipped():
        storm = scenario_file.load(name)
        table.add_row(name, Text.assemble((storm.title, "bold"), "\n", storm.about))
    Console().print(table)


def _print_table(scenario: Scenario, variants: list[Variant], seed: int) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from sipguard.lab.sim.report import caption, cells

    table = Table("", *(variant.policy for variant in variants), title=Text(scenario.title), title_justify="left")
    for column in table.columns[1:]:
        column.justify = "right"
    for row in cells(variants):
        table.add_row(*row)
    console = Console(markup=False, emoji=False)
    console.print(table)
    console.print(caption(scenario, variants, seed), highlight=False)
