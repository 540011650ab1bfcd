"""Policies side by side as one picture: what was offered and what became of it, goodput, delay, the states as a ribbon."""

from __future__ import annotations

from io import BytesIO
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from sipguard.core.levels import State
from sipguard.lab.plots import PlotError, plain
from sipguard.lab.sim.arrays import Floats, Ints
from sipguard.lab.sim.compare import Variant
from sipguard.lab.sim.measure import BIN_NS, Count
from sipguard.lab.sim.scenario import Scenario
from sipguard.lab.sim.summary import per_second

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SECOND_NS = 1_000_000_000
_STATES = {State.NORMAL: "#cfe8d5", State.AROUND: "#fbd9a0", State.CRITICAL: "#f2b3ad"}
_ADMITTED, _REFUSED, _DROPPED, _INK, _LIMIT, _GOOD = "#2f8f83", "#eea23c", "#b5463f", "#22303c", "#5b2a86", "#0b3d91"
_MEANS = {
    "none": "no guard",
    "all": "guard, shed = all: everything sheddable",
    "excess": "guard, shed = excess: only what is beyond LC",
}


def draw(scenario: Scenario, variants: list[Variant]) -> bytes:
    """A PNG of the comparison. Raises PlotError when matplotlib is not installed."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise PlotError("no picture without matplotlib: pip install 'sipguard[lab]'") from error
    figure = Figure(figsize=(11, 2.0 + 3.1 * len(variants)), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    figure.suptitle(plain(scenario.title), x=0.01, ha="left", fontsize=13, fontweight="bold", color=_INK)
    _fill(figure, scenario, variants)
    file = BytesIO()
    # Without the time and the library's version: the same run gives the same bytes.
    figure.savefig(file, dpi=100, metadata={"Software": None})
    return file.getvalue()


# -- inside ------------------------------------------------------------------------------------------------------------


def _fill(figure: Figure, scenario: Scenario, variants: list[Variant]) -> None:
    heights = [part for _ in variants for part in (0.5, 5.0, 3.0)]
    axes = figure.subplots(3 * len(variants), 1, sharex=True, height_ratios=heights, squeeze=False)[:, 0]
    goodput_top = max(1.0, *(float(per_second(v.run.measure.bins[Count.WANTED]).max(initial=0)) for v in variants))
    for i, variant in enumerate(variants):
        ribbon, rates, served = axes[3 * i : 3 * i + 3]
        _draw_ribbon(ribbon, variant, scenario)
        _draw_rates(rates, variant)
        _draw_served(served, variant, goodput_top)
        for part in (rates, served):
            _mark_storm(part, scenario)
            part.grid(axis="y", color="#d9dee2", linewidth=0.6)
            part.tick_params(colors=_INK, labelsize=8)
            for side in ("top", "right"):
                part.spines[side].set_visible(False)
    axes[-1].set_xlim(0, scenario.duration_s)
    axes[-1].set_xlabel("virtual time, s", color=_INK)


def _draw_ribbon(ribbon: Axes, variant: Variant, scenario: Scenario) -> None:
    changes = variant.run.changes[0]
    edges_s = [0.0, *(change.time_ns / _SECOND_NS for change in changes), scenario.duration_s]
    states = [State.NORMAL, *(change.after for change in changes)]
    for state, (start_s, end_s) in zip(states, pairwise(edges_s), strict=True):
        color = _STATES[state] if variant.guarded else "#e6e9ec"
        ribbon.axvspan(start_s, end_s, color=color, linewidth=0)
    ribbon.set_yticks([])
    ribbon.tick_params(bottom=False, labelbottom=False)
    servers = scenario.servers
    first = f" (states: before {servers[0].name})" if variant.guarded and len(servers) > 1 else ""
    ribbon.set_title(_MEANS[variant.policy] + first, loc="left", fontsize=10, fontweight="bold", color=_INK)
    for side in ("top", "right", "left", "bottom"):
        ribbon.spines[side].set_visible(False)


def _draw_rates(rates: Axes, variant: Variant) -> None:
    bins = variant.run.measure.bins
    base = np.zeros(len(per_second(bins[Count.ALLOWED])))
    times_s = np.arange(len(base) + 1)
    layers = (
        ("admitted", _ADMITTED, Count.ALLOWED),
        ("refused with 503", _REFUSED, Count.REJECTED),
        ("dropped silently", _DROPPED, Count.DROPPED),
    )
    for label, color, count in layers:
        upper = base + per_second(bins[count])
        if variant.guarded or count is Count.ALLOWED:
            rates.fill_between(
                times_s, _closed(base), _closed(upper), step="post", color=color, alpha=0.85, linewidth=0, label=label
            )
        base = upper
    fresh = per_second(bins[Count.FRESH])
    rates.step(times_s, _closed(fresh), where="post", color=_INK, linewidth=1.0, label="without retransmissions")
    guard = variant.run.scenario.guard
    if guard is not None:
        rates.axhline(
            guard.parameters.LC, color=_LIMIT, linewidth=1.2, linestyle="--", label=f"LC {guard.parameters.LC}/s"
        )
    rates.set_ylabel("messages/s", fontsize=8, color=_INK)
    rates.set_ylim(bottom=0)
    rates.legend(loc="upper right", fontsize=7, ncols=3, frameon=True, framealpha=0.9, edgecolor="none")


def _draw_served(served: Axes, variant: Variant, top: float) -> None:
    bins = variant.run.measure.bins
    wanted, done = per_second(bins[Count.WANTED]), per_second(bins[Count.SERVED])
    times_s = np.arange(len(done) + 1)
    served.step(times_s, _closed(wanted), where="post", color="#9aa5ae", linewidth=0.9, label="wanted")
    served.fill_between(
        times_s, 0, _closed(done), step="post", color=_GOOD, alpha=0.55, linewidth=0, label="served: goodput"
    )
    served.set_ylabel("calls …/s", fontsize=8, color=_INK)
    served.set_ylim(0, top * 1.08)
    delay = served.twinx()
    seconds, medians_s = _medians(variant)
    delay.plot(seconds + 0.5, medians_s, ".", color=_DROPPED, markersize=2.5, label="median set-up delay, s (right)")
    delay.set_yscale("log")
    delay.set_ylim(0.02, 60)
    delay.tick_params(labelsize=8, colors=_DROPPED)
    delay.spines["top"].set_visible(False)
    handles = [*served.get_legend_handles_labels()[0], *delay.get_legend_handles_labels()[0]]
    delay.legend(
        handles=handles, loc="upper right", fontsize=7, ncols=3, frameon=True, framealpha=0.9, edgecolor="none"
    )


def _medians(variant: Variant) -> tuple[Ints, Floats]:
    delays_s, bins = variant.run.measure.all_delays()
    of_second = bins * BIN_NS // _SECOND_NS
    seconds = np.unique(of_second)
    edges = np.searchsorted(of_second, [*seconds.tolist(), np.iinfo(np.int64).max]).tolist()
    medians = [float(np.median(delays_s[start:end])) for start, end in pairwise(edges)]
    return seconds, np.array(medians)


def _mark_storm(part: Axes, scenario: Scenario) -> None:
    for at_s in (scenario.storm_begins_s, scenario.storm_ends_s):
        if at_s:
            part.axvline(at_s, color="#8b98a3", linewidth=0.8, linestyle=(0, (1, 2)))


def _closed(row: Ints | Floats) -> Floats:
    """A step needs its right end: the last value again."""
    return np.append(row, row[-1:]).astype(np.float64)
