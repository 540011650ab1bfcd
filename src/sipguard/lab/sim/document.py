"""A comparison as plain data for machines: settings, figures, states and a series per second."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from sipguard.lab.sim.compare import Variant, parameters_of
from sipguard.lab.sim.measure import Count
from sipguard.lab.sim.scenario import Scenario
from sipguard.lab.sim.summary import per_second

_SECOND_NS = 1_000_000_000
#: The series of each variant, per second of virtual time.
SERIES = {
    "fresh": Count.FRESH,
    "retransmissions": Count.COPIES,
    "admitted": Count.ALLOWED,
    "refused": Count.REJECTED,
    "dropped": Count.DROPPED,
    "overflow": Count.OVERFLOW,
    "wanted": Count.WANTED,
    "served": Count.SERVED,
    "given_up": Count.GIVEN_UP,
}


def document(scenario: Scenario, variants: list[Variant], seed: int) -> dict[str, Any]:
    """What `sipguard simulate --json` prints."""
    law = parameters_of(variants)
    return {
        "scenario": scenario.name,
        "title": scenario.title,
        "seed": seed,
        "duration_s": scenario.duration_s,
        "storm_s": [scenario.storm_begins_s, scenario.storm_ends_s],
        "capacity": scenario.capacity,
        "parameters": None if law is None else law.as_dict(),
        "policies": {variant.policy: _variant(variant) for variant in variants},
    }


def _variant(variant: Variant) -> dict[str, Any]:
    run = variant.run
    return {
        "summary": variant.summary.as_dict(),
        "states": {
            server.name: [[0.0, "normal"], *([change.time_ns / _SECOND_NS, change.after.value] for change in changes)]
            for server, changes in zip(run.scenario.servers, run.changes, strict=True)
        },
        "series": {
            **{name: per_second(run.measure.bins[count]).tolist() for name, count in SERIES.items()},
            "setup_p50_s": _medians(variant),
        },
    }


def _medians(variant: Variant) -> list[float | None]:
    """The median set-up delay of each second's answers."""
    delays_s, bins = variant.run.measure.all_delays()
    seconds = len(per_second(variant.run.measure.bins[Count.SERVED]))
    edges = np.searchsorted(bins // 10, np.arange(seconds + 1)).tolist()
    return [round(float(np.median(delays_s[start:end])), 6) if end > start else None for start, end in pairwise(edges)]
