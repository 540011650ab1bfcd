#!/usr/bin/env python3
"""`make bench`: CPU microseconds per message of the guard, beside Kamailio in the same run.

Usage: bench/run.py [--quick] [--rounds N] [--only NAME]…

Each server has one core, the load the other. Both are measured in turns, round by round. Every point goes to out/bench.json.
It reports and never asserts; exit 0, or 2 when it could not run.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from rich.console import Console  # noqa: E402
from tests.peers.process import PeerError  # noqa: E402

from bench.core import costs  # noqa: E402
from bench.field import Cores, Field, Side, field  # noqa: E402
from bench.load import LoadError  # noqa: E402
from bench.results import Comparison, KernelDrop, Lateness, Results  # noqa: E402
from bench.scenario import PACED, SCENARIOS, Scenario, kernel_drop  # noqa: E402
from bench.table import show  # noqa: E402

NAMES = (*(scenario.name for scenario in SCENARIOS), "paced", "kernel", "admit")
_QUICK_NAMES = ("503", "forward", "response", "drop", "paced", "kernel", "admit")
_FLOOD_TIMES_LC = 10
_WIDTH = 150  # columns, where the output is no terminal


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is done: rounds of each pair, seconds of each point."""

    names: Sequence[str]
    rounds: int
    paced_rounds: int
    kernel_rounds: int
    paced_per_s: tuple[int, ...]
    kernel_lc: tuple[int, ...]
    warm_s: float
    span_s: float
    cost_repeats: int


class Bench:
    """One run."""

    def __init__(self, plan: Plan, cores: Cores, console: Console) -> None:
        self._plan = plan
        self._cores = cores
        self._console = console
        self.results = Results()

    def run(self) -> None:
        """Everything planned. Raises PeerError, LoadError, OSError."""
        plan = self._plan
        for scenario in SCENARIOS:
            if scenario.name in plan.names:
                self._compare(scenario)
        if "paced" in plan.names:
            for scenario in PACED:
                self._compare_paced(scenario)
        if "kernel" in plan.names:
            for lc in plan.kernel_lc:
                self._drop_in_kernel(lc)
        if "admit" in plan.names:
            self.results.costs = costs(plan.cost_repeats)

    def _compare(self, scenario: Scenario) -> None:
        plan = self._plan
        comparison = Comparison(scenario.name, scenario.title, scenario.target, scenario.note)
        for _ in range(plan.rounds):
            for side in Side:
                with field(scenario, side, self._cores) as place:
                    comparison.points[side].append(place.flood(plan.warm_s, plan.span_s))
                    if side is Side.GUARD:
                        comparison.lateness.append(_lateness(place))
            self._tell(comparison)
        self.results.saturation.append(comparison)

    def _compare_paced(self, scenario: Scenario) -> None:
        """The rates one after the other on the same servers; lateness is told with the last, over all of them."""
        plan = self._plan
        comparisons = [
            Comparison(f"{scenario.name}-{rate}", f"{scenario.title}, {rate:,}/s", None, scenario.note)
            for rate in plan.paced_per_s
        ]
        for _ in range(plan.paced_rounds):
            for side in Side:
                with field(scenario, side, self._cores) as place:
                    for comparison, rate in zip(comparisons, plan.paced_per_s, strict=True):
                        comparison.points[side].append(place.pace(rate, plan.warm_s, plan.span_s))
                    if side is Side.GUARD:
                        comparisons[-1].lateness.append(_lateness(place))
            for comparison in comparisons:
                self._tell(comparison)
        self.results.paced += comparisons

    def _drop_in_kernel(self, lc: int) -> None:
        drop = KernelDrop(lc, lc * _FLOOD_TIMES_LC)
        for _ in range(self._plan.kernel_rounds):
            with field(kernel_drop(lc), Side.GUARD, self._cores) as guard:
                drop.idle.append(guard.idle(self._plan.span_s))
                drop.flood.append(guard.pace(drop.offered_per_s, self._plan.warm_s, 2 * self._plan.span_s))
                drop.lateness.append(_lateness(guard))
            self._console.print(
                f"kernel drop, {drop.offered_per_s:,}/s: {drop.flood[-1].core_percent:.2f} % of a core", style="dim"
            )
        self.results.kernel.append(drop)

    def _tell(self, comparison: Comparison) -> None:
        last = (f"{side.value} {points[-1].us_per_message:.1f}" for side, points in comparison.points.items())
        self._console.print(f"{comparison.title}: {', '.join(last)} µs", style="dim", highlight=False)


def _lateness(guard: Field) -> Lateness:
    found = guard.server.status()["evaluation"]
    return Lateness(found["cycles"], found["late_ms_p50"], found["late_ms_p99"], found["late_ms_max"])


def _plan(arguments: argparse.Namespace) -> Plan:
    if arguments.quick:
        names = arguments.only or _QUICK_NAMES
        return Plan(names, arguments.rounds or 1, 1, 1, (4_000,), (1_000,), 0.3, 0.7, 3)
    rounds = arguments.rounds or 4
    names = arguments.only or NAMES
    return Plan(names, rounds, min(2, rounds), min(3, rounds), (2_000, 4_000, 8_000), (1_000, 10_000), 0.4, 1.2, 7)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="CPU µs per message, beside Kamailio in the same run.")
    parser.add_argument("--quick", action="store_true", help="one round of the main rows, under a minute")
    parser.add_argument("--rounds", type=int, metavar="N", help="of each pair (default: 4)")
    parser.add_argument("--only", action="append", choices=NAMES, metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--json", type=Path, default=ROOT / "out" / "bench.json", help="where every point is kept")
    arguments = parser.parse_args(argv)
    if arguments.rounds is not None and arguments.rounds < 1:
        parser.error("--rounds: at least 1")
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code."""
    arguments = _arguments(argv)
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        console.print("bench: needs two cores, one for the server and one for the load", style="red")
        return 2
    os.sched_setaffinity(0, {cores[1]})
    bench = Bench(_plan(arguments), Cores(server=cores[0], load=cores[1]), console)
    try:
        bench.run()
    except (PeerError, LoadError, OSError) as error:
        console.print(f"bench: could not run: {error}", style="red", markup=False)
        return 2
    show(bench.results, console)
    bench.results.write(arguments.json)
    console.print(f"every point of every round: {arguments.json}", highlight=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
