"""A study's result in the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sipguard.core.levels import State
from sipguard.lab.course import Course
from sipguard.lab.outcome import metrics_of, setting, varied
from sipguard.lab.replay import ms_text
from sipguard.lab.shares import Share
from sipguard.lab.study import Study
from sipguard.shown import cut, duration, shown

#: Rows of a table; an input may hold any number.
MAX_SHOWN = 50
_DOES = {State.NORMAL: "served", State.AROUND: "503", State.CRITICAL: "silent drop"}


def print_study(study: Study, console: Console) -> None:
    """Changes, totals, methods, sources, incidents of the first set; then all sets side by side."""
    main = study.main
    _print_changes(main, console)
    _print_totals(main, console)
    _print_shares("by method", main.methods.top(), console)
    assert main.sources is not None
    named = [share for share in main.sources.top() if share.name]
    _print_shares("by source" if main.sources.exact else "by source (approximate: very many sources)", named, console)
    _print_incidents(main, console)
    if len(study.courses) > 1:
        console.print(what_if(study.courses))


def what_if(courses: Sequence[Course]) -> Table:
    """A row per set of parameters: what differs, and what came of it (LCPS: rejected by it; inc.: incidents; peak: rps)."""
    names = varied(courses)
    table = Table(title="what if", box=box.SIMPLE_HEAD, title_justify="left", padding=(0, 0, 0, 1), pad_edge=False)
    results = ("allow", "reject", "drop", "LCPS", "inc.", "peak", "503 s", "drop s")
    for column in (*names, *results):
        table.add_column(column, justify="right", no_wrap=True)
    for course in courses:
        values = metrics_of(course)
        counts = (values[name] for name in ("allowed", "refused", "dropped", "lcps_refused", "incidents", "peak_rps"))
        table.add_row(
            *(str(setting(course, name)) for name in names),
            *(str(int(value)) for value in counts),
            f"{values['around_s']:.1f}",
            f"{values['critical_s']:.1f}",
        )
    return table


def _print_changes(course: Course, console: Console) -> None:
    table = Table("at ms", "state", "rps", "patience run", "relax run")
    table.add_row("0", "normal", "", "", "")
    for change in course.changes[:MAX_SHOWN]:
        runs = (str(change.patience_run), str(change.relax_run))
        table.add_row(ms_text(change.time_ns), change.after.value, str(change.rps), *runs)
    console.print(table)
    if course.changes_total > MAX_SHOWN:
        console.print(f"(the first {MAX_SHOWN} of {course.changes_total} changes; --ticks writes every cycle)")


def _print_totals(course: Course, console: Console) -> None:
    console.print(f"at the end: {course.state.value}")
    allowed, refused, dropped = course.verdicts
    if course.policy.enforce:
        console.print(f"allow {allowed}, reject {refused}, drop {dropped}")
    else:
        console.print(f"allow {allowed + refused + dropped}, reject 0, drop 0")
        console.print(f"shadow: would reject {refused}, would drop {dropped}")
    if course.lcps_refused:
        console.print(f"of the rejected, by LCPS in the normal state: {course.lcps_refused}")
    console.print(f"peak {course.peak_rps} rps; " + ", ".join(_durations(course)), highlight=False, soft_wrap=True)


def _durations(course: Course) -> Iterable[str]:
    return (f"{state.value} {duration(course.state_ns[state])}" for state in State)


def _print_shares(title: str, shares: Sequence[Share], console: Console) -> None:
    if not shares:
        return
    table = Table(title, "requests", "allow", "reject", "drop", box=box.SIMPLE_HEAD)
    for column in table.columns[1:]:
        column.justify = "right"
    for share in shares[:MAX_SHOWN]:
        counts = (share.requests, share.allow, share.reject, share.drop)
        # A source may be any text, a method of any length: never markup, never an order to the terminal.
        table.add_row(Text(cut(shown(share.name))), *(f"{count:,}" for count in counts))
    console.print(table)


def _print_incidents(course: Course, console: Console) -> None:
    incidents = course.incidents.all()
    if not incidents:
        return
    table = Table("incident from s", "to s", "peak rps", "refused", "dropped", "worst", box=box.SIMPLE_HEAD)
    for each in incidents[:MAX_SHOWN]:
        end = "(goes on)" if each.end_ns is None else f"{each.end_ns / 1e9:.1f}"
        counts = (f"{each.peak_rps:,}", f"{each.refused:,}", f"{each.dropped:,}")
        table.add_row(f"{each.start_ns / 1e9:.1f}", end, *counts, _DOES[each.worst])
    console.print(table)
    if course.incidents.total > MAX_SHOWN:
        console.print(f"(the first {MAX_SHOWN} of {course.incidents.total} incidents)")
