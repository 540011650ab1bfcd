"""`make bench` as a command, and one measurement of each server; no figure is asserted, only that it is one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from bench.cpu import cpu_ns, session_processes
from bench.field import Cores, Field, Side, field
from bench.scenario import SCENARIOS, kernel_drop

from tests.peers.process import wait_until

_ROOT = Path(__file__).resolve().parents[2]
_SCENARIOS = {scenario.name: scenario for scenario in SCENARIOS}
_TWO_CORES = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="the bench needs two cores")


def _bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, str(_ROOT / "bench" / "run.py"), *arguments]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


@_TWO_CORES
def test_only_one_part_prints_its_rows_and_keeps_its_points(tmp_path: Path) -> None:
    kept = tmp_path / "kept" / "bench.json"
    done = _bench("--quick", "--only", "admit", "--json", str(kept))
    assert done.returncode == 0, done.stderr
    assert "admit, allowed" in done.stdout
    assert "saturation" not in done.stdout
    document = json.loads(kept.read_text())
    assert document["saturation"] == []
    calls = {call["name"]: call["us"] for call in document["calls"]}
    assert {"admit", "admit-reject", "tier-0", "tier-1", "receive-503", "receive-forward", "receive-drop"} == set(calls)
    for us in calls.values():
        assert 0 < us["low"] <= us["middle"] <= us["high"]


def test_wrong_usage_is_exit_2() -> None:
    unknown = _bench("--only", "nothing")
    assert unknown.returncode == 2
    assert "503-register" in unknown.stderr
    assert _bench("--rounds", "0").returncode == 2


def _cores() -> Cores:
    cores = sorted(os.sched_getaffinity(0))
    return Cores(server=cores[0], load=cores[-1])


@pytest.mark.peer
@pytest.mark.parametrize(
    ("name", "side"),
    [(name, side) for name in _SCENARIOS for side in (Side.GUARD, Side.KAMAILIO)] + [("503", Side.KAMAILIO_FM)],
)
def test_each_side_does_what_the_scenario_counts(name: str, side: Side) -> None:
    """Like for like: at a rate that both can bear each request sent is one unit of work done, on every side."""
    with field(_SCENARIOS[name], side, _cores()) as place:
        place.load.pace(400, 0.25)  # past the first window: the guard's state is what the scenario wants
        wait_until(lambda: _is_quiet(place), 20, "the first requests done")
        before = place.done
        point = place.pace(800, 0, 0.25)
        wait_until(lambda: place.done - before >= point.offered, 20, f"{point.offered} done")
        assert _is_quiet(place)
        assert place.done - before == point.offered == 200
        if side is Side.GUARD:
            expected = {
                "503": "around_critical_limit",
                "503-register": "around_critical_limit",
                "drop": "critical_limit",
            }
            assert place.server.status()["state"] == expected.get(name, "normal")


def _is_quiet(place: Field) -> bool:
    """Nothing was done for a while; long enough for a server that the machine kept waiting to go on."""
    before = place.done
    time.sleep(0.6)
    return place.done == before


def test_the_kernel_takes_the_flood() -> None:
    """The scenario of the kernel drop: nearly nothing reaches the process (DESIGN §3: a sample of one in 64)."""
    with field(kernel_drop(100), Side.GUARD, _cores()) as place:
        point = place.pace(2_000, 0.3, 0.5)
        status = place.server.status()
    assert status["state"] == "critical_limit"
    assert status["kernel_dropped"] > 0
    assert point.offered == 1_000
    assert point.done < point.offered / 4


def test_cpu_time_is_that_of_the_whole_session() -> None:
    """A leader that only waits, a child that burns: the child's time counts (/proc/PID/task/*/schedstat)."""
    burn = "import time\nend = time.process_time() + 0.2\nwhile time.process_time() < end: pass\ntime.sleep(30)"
    leader = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {burn!r}])"
    process = subprocess.Popen([sys.executable, "-c", leader], start_new_session=True)
    try:
        end_s = time.monotonic() + 20
        while (used_ns := cpu_ns(session_processes(process.pid))) < 200_000_000 and time.monotonic() < end_s:
            time.sleep(0.05)
        assert len(session_processes(process.pid)) == 2
        assert used_ns >= 200_000_000
    finally:
        for pid in session_processes(process.pid):
            os.kill(pid, 9)
        process.wait()
