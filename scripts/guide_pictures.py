#!/usr/bin/env python3
"""The pictures of docs/choosing.md, made by the calls behind `sipguard tune` and `sipguard simulate`.

python scripts/guide_pictures.py [NAME…]. The same pictures each time, byte for byte with the same libraries; about two
minutes on one core.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from sipguard.core.parameters import EXACT_TR_MS, Lcdm, Parameters
from sipguard.core.policy import Policy
from sipguard.lab.sim.arrays import Floats, Ints
from sipguard.lab.sim.compare import compare
from sipguard.lab.sim.engine import Simulation
from sipguard.lab.sim.measure import Count
from sipguard.lab.sim.scenario import Guard, Scenario
from sipguard.lab.sim.scenario_file import load
from sipguard.lab.sim.summary import per_second, summarise
from sipguard.lab.tune.capture_load import CaptureLoad
from sipguard.lab.tune.choice import choose
from sipguard.lab.tune.figures import Candidate, Objective
from sipguard.lab.tune.local import LocalBench
from sipguard.lab.tune.recording import DROPPABLE, REFUSABLE, Recording
from sipguard.lab.tune.search import Log, search

OUT = Path(__file__).resolve().parent.parent / "docs" / "guide"
MAX_BYTES = 100_000
SECOND_NS = 1_000_000_000
SHEDDABLE = REFUSABLE | DROPPABLE

INK, LIMIT, GRID = "#22303c", "#5b2a86", "#d9dee2"
ADMITTED, REFUSED, DROPPED, GOOD, PLAIN = "#2f8f83", "#eea23c", "#b5463f", "#0b3d91", "#9aa5ae"


def main() -> None:
    """Draw them all, or those named."""
    wanted = sys.argv[1:] or list(PICTURES)
    unknown = sorted(set(wanted) - set(PICTURES))
    if unknown:
        sys.exit(f"no picture {', '.join(unknown)}; there are {', '.join(PICTURES)}")
    OUT.mkdir(parents=True, exist_ok=True)
    for name in wanted:
        file = BytesIO()
        # Without the library's version: the same numbers give the same bytes.
        PICTURES[name]().savefig(file, format="png", dpi=100, metadata={"Software": None})
        png = file.getvalue()
        if len(png) > MAX_BYTES:
            sys.exit(f"{name}.png has {len(png):,} bytes: allowed is at most {MAX_BYTES:,}")
        (OUT / f"{name}.png").write_bytes(png)
        print(f"{name}.png {len(png):,} bytes")


# -- loads -------------------------------------------------------------------------------------------------------------


def poisson(rates: Sequence[float] | Floats, sheddable: float = 1.0, seed: int = 1) -> Recording:
    """A recording with such a rate in each second, requests/s, arrivals at random."""
    random = np.random.default_rng(seed)
    counts = random.poisson(np.asarray(rates))
    seconds = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    times_ns: Ints = np.sort(seconds * SECOND_NS + random.integers(0, SECOND_NS, len(seconds)))
    codes = np.where(random.random(len(times_ns)) < sheddable, SHEDDABLE, 0).astype(np.int8)
    return Recording(times_ns, codes, np.ones(len(times_ns), np.int64), len(counts) * SECOND_NS)


def with_guard(scenario: Scenario, parameters: Parameters | None = None, **changes: object) -> Scenario:
    """The scenario with another law, or other values of its guard."""
    old = scenario.guard
    assert old is not None
    guard: Guard = replace(old, parameters=parameters or old.parameters, **changes)  # type: ignore[arg-type]
    return replace(scenario, guard=guard)


# -- pictures ----------------------------------------------------------------------------------------------------------


def front() -> Figure:
    """Everything a search tried on ten minutes with two storms, the front, the three recommended ones."""
    rates = np.full(600, 500.0)
    rates[100:200], rates[350:380] = 2000, 1500
    at = CaptureLoad(poisson(rates, sheddable=0.8), 800, "ten minutes")
    with LocalBench(at, 1) as bench:
        log = Log(bench)
        search(at, log, trials=300, seed=1, pinned={})
        choices = [choose(at, log, objective, {}) for objective in Objective]
    figure, axes = canvas("300 sets tried on one capture: 500 requests/s, storms of 2000 and 1500, server of 800")
    every = [(100 * each.figures.shed, 100 * each.figures.goodput) for each in log.tried]
    axes.scatter(*columns(every), s=9, color=PLAIN, label="tried", linewidths=0)
    points = sorted((100 * each.figures.shed, 100 * each.figures.goodput) for each in choices[0].front)
    axes.scatter(*columns(points), s=16, color=GOOD, label="Pareto front", linewidths=0)
    for choice, color in zip(choices, (ADMITTED, REFUSED, DROPPED), strict=True):
        figures = choice.recommended.figures
        values = choice.recommended.candidate.as_dict()
        text = f"--objective {choice.objective}: LC {values['LC']}, {values['shed']}"
        axes.scatter([100 * figures.shed], [100 * figures.goodput], s=90, marker="*", color=color, label=text, zorder=5)
    axes.set(xlabel="refused and dropped, % of the requests", ylabel="goodput, %", ylim=(40, 101), xlim=(0, 60))
    axes.legend(fontsize=8, frameon=False, loc="lower left")
    return figure


def tr() -> Figure:
    """A slow ramp: at what rate LC 800 acts, by TR."""
    # Evenly spaced, so that chance does not enter: after t s t² requests, that is 2·t requests/s.
    times_ns = (np.sqrt(np.arange(850**2)) * SECOND_NS).astype(np.int64)
    ones = np.ones(len(times_ns), np.int64)
    ramp = CaptureLoad(Recording(times_ns, (SHEDDABLE * ones).astype(np.int8), ones, 850 * SECOND_NS), 10_000, "ramp")
    periods = list(range(100, 1001, 20))
    for exact in EXACT_TR_MS:
        periods += [exact] * (exact not in periods)
    acted = []
    for period in sorted(periods):
        judged = ramp.judge(Candidate(Parameters(LC=800, LCPS=10_000, TR=period), "all"))
        acted.append((period, 2 * judged.turns[0].time_ns / SECOND_NS))
    figure, axes = canvas(
        "LC 800: the rate at which the level really acts (a slow ramp, 2 requests/s more each second)"
    )
    axes.plot(*columns(acted), color=DROPPED, linewidth=1.4, label="TR in between: 1000 div TR reads low")
    exact_only = [(period, rate) for period, rate in acted if period in EXACT_TR_MS]
    axes.scatter(*columns(exact_only), color=ADMITTED, zorder=5, label="TR that divides 1000")
    axes.axhline(800, color=LIMIT, linestyle="--", linewidth=1.2, label="LC")
    axes.set(xlabel="TR, ms", ylabel="requests/s", ylim=(600, 1700))
    axes.legend(fontsize=8, frameon=False, loc="upper left")
    return figure


def small_lc() -> Figure:
    """How much of an hour at 60 % of LC is spent out of normal, by LC and TR."""
    figure, axes = canvas("An hour of even load at 60 % of LC: share of the time out of normal")
    levels = [2, 3, 5, 8, 10, 15, 20, 30, 50, 80, 120, 200, 300, 500]
    for period, color in ((100, DROPPED), (200, REFUSED), (500, PLAIN), (1000, ADMITTED)):
        away = []
        for lc in levels:
            hour = CaptureLoad(poisson(np.full(3600, 0.6 * lc), seed=lc), lc, "hour")
            law = Parameters(LC=lc, LCPS=10_000, TR=period, LRC=max(1, 3000 // period))
            found = hour.try_out(Candidate(law, "excess"))
            away.append(100 * (found.around_s + found.critical_s) / 3600)
        label = f"TR {period} ms: one request is {1000 // period}/s"
        axes.plot(levels, away, marker="o", markersize=3.5, color=color, label=label)
    axes.set_xscale("log")
    axes.set_xticks(levels, [str(lc) for lc in levels])
    axes.set(xlabel="LC, requests/s", ylabel="out of normal, %")
    axes.legend(fontsize=8, frameon=False)
    return figure


def quiet_night() -> Figure:
    """The first busy second under several LCPS."""
    rates = [4.0] * 6 + [300.0] * 6
    morning = CaptureLoad(poisson(rates), 400, "morning")
    figure = sheet("A quiet night ends in one second: 4 requests/s, then 300; the server can do 400, LC is 400")
    parts = figure.subplots(1, 3, sharey=True)
    for axes, lcps in zip(parts, (50, 150, 400), strict=True):
        judged = morning.judge(Candidate(Parameters(LC=400, LCPS=lcps, TR=1000), "all"))
        passed = morning.passed(judged)[: len(rates)]
        seconds = np.arange(len(rates))
        axes.bar(seconds, passed, 1.0, align="edge", color=ADMITTED, label="passed")
        refused = morning.offered[: len(rates)] - passed
        axes.bar(seconds, refused, 1.0, passed, align="edge", color=REFUSED, label="refused with 503")
        axes.set_title(f"LCPS {lcps}: {judged.refused.sum()} refused", fontsize=10, color=INK, loc="left")
        axes.set_xlabel("time, s", color=INK)
        dress(axes)
    parts[0].set_ylabel("requests/s", color=INK)
    parts[0].legend(fontsize=8, frameon=False, loc="upper left")
    return figure


def all_excess() -> Figure:
    """Twice the calls that the switch can set up, without end."""
    storm = load("steady-2x")
    figure, axes = canvas("Calls set up per second under a steady overload of 2 × (sipguard simulate steady-2x)")
    assert storm.guard is not None
    silent = with_guard(storm, storm.guard.parameters.replaced(LCDM=Lcdm.DENIAL_TO_DROP))
    looks = {"none": ("no guard", PLAIN), "all": ("all", DROPPED), "excess": ("excess, 503 (denial_only)", ADMITTED)}
    found = [(*looks[variant.policy], variant) for variant in compare(storm, list(looks), seed=1)]
    found += [("excess, silent after 10 s", REFUSED, variant) for variant in compare(silent, ["excess"], seed=1)]
    for label, color, variant in found:
        served = smooth(per_second(variant.run.measure.bins[Count.SERVED]))
        axes.plot(served, color=color, linewidth=1.6, label=label)
    axes.axhline(200, color=LIMIT, linestyle="--", linewidth=1.2, label="what the switch can do")
    axes.set(xlabel="time, s", ylabel="calls set up per second", xlim=(0, storm.duration_s), ylim=(0, 300))
    axes.legend(fontsize=8, frameon=False, ncols=2, loc="upper right")
    return figure


def calls() -> Figure:
    """What `excess` serves by LC: more and more, and beyond an LC that depends on the storm next to nothing."""
    figure, axes = canvas(
        "Calls set up per second by LC, excess: the switch can set up 200 whole calls/s (steady-2x, -10x)"
    )
    levels = (100, 150, 175, 200, 225, 250, 275, 300, 325, 350, 400)
    cases: tuple[tuple[str, Lcdm, str, str], ...] = (
        ("steady-2x", Lcdm.DENIAL_ONLY, "2 ×, 503", ADMITTED),
        ("steady-2x", Lcdm.DENIAL_TO_DROP, "2 ×, silent after 10 s", REFUSED),
        ("steady-10x", Lcdm.DENIAL_ONLY, "10 ×, 503", GOOD),
    )
    for name, mode, label, color in cases:
        storm = load(name)
        assert storm.guard is not None
        law = storm.guard.parameters.replaced(LCDM=mode)
        excess = with_guard(storm, policy=Policy("excess"))
        served = [summarise(Simulation(with_guard(excess, law.replaced(LC=lc)), 1).run()).goodput for lc in levels]
        axes.plot(levels, served, marker="o", markersize=3.5, linewidth=1.4, color=color, label=label)
    axes.axvline(200, color=LIMIT, linestyle="--", linewidth=1.2, label="LC = whole calls/s of the switch")
    axes.set(xlabel="LC, requests/s", ylabel="calls set up per second", ylim=(0, 230))
    axes.legend(fontsize=8, frameon=False, loc="lower left")
    return figure


def patience() -> Figure:
    """What the silence costs clients that would have listened to a 503."""
    storm = load("steady-2x")
    assert storm.guard is not None
    excess = with_guard(storm, policy=Policy("excess"))
    patience_s = (1, 2, 5, 10, 20, 32, 60, 120)
    offered, copies, served = [], [], []
    laws = [storm.guard.parameters.replaced(LCDM=Lcdm.DENIAL_TO_DROP, PC=seconds * 5, TR=200) for seconds in patience_s]
    for law in (*laws, storm.guard.parameters.replaced(LCDM=Lcdm.DENIAL_ONLY)):
        summary = summarise(Simulation(with_guard(excess, law), 1).run())
        offered.append(summary.offered * (1 - summary.retransmissions) / storm.duration_s)
        copies.append(summary.offered * summary.retransmissions / storm.duration_s)
        served.append(summary.goodput)
    figure, axes = canvas(
        "The same storm, the silence begun sooner or later: what comes to the guard (steady-2x, excess)"
    )
    places = np.arange(len(patience_s) + 1)
    axes.bar(places, offered, 0.7, color=ADMITTED, label="first copies")
    axes.bar(places, copies, 0.7, offered, color=DROPPED, label="retransmissions")
    for place, height, calls_per_s in zip(places.tolist(), np.add(offered, copies).tolist(), served, strict=True):
        text = f"{calls_per_s:.0f} calls/s"
        axes.text(place, height + 40, text, ha="center", fontsize=8, color=INK)
    axes.set_xticks(places, [*map(str, patience_s), "denial_only"])
    axes.set(
        xlabel="PC·TR, s: how long 503 lasts before the silence", ylabel="messages/s, mean of 180 s", ylim=(0, 3300)
    )
    axes.legend(fontsize=8, frameon=False, loc="upper right", ncols=2)
    return figure


def retry_after() -> Figure:
    """Registrations after a power cut that were refused: when they come again."""
    storm = load("registration-avalanche")
    figure, axes = canvas("Refused registrations come again (registration-avalanche, denial_only, excess)")
    cases: tuple[tuple[str, tuple[float, float] | None, str], ...] = (
        ("no Retry-After: back-off of RFC 5626 from 15 s", None, PLAIN),
        ("Retry-After 2 s for everybody", (2, 2), DROPPED),
        ("Retry-After 10 … 30 s at random", (10, 30), ADMITTED),
        ("Retry-After 30 … 120 s at random", (30, 120), GOOD),
    )
    assert storm.guard is not None
    law = storm.guard.parameters.replaced(LCDM=Lcdm.DENIAL_ONLY)
    for label, span_s, color in cases:
        run = Simulation(with_guard(storm, law, policy=Policy("excess"), retry_after_s=span_s), 1).run()
        offered = smooth(per_second(run.measure.bins[Count.FRESH] + run.measure.bins[Count.COPIES]))
        axes.plot(offered, color=color, linewidth=1.4, label=label)
    axes.axhline(law.LC, color=LIMIT, linestyle="--", linewidth=1.2, label=f"LC {law.LC}")
    axes.set(xlabel="time, s", ylabel="requests/s at the guard", xlim=(50, storm.duration_s), ylim=(0, None))
    axes.legend(fontsize=8, frameon=False)
    return figure


PICTURES: dict[str, Callable[[], Figure]] = {
    "front": front,
    "tr": tr,
    "small-lc": small_lc,
    "quiet-night": quiet_night,
    "all-excess": all_excess,
    "calls": calls,
    "patience": patience,
    "retry-after": retry_after,
}


# -- drawing -----------------------------------------------------------------------------------------------------------


def canvas(title: str) -> tuple[Figure, Axes]:
    figure = sheet(title)
    axes = figure.subplots()
    dress(axes)
    return figure, axes


def sheet(title: str) -> Figure:
    figure = Figure(figsize=(9, 3.8), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold", color=INK)
    return figure


def dress(axes: Axes) -> None:
    axes.grid(axis="y", color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(colors=INK, labelsize=8)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def columns(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]


def smooth(row: Ints, seconds: int = 5) -> Floats:
    """The mean of so many seconds around each."""
    padded = np.pad(row.astype(np.float64), seconds // 2, mode="edge")
    found: Floats = np.convolve(padded, np.full(seconds, 1 / seconds), mode="valid")
    return found


if __name__ == "__main__":
    main()
