"""One run as a picture: what was offered and what became of it, under the states it went through."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sipguard.core.levels import State
from sipguard.core.parameters import Lcdm, Parameters
from sipguard.core.verdicts import Change
from sipguard.shown import shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SECOND_NS = 1_000_000_000


class PlotError(RuntimeError):
    """The picture cannot be made: matplotlib is missing, or there is nothing to draw."""


class Sample(NamedTuple):
    """Rates over one interval, requests/s; offered = admitted + refused + dropped. start_ns, end_ns: the run's clock."""

    start_ns: int
    end_ns: int
    admitted: float
    refused: float
    dropped: float

    @property
    def offered(self) -> float:
        """Everything that came (SPEC M2), requests/s."""
        return self.admitted + self.refused + self.dropped


class Mark(NamedTuple):
    """Something to point at: a moment on the run's clock, a height in requests/s, a short text."""

    time_ns: int
    rate: float
    text: str


class _Band(NamedTuple):
    """A state from one second to another of the picture."""

    state: State
    start_s: float
    end_s: float


class _Look(NamedTuple):
    """How a state is painted: the ribbon, the tint behind the curves, and what it does in two words."""

    ribbon: str
    tint: str
    does: str


_LOOKS = {
    State.NORMAL: _Look("#cfe8d5", "#f4faf5", "served"),
    State.AROUND: _Look("#fbd9a0", "#fff7e8", "503"),
    State.CRITICAL: _Look("#f2b3ad", "#fdf0ef", "silent drop"),
}
_ADMITTED, _REFUSED, _DROPPED = "#2f8f83", "#eea23c", "#b5463f"
#: Colours of text and of the law's limits.
INK, LIMIT = "#22303c", "#5b2a86"
#: Of the ribbon and the rates below it.
RUN_HEIGHTS = (1, 11)


def draw_run(
    samples: Sequence[Sample],
    changes: Sequence[Change],
    parameters: Parameters,
    path: Path,
    title: str,
    *,
    marks: Sequence[Mark] = (),
    origin_ns: int = 0,
) -> None:
    """Write a PNG of a run that began in the normal state: rates stacked over time, LC, the states as bands.

    samples, changes, marks: one clock, in order of time; origin_ns: where the picture's 0 s is. Raises PlotError when
    matplotlib is not installed or there is no sample, OSError when path cannot be written.
    """
    if not samples:
        raise PlotError("nothing to draw: the run gave no sample")
    figure = new_figure(title, 5.6)
    ribbon, rates = figure.subplots(2, 1, sharex=True, height_ratios=RUN_HEIGHTS)
    paint_run(ribbon, rates, samples, changes, parameters, marks=marks, origin_ns=origin_ns)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def new_figure(title: str, height: float) -> Figure:
    """An empty figure, 11 by `height` inches at 110 dots each, for PNG or SVG. Raises PlotError without matplotlib."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise PlotError("no picture without matplotlib: pip install 'sipguard[lab]'") from error
    figure = Figure(figsize=(11, height), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    figure.suptitle(plain(title), x=0.01, ha="left", fontsize=13, fontweight="bold", color=INK)
    return figure


def plain(text: str) -> str:
    """A text as it is in a picture: what is no visible character as an escape, and no $ begins a formula."""
    return shown(text).replace("$", r"\$")


def paint_run(
    ribbon: Axes,
    rates: Axes,
    samples: Sequence[Sample],
    changes: Sequence[Change],
    parameters: Parameters,
    *,
    marks: Sequence[Mark] = (),
    origin_ns: int = 0,
    shed: str | None = None,
) -> None:
    """As `draw_run`, onto two axes that share their time: the states on the ribbon, the rates below it.

    shed: to be named beside the parameters.
    """
    _dress(ribbon, rates, _caption(parameters) + ("" if shed is None else f"   shed {shed}"))
    start_s = (samples[0].start_ns - origin_ns) / _SECOND_NS
    end_s = (samples[-1].end_ns - origin_ns) / _SECOND_NS
    _draw_bands(ribbon, rates, list(_bands(changes, start_s, end_s, origin_ns)))
    top = _draw_rates(rates, samples, origin_ns)
    top = max(top, parameters.LC) * 1.12
    _draw_limit(rates, parameters.LC)
    for mark in marks:
        _draw_mark(rates, mark, origin_ns, top, parameters.LC)
    rates.set_xlim(start_s, max(end_s, start_s + 0.001))
    rates.set_ylim(0, top)
    rates.legend(loc="upper left", frameon=True, framealpha=0.92, edgecolor="none", fontsize=9)


def _dress(ribbon: Axes, rates: Axes, caption: str) -> None:
    ribbon.set_title(caption, loc="left", fontsize=9, color="#5a6772")
    ribbon.set_yticks([])
    ribbon.tick_params(bottom=False, labelbottom=False)
    ribbon.set_ylabel("state", rotation=0, ha="right", va="center", fontsize=9, color=INK)
    rates.set_xlabel("time since the guard's start, s", color=INK)
    rates.set_ylabel("SIP requests per second", color=INK)
    rates.grid(axis="y", color="#d9dee2", linewidth=0.6)
    rates.set_axisbelow(False)
    rates.tick_params(colors=INK)
    for axes, sides in ((ribbon, ("top", "right", "left", "bottom")), (rates, ("top", "right"))):
        for side in sides:
            axes.spines[side].set_visible(False)


def _caption(parameters: Parameters) -> str:
    parts = [f"LC {parameters.LC}/s", f"LCPS {parameters.LCPS}/s", parameters.LCDM, f"TR {parameters.TR} ms"]
    if parameters.LCDM is Lcdm.DENIAL_TO_DROP:  # the others have no use for it
        parts.append(f"patience PC·TR {parameters.PC * parameters.TR / 1000:g} s")
    parts.append(f"relax LRC·TR {parameters.LRC * parameters.TR / 1000:g} s")
    return "   ".join(parts)


def _bands(changes: Sequence[Change], start_s: float, end_s: float, origin_ns: int) -> Iterator[_Band]:
    state, since_s = State.NORMAL, start_s
    for change in changes:
        at_s = min(max((change.time_ns - origin_ns) / _SECOND_NS, start_s), end_s)
        if at_s > since_s:
            yield _Band(state, since_s, at_s)
        state, since_s = change.after, at_s
    if end_s > since_s:
        yield _Band(state, since_s, end_s)


def _draw_bands(ribbon: Axes, rates: Axes, bands: Sequence[_Band]) -> None:
    whole_s = sum(band.end_s - band.start_s for band in bands) or 1.0
    ribbon.set_ylim(0, 1)
    for i, band in enumerate(bands):
        look = _LOOKS[band.state]
        ribbon.axvspan(band.start_s, band.end_s, color=look.ribbon, linewidth=0)
        rates.axvspan(band.start_s, band.end_s, color=look.tint, linewidth=0, zorder=0)
        if i:
            for axes in (ribbon, rates):
                axes.axvline(band.start_s, color="#8b98a3", linewidth=0.8, linestyle=(0, (1, 2)), zorder=4)
        if (band.end_s - band.start_s) / whole_s > 0.11:  # narrower, and the name would not fit
            middle_s = (band.start_s + band.end_s) / 2
            ribbon.text(
                middle_s, 0.52, f"{band.state.value}\n{look.does}", ha="center", va="center", fontsize=8, color=INK
            )


def _draw_rates(rates: Axes, samples: Sequence[Sample], origin_ns: int) -> float:
    """Stacked steps and the offered rate as their outline; returns the highest rate."""
    # A step needs its right end: each interval's start, and the last one's end with the last rate again.
    times_s = [(sample.start_ns - origin_ns) / _SECOND_NS for sample in samples]
    times_s.append((samples[-1].end_ns - origin_ns) / _SECOND_NS)
    closed = [*samples, samples[-1]]
    base = [0.0] * len(closed)
    layers = (
        ("admitted", _ADMITTED, [sample.admitted for sample in closed]),
        ("refused with 503", _REFUSED, [sample.refused for sample in closed]),
        ("dropped silently", _DROPPED, [sample.dropped for sample in closed]),
    )
    for label, color, values in layers:
        upper = [low + value for low, value in zip(base, values, strict=True)]
        rates.fill_between(
            times_s, base, upper, step="post", color=color, alpha=0.85, linewidth=0, label=label, zorder=2
        )
        base = upper
    rates.step(times_s, base, where="post", color=INK, linewidth=1.3, label="offered", zorder=3)
    return max(base)


def _draw_limit(rates: Axes, lc: int) -> None:
    rates.axhline(lc, color=LIMIT, linewidth=1.4, linestyle="--", zorder=5)
    rates.annotate(
        f"LC = {lc}/s",
        (1, lc),
        xycoords=("axes fraction", "data"),
        xytext=(-4, 4),
        textcoords="offset points",
        ha="right",
        va="bottom",
        color=LIMIT,
        fontsize=9,
        fontweight="bold",
        zorder=6,
    )


def _draw_mark(rates: Axes, mark: Mark, origin_ns: int, top: float, lc: int) -> None:
    at_s = (mark.time_ns - origin_ns) / _SECOND_NS
    # Over its point, out of the way of the LC line and within the picture.
    text_at = mark.rate + 0.14 * top
    if text_at - 0.02 * top < lc < text_at + 0.11 * top:
        text_at = lc + 0.04 * top
    text_at = min(text_at, 0.88 * top)
    rates.annotate(
        mark.text,
        (at_s, mark.rate),
        xytext=(at_s, text_at),
        ha="center",
        va="bottom",
        fontsize=9,
        color=INK,
        arrowprops={"arrowstyle": "-|>", "color": INK, "linewidth": 1.0, "shrinkB": 2},
        bbox={"boxstyle": "round,pad=0.3", "facecolor": "white", "edgecolor": "#c5cdd3", "alpha": 0.95},
        zorder=7,
    )
