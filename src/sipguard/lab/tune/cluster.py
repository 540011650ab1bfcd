"""Candidates tried on a dask.distributed cluster, whose workers have sipguard installed."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from sipguard.lab.tune.figures import Candidate, Figures, Load

#: How long to wait for the scheduler and for a first worker.
PATIENCE_S = 30


class ClusterError(RuntimeError):
    """The cluster cannot be used; the text says why."""


class ClusterBench:
    """A client of a scheduler. Close it, or use `with`.

    The load is a task of its own: the scheduler keeps its bytes, so that a worker that dies takes nothing with it; what it
    was trying is tried elsewhere, and gives the same.
    """

    __slots__ = ("_client", "_data", "_load")

    def __init__(self, load: Load, address: str, patience_s: float = PATIENCE_S) -> None:
        """address: tcp://HOST:PORT or tls://HOST:PORT. Raises ModuleNotFoundError, ClusterError."""
        import distributed

        client: Any = distributed.Client
        self._load = load
        try:
            self._client: Any = client(address, timeout=patience_s, set_as_default=False)
        except (OSError, ValueError) as error:
            raise ClusterError(f"no scheduler at {address} within {patience_s:g} s ({error})") from None
        try:
            self._client.wait_for_workers(1, timeout=patience_s)
        except TimeoutError:
            self._client.close()
            raise ClusterError(f"no worker at {address} within {patience_s:g} s") from None
        data = pickle.dumps(load, pickle.HIGHEST_PROTOCOL)
        self._data: Any = self._client.submit(_opened, data, pure=False)

    def __repr__(self) -> str:
        return f"<ClusterBench {self._client.scheduler.address} {self._load!r}>"

    def __enter__(self) -> ClusterBench:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def try_all(self, candidates: Sequence[Candidate]) -> list[Figures]:
        """In the order given. Raises ClusterError when a candidate has taken several workers with it."""
        from distributed import KilledWorker

        tasks = [self._client.submit(_try_out, self._data, candidate, pure=False) for candidate in candidates]
        try:
            found: list[Figures] = self._client.gather(tasks)
        except KilledWorker as error:
            raise ClusterError(f"workers died one after the other while trying a candidate ({error})") from None
        return found

    def close(self) -> None:
        """Leave the cluster; it goes on without us."""
        self._data.release()
        self._client.close()


def _opened(data: bytes) -> Load:
    load: Load = pickle.loads(data)
    return load


def _try_out(load: Load, candidate: Candidate) -> Figures:
    return load.try_out(candidate)
