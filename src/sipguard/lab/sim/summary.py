"""What a run says in a dozen figures: goodput, delay, what was shed, how soon it was noticed, how soon it was over."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import ceil

import numpy as np

from sipguard.core.levels import State
from sipguard.core.verdicts import Change
from sipguard.lab.sim.arrays import Ints
from sipguard.lab.sim.engine import Run
from sipguard.lab.sim.measure import BIN_NS, Count
from sipguard.lab.sim.scenario import Scenario

_SECOND_NS = 1_000_000_000
_BINS_PER_SECOND = _SECOND_NS // BIN_NS
#: Recovered: from then on this share of what is wanted in any so many seconds is served, in the normal state.
RECOVERED_SHARE = 0.9
RECOVERED_S = 5


@dataclass(frozen=True, slots=True)
class Summary:
    """One run. Requests of floods are in what was offered, refused, dropped and lost, in nothing else.

    wanted, served, given_up: calls, refreshes, probes; pending: not decided at the end. goodput: served per second of the
    storm (of the run when it has no end). capacity_used: of the servers' time. setup_p50_s, setup_p99_s: from wanting to
    the answer, of those served (waiting for a redial apart); None when nobody was. offered, offered_peak (in one second),
    refused, dropped, overflow: messages at the guards, copies included. retransmissions: share of copies in what was
    offered. wasted: answers of servers that came when the client had given up
    or had a 503 for another copy. timed_out: attempts without an answer. early: requests refused or dropped before the
    storm began. detect_s: from
    the storm's begin to the guard's first refusal or change of state; None: never, or no guard. recover_s: from the
    storm's end until, for the rest of the run, 90 % of what is wanted is served in the normal state and no more than
    the rest is turned away for want of room; None: not in this
    run, or a storm without end. oscillations: how often the guard left normal again.
    """

    wanted: int
    served: int
    given_up: int
    pending: int
    goodput: float
    capacity_used: float
    setup_p50_s: float | None
    setup_p99_s: float | None
    offered: int
    offered_peak: int
    refused: int
    dropped: int
    overflow: int
    retransmissions: float
    wasted: int
    timed_out: int
    early: int
    detect_s: float | None
    recover_s: float | None
    oscillations: int

    def as_dict(self) -> dict[str, float | int | None]:
        """By name, plain values."""
        return asdict(self)


def summarise(run: Run) -> Summary:
    """The figures of a run."""
    scenario, bins = run.scenario, run.measure.bins
    totals = {count: int(bins[count].sum()) for count in Count}
    offered = totals[Count.FRESH] + totals[Count.COPIES]
    delays_s, _ = run.measure.all_delays()
    p50_s, p99_s = np.percentile(delays_s, (50, 99)).tolist() if len(delays_s) else (None, None)
    begin, end = _storm_bins(scenario, bins.shape[1])
    changes = [change for of_server in run.changes for change in of_server]
    end_ns = round(scenario.duration_s * _SECOND_NS)
    work_ns = end_ns * len(run.sites)
    return Summary(
        wanted=totals[Count.WANTED],
        served=totals[Count.SERVED],
        given_up=totals[Count.GIVEN_UP],
        pending=run.pending,
        goodput=float(bins[Count.SERVED, begin:end].sum() / ((end - begin) / _BINS_PER_SECOND)),
        capacity_used=sum(site.server.busy_by(end_ns) for site in run.sites) / work_ns,
        setup_p50_s=p50_s,
        setup_p99_s=p99_s,
        offered=offered,
        offered_peak=int(per_second(bins[Count.FRESH] + bins[Count.COPIES]).max(initial=0)),
        refused=totals[Count.REJECTED],
        dropped=totals[Count.DROPPED],
        overflow=totals[Count.OVERFLOW],
        retransmissions=totals[Count.COPIES] / offered if offered else 0.0,
        wasted=totals[Count.LATE],
        timed_out=totals[Count.TIMED_OUT],
        early=int((bins[Count.REJECTED] + bins[Count.DROPPED])[:begin].sum()),
        detect_s=_detect_s(scenario, bins, changes),
        recover_s=_recover_s(run, bins),
        oscillations=max(0, max((_departures(of_server) for of_server in run.changes), default=0) - 1),
    )


def per_second(row: Ints) -> Ints:
    """Bins summed into whole seconds; a last part of a second is left out."""
    whole = len(row) // _BINS_PER_SECOND * _BINS_PER_SECOND
    summed: Ints = row[:whole].reshape(-1, _BINS_PER_SECOND).sum(axis=1)
    return summed


# -- inside ------------------------------------------------------------------------------------------------------------


def _storm_bins(scenario: Scenario, bins: int) -> tuple[int, int]:
    end_s = scenario.duration_s if scenario.storm_ends_s is None else scenario.storm_ends_s
    begin = min(round(scenario.storm_begins_s * _BINS_PER_SECOND), bins - 1)
    return begin, max(begin + 1, min(round(end_s * _BINS_PER_SECOND), bins))


def _departures(changes: tuple[Change, ...]) -> int:
    return sum(change.before is State.NORMAL for change in changes)


def _detect_s(scenario: Scenario, bins: Ints, changes: list[Change]) -> float | None:
    begins_ns = round(scenario.storm_begins_s * _SECOND_NS)
    first = round(scenario.storm_begins_s * _BINS_PER_SECOND)
    acted = np.flatnonzero((bins[Count.REJECTED] + bins[Count.DROPPED])[first:])
    times_ns = [change.time_ns for change in changes if change.before is State.NORMAL and change.time_ns >= begins_ns]
    # A refusal by LCPS has no change of state; it is known to its bin.
    times_ns += [begins_ns + int(acted[0]) * BIN_NS] if len(acted) else []
    return (min(times_ns) - begins_ns) / _SECOND_NS if times_ns else None


def _recover_s(run: Run, bins: Ints) -> float | None:
    scenario = run.scenario
    if scenario.storm_ends_s is None:
        return None
    served, wanted = per_second(bins[Count.SERVED]), per_second(bins[Count.WANTED])
    # A backlog that is served late is no recovery while there is no room for what comes.
    full = per_second(bins[Count.OVERFLOW])
    normal = _normal_seconds(run, len(served))
    first = ceil(scenario.storm_ends_s)
    recovered: int | None = None
    for second in range(len(served) - RECOVERED_S, first - 1, -1):
        span = slice(second, second + RECOVERED_S)
        enough = RECOVERED_SHARE * wanted[span].sum()
        if not normal[span].all() or served[span].sum() < enough or full[span].sum() > wanted[span].sum() - enough:
            break
        recovered = second
    return None if recovered is None else float(recovered - scenario.storm_ends_s)


def _normal_seconds(run: Run, seconds: int) -> Ints:
    """1 for each second in which every guard was normal all the time."""
    normal = np.ones(seconds, np.int64)
    for changes in run.changes:
        since_ns: int | None = None
        for change in changes:
            if change.before is State.NORMAL:
                since_ns = change.time_ns
            if change.after is State.NORMAL and since_ns is not None:
                normal[since_ns // _SECOND_NS : -(-change.time_ns // _SECOND_NS)] = 0
                since_ns = None
        if since_ns is not None:
            normal[since_ns // _SECOND_NS :] = 0
    return normal
