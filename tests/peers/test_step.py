"""LCPS: a step in load is cut in the second it comes, at the last second's total + LCPS; the state stays normal."""

from __future__ import annotations

import time

import pytest

from tests.peers.guard import Guard
from tests.peers.sipp import Result
from tests.peers.testbed import Testbed
from tests.peers.timeline import outcomes, wall_to_monotonic_ns

pytestmark = pytest.mark.peer

SECOND_NS = 1_000_000_000
LCPS = 50
MARGIN_NS = 30_000_000  # SIPp's clock against the guard's, and a packet's way


def sleep_until_ns(time_ns: int) -> None:
    time.sleep(max(0, time_ns - time.monotonic_ns()) / 1e9)


def second_of(result: Result, origin_ns: int) -> int | None:
    """The guard's second all requests of a run fell into; None when they straddle two, or came near a border."""
    times = [wall_to_monotonic_ns(m.wall_s) - origin_ns for m in result.sent()]
    first = (min(times) - MARGIN_NS) // SECOND_NS
    return first if (max(times) + MARGIN_NS) // SECOND_NS == first else None


def offer_in_seconds(
    bed: Testbed, guard: Guard, origin_ns: int, transport: str, sizes: list[int]
) -> list[Result] | None:
    """Offer sizes[k] OPTIONS within the k-th of consecutive seconds of the guard; None when SIPp missed one.

    The second before the first stays empty, so that what earlier attempts sent is forgotten.
    """
    start = (time.monotonic_ns() - origin_ns) // SECOND_NS + 3
    runs = []
    for k, size in enumerate(sizes):
        sleep_until_ns(origin_ns + (start + k) * SECOND_NS + 50_000_000)
        if size:
            runs.append(bed.caller("uac_options_probe", guard.address, calls=size, rate=2 * size, transport=transport))
    results = [run.finish() for run in runs]
    wanted = [start + k for k, size in enumerate(sizes) if size]
    return results if [second_of(result, origin_ns) for result in results] == wanted else None


@pytest.mark.parametrize("transport", ["udp", "tcp"])
def test_a_step_is_cut_at_the_last_second_plus_lcps(bed: Testbed, transport: str) -> None:
    """SPEC M3, V3: of 40, 200, 150, none and 120 in a second, 40, 90, 150, none and 50 pass, the first ones; then 503."""
    kamailio = bed.kamailio()
    guard = bed.guard(kamailio, lc=10_000, lcps=LCPS, tr=200)
    origin_ns = int(guard.status()["origin_ns"])
    sizes, passed = [40, 200, 150, 0, 120], [40, 90, 150, 0, 50]
    for _ in range(3):
        before = guard.status()["verdicts"]
        results = offer_in_seconds(bed, guard, origin_ns, transport, sizes)
        if results is not None:
            break
    else:
        pytest.fail("SIPp could not keep its load within a second in three attempts")
    for result, size, admitted in zip(results, filter(None, sizes), filter(None, passed), strict=True):
        result.require_all(size)
        statuses = [status for _, status in outcomes(result.messages, "OPTIONS").values()]
        assert statuses == [200] * admitted + [503] * (size - admitted)
    status = guard.status()
    assert status["verdicts"]["allow"] - before["allow"] == sum(passed)
    assert status["verdicts"]["reject"] - before["reject"] == sum(sizes) - sum(passed)
    assert status["verdicts"]["drop"] == 0
    assert status["state"] == "normal"
    assert guard.changes() == []
