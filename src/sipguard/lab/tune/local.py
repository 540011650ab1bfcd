"""Candidates tried in processes of this machine."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from types import TracebackType

from sipguard.lab.tune.figures import Candidate, Figures, Load

_load: Load | None = None


class LocalBench:
    """A pool of processes that each have the load; one of a single process is this one. Close it, or use `with`."""

    __slots__ = ("_load", "_pool")

    def __init__(self, load: Load, processes: int) -> None:
        self._load = load
        # spawn: the parent may have threads (a progress bar, a cluster's client), which a fork would cut off.
        self._pool = (
            ProcessPoolExecutor(processes, get_context("spawn"), initializer=_begin, initargs=(load,))
            if processes > 1
            else None
        )

    def __repr__(self) -> str:
        return f"<LocalBench {self._load!r}>"

    def __enter__(self) -> LocalBench:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def try_all(self, candidates: Sequence[Candidate]) -> list[Figures]:
        """In the order given. Raises BrokenProcessPool when a process dies."""
        if self._pool is None:
            return [self._load.try_out(candidate) for candidate in candidates]
        return list(self._pool.map(_try_out, candidates))

    def close(self) -> None:
        """End the processes; what they have not begun is not done."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


def _begin(load: Load) -> None:
    global _load
    _load = load


def _try_out(candidate: Candidate) -> Figures:
    assert _load is not None
    return _load.try_out(candidate)
