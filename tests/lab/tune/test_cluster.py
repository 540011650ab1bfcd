"""Trials on a dask.distributed cluster of separate processes: the same advice as here, also when a worker is killed."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from sipguard.lab.sim.scenario_file import parse
from sipguard.lab.tune.cluster import ClusterBench, ClusterError
from sipguard.lab.tune.local import LocalBench
from sipguard.lab.tune.report import document
from sipguard.lab.tune.scenario_load import ScenarioLoad
from sipguard.lab.tune.tune import tune
from tests.cli.sipguard_command import sipguard

STORM = {
    "title": "Small",
    "about": "A step, for tests.",
    "duration_s": 30,
    "storm": {"begins_s": 5, "ends_s": 12},
    "servers": [{"name": "a", "capacity": 60}],
    "callers": [{"name": "c", "method": "MESSAGE", "rate": [[5, 20], [5, 200], [12, 200], [12, 20]]}],
}
TRIALS = 14


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A scheduler here and two worker processes on loopback; a worker that dies is begun anew."""
    distributed = pytest.importorskip("distributed")
    made = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address="127.0.0.1:0"
    )
    with made:
        yield made


class Assassin:
    """Kills the first worker that is seen trying candidates, once."""

    def __init__(self, address: str) -> None:
        import distributed

        client: Any = distributed.Client
        self._client = client(address, set_as_default=False)
        self.before: dict[str, int] = self._client.run(os.getpid)
        self.victim: int | None = None
        self._thread = threading.Thread(target=self._wait_and_kill)
        self._thread.start()

    def _wait_and_kill(self) -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            at_work = [address for address, tasks in self._client.processing().items() if len(tasks) > 1]
            if at_work:
                self.victim = self.before[at_work[0]]
                os.kill(self.victim, signal.SIGKILL)
                return
            time.sleep(0.01)

    def workers_after(self) -> set[int]:
        self._thread.join()
        self._client.wait_for_workers(2, timeout=30)
        pids = set(self._client.run(os.getpid).values())
        self._client.close()
        return pids


@pytest.mark.timeout(180)
def test_a_worker_killed_in_the_middle_changes_nothing(cluster: Any) -> None:
    load = ScenarioLoad(parse(STORM, "small"), seed=2)
    with LocalBench(load, 1) as here:
        expected = document(tune(load, here, trials=TRIALS, seed=7))
    told: list[tuple[int, int]] = []
    assassin = Assassin(cluster.scheduler_address)
    with ClusterBench(load, cluster.scheduler_address) as there:
        found = tune(load, there, trials=TRIALS, seed=7, on_progress=lambda done, total: told.append((done, total)))
    after = assassin.workers_after()
    assert assassin.victim in assassin.before.values()
    assert assassin.victim not in after
    assert document(found) == expected
    assert [done for done, _ in told] == [*range(1, len(found.tried) + 1)]
    assert all(total >= max(done, TRIALS) for done, total in told)


@pytest.mark.timeout(180)
def test_the_command_on_a_cluster(cluster: Any, tmp_path: Any) -> None:
    rows = [f"{10 * i},INVITE,{6 if 500 <= i < 1000 else 1}\n" for i in range(2000)]
    path = tmp_path / "step.csv"
    path.write_text("time_ms,method,count\n" + "".join(rows), encoding="utf-8")
    how = ("tune", "--capture", path, "--capacity", "200", "--trials", "14", "--json")
    there, here = sipguard(*how, "--dask", cluster.scheduler_address), sipguard(*how, "--jobs", "1")
    assert (there.code, here.code) == (0, 0), there.err
    assert there.out == here.out


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("tcp://127.0.0.1:1", r"no scheduler at tcp://127\.0\.0\.1:1 \(Connection refused\)"),
        ("nonsense", r"nonsense: allowed is tcp://HOST:PORT"),
        ("tcp://127.0.0.1:70000", r"allowed is tcp://HOST:PORT"),
        ("inproc://1.2.3.4/5/6", r"allowed is tcp://HOST:PORT"),
    ],
)
def test_no_scheduler_is_told(address: str, told: str) -> None:
    pytest.importorskip("distributed")
    with pytest.raises(ClusterError, match=told):
        ClusterBench(ScenarioLoad(parse(STORM, "small")), address, patience_s=1)


def test_a_listener_that_is_no_scheduler_is_told() -> None:
    pytest.importorskip("distributed")
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"tcp://127.0.0.1:{mute.getsockname()[1]}"
        with pytest.raises(ClusterError, match=r"no scheduler answers at .* within 1 s"):
            ClusterBench(ScenarioLoad(parse(STORM, "small")), address, patience_s=1)


def test_a_cluster_without_workers_is_told() -> None:
    distributed = pytest.importorskip("distributed")
    made = distributed.LocalCluster(n_workers=0, processes=True, host="127.0.0.1", dashboard_address="127.0.0.1:0")
    with made as empty, pytest.raises(ClusterError, match="no worker at"):
        ClusterBench(ScenarioLoad(parse(STORM, "small")), empty.scheduler_address, patience_s=1)
