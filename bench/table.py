"""The results as tables; the targets stand beside the figures, nothing is asserted."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from bench.field import Point, Side
from bench.results import Comparison, Cost, KernelDrop, Lateness, Results, Spread

_TR_MS = 100
_KERNEL_TARGET_PERCENT = 3
_ALLOCATOR = (
    "Kamailio: children=1, debug=0, its memory manager as packaged (qm, which searches long for a free block); "
    "-X fm: the same with its quick one."
)


def show(results: Results, console: Console) -> None:
    """Every table that has rows."""
    if results.saturation:
        console.print(_saturation(results.saturation))
        for found in results.saturation:
            if found.note:
                console.print(f"{found.title}: {found.note}", style="dim", highlight=False)
        console.print(_ALLOCATOR, style="dim", highlight=False)
    if results.paced:
        console.print(_paced(results.paced))
    if results.kernel:
        console.print(_kernel(results.kernel))
    lateness = _lateness(results)
    if lateness.row_count:
        console.print(lateness)
    if results.costs:
        console.print(_costs(results.costs))


def _saturation(comparisons: Sequence[Comparison]) -> Table:
    table = _table(
        "CPU µs per message at saturation: median (min–max) of the rounds",
        ("scenario", "guard", "Kamailio", "guard/Kamailio", "target", "Kamailio -X fm", "guard/-X fm", "offered"),
    )
    for found in comparisons:
        table.add_row(
            found.title,
            _us(found.points[Side.GUARD]),
            _us(found.points[Side.KAMAILIO]),
            _spread(found.ratio(Side.KAMAILIO), 2),
            f"≤ {found.target:.2f}" if found.target else "–",
            _us(found.points[Side.KAMAILIO_FM]),
            _spread(found.ratio(Side.KAMAILIO_FM), 2),
            "≥ 2 ×" if found.saturated else "[yellow]< 2 ×[/yellow]",
        )
    return table


def _paced(comparisons: Sequence[Comparison]) -> Table:
    table = _table(
        "CPU µs per message at steady rates",
        ("scenario", "guard", "Kamailio", "guard/Kamailio", "Kamailio -X fm", "guard/-X fm", "core % of the guard"),
    )
    for found in comparisons:
        table.add_row(
            found.title,
            _us(found.points[Side.GUARD]),
            _us(found.points[Side.KAMAILIO]),
            _spread(found.ratio(Side.KAMAILIO), 2),
            _us(found.points[Side.KAMAILIO_FM]),
            _spread(found.ratio(Side.KAMAILIO_FM), 2),
            _spread(Spread.of([point.core_percent for point in found.points[Side.GUARD]]), 1),
        )
    return table


def _kernel(rows: Sequence[KernelDrop]) -> Table:
    table = _table(
        "Silent drop by the kernel: the process under a flood at ten times LC",
        ("flood", "core % of the process", "target", "idle", "reached the process", "host softirq, core %"),
    )
    for row in rows:
        table.add_row(
            f"{row.offered_per_s:,}/s",
            _spread(Spread.of([point.core_percent for point in row.flood]), 2),
            f"≤ {_KERNEL_TARGET_PERCENT}",
            _spread(Spread.of([point.core_percent for point in row.idle]), 2),
            _spread(Spread.of([100 * point.done / max(1, point.offered) for point in row.flood]), 2) + " %",
            _spread(Spread.of([100 * point.host.softirq_ns / point.elapsed_ns for point in row.flood]), 1),
        )
    return table


def _lateness(results: Results) -> Table:
    table = _table(
        f"Evaluation lateness while loaded, ms, TR {_TR_MS}",
        ("load", "evaluations", "p50", "p99 of the worst round", "max", "target p99"),
    )
    rows: list[tuple[str, list[Lateness]]] = [(found.title, found.lateness) for found in results.saturation]
    rows += [(found.title, found.lateness) for found in results.paced]
    rows += [(f"kernel drop, {row.offered_per_s:,}/s", row.lateness) for row in results.kernel]
    for title, lates in rows:
        if lates:
            table.add_row(
                title,
                str(sum(late.cycles for late in lates)),
                f"{Spread.of([late.late_ms_p50 for late in lates]).middle:.2f}",
                f"{max(late.late_ms_p99 for late in lates):.2f}",
                f"{max(late.late_ms_max for late in lates):.2f}",
                f"< {_TR_MS / 10:g}",
            )
    return table


def _costs(costs: Sequence[Cost]) -> Table:
    table = _table("CPU µs per call, without sockets", ("call", "µs", "target"))
    for cost in costs:
        target = "–" if cost.target_us is None else f"≤ {cost.target_us:g}"
        table.add_row(cost.title, _spread(cost.us, 2), target)
    return table


def _table(title: str, columns: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column(columns[0])
    for column in columns[1:]:
        table.add_column(column, justify="right")
    return table


def _us(points: Sequence[Point]) -> str:
    return _spread(Spread.of([point.us_per_message for point in points]), 1)


def _spread(spread: Spread, digits: int) -> str:
    if spread.low == spread.high:
        return f"{spread.middle:.{digits}f}"
    return f"{spread.middle:.{digits}f} ({spread.low:.{digits}f}–{spread.high:.{digits}f})"
