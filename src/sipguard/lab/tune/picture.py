"""Advice as one picture: what the recommended set does to the load, and where it stands among all that was tried."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from typing import TYPE_CHECKING

from sipguard.lab.plots import INK, LIMIT, RUN_HEIGHTS, new_figure, paint_run
from sipguard.lab.tune.figures import Load, Tried
from sipguard.lab.tune.report import Advice

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: More changes than this would be one colour: then the states are drawn second by second.
MAX_CHANGES = 400
#: Storms that are marked one by one.
MAX_STORMS = 50
_CAPACITY, _OTHERS = "#0b3d91", "#9aa5ae"


def draw(advice: Advice) -> bytes:
    """A PNG. Tries the recommended set once more. Raises PlotError when matplotlib is not installed."""
    load, recommended = advice.load, advice.choice.recommended
    shown = load.show(recommended.candidate)
    changes = shown.changes if len(shown.changes) <= MAX_CHANGES else shown.timeline.changes()
    figure = new_figure(f"{load.name}: the best for {advice.choice.objective} of {len(advice.tried)} tried", 9)
    ribbon, rates, tried = figure.subplots(3, 1, height_ratios=(*RUN_HEIGHTS, 9))
    ribbon.sharex(rates)
    law, shed = recommended.candidate.parameters, recommended.candidate.shed
    paint_run(ribbon, rates, shown.timeline.samples(), changes, law, shed=shed)
    _mark_load(rates, load)
    _paint_tried(figure, tried, advice)
    # Without the time and the library's version: the same advice gives the same bytes.
    file = BytesIO()
    figure.savefig(file, dpi=110, metadata={"Software": None})
    return file.getvalue()


# -- inside ------------------------------------------------------------------------------------------------------------


def _mark_load(rates: Axes, load: Load) -> None:
    rates.set_xlabel("time since the load's begin, s", color=INK)
    if load.kind == "capture":
        # A scenario's capacity is in units of work, which a request may need any number of.
        rates.axhline(
            load.capacity, color=_CAPACITY, linewidth=1.2, linestyle=":", label=f"capacity {load.capacity:g}/s"
        )
        rates.set_ylim(top=max(rates.get_ylim()[1], load.capacity * 1.12))
    edges_s = [at_s for storm in load.storms[:MAX_STORMS] for at_s in storm if at_s]
    for number, at_s in enumerate(edges_s):
        # Once in the legend.
        label = "a storm begins or ends" if number == 0 else None
        rates.axvline(at_s, color=LIMIT, linewidth=0.8, linestyle=(0, (4, 3)), label=label)
    rates.legend(loc="upper left", frameon=True, framealpha=0.92, edgecolor="none", fontsize=9)


def _paint_tried(figure: Figure, axes: Axes, advice: Advice) -> None:
    """Goodput over the share shed; recovery as colour along the front."""
    choice = advice.choice
    axes.set_title("what was tried", loc="left", fontsize=9, color="#5a6772")
    axes.plot(*_places(advice.tried), ".", color=_OTHERS, markersize=4, label="tried", zorder=2)
    front = axes.scatter(
        *_places(choice.front),
        c=[each.figures.recovery_s for each in choice.front],
        cmap="viridis_r",
        s=42,
        edgecolors=INK,
        linewidths=0.6,
        label="Pareto front",
        zorder=3,
    )
    bar = figure.colorbar(front, ax=axes, pad=0.01)
    bar.set_label("time to recover, s", color=INK, fontsize=9)
    axes.plot(
        *_places([choice.recommended]),
        "o",
        markersize=15,
        markerfacecolor="none",
        markeredgecolor=LIMIT,
        markeredgewidth=2,
        label="recommended",
        zorder=4,
    )
    axes.set_xlabel("requests refused or dropped, % of those offered", color=INK)
    axes.set_ylabel("goodput, %", color=INK)
    axes.grid(color="#d9dee2", linewidth=0.6)
    axes.tick_params(colors=INK)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.legend(loc="best", frameon=True, framealpha=0.92, edgecolor="none", fontsize=9)


def _places(several: Sequence[Tried]) -> tuple[list[float], list[float]]:
    return [100 * each.figures.shed for each in several], [100 * each.figures.goodput for each in several]
