"""Candidates tried in processes of this machine."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from threading import Thread
from types import TracebackType

from sipguard.lab.tune.figures import Candidate, Figures, Load
from sipguard.lab.tune.interrupts import interrupts_wait

_load: Load | None = None


class LocalBench:
    """A pool of processes that each have the load; one of a single process is this one. Close it, or use `with`.

    Whatever ends this process ends them: an interrupt (which they do not hear themselves), an error, a kill.
    """

    __slots__ = ("_load", "_others", "_pool")

    def __init__(self, load: Load, processes: int) -> None:
        self._load = load
        self._others = set(multiprocessing.active_children())
        # spawn: the parent may have threads (a progress bar, a cluster's client), which a fork would cut off.
        self._pool = (
            ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), initializer=_begin, initargs=(load,))
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

    def try_all(self, candidates: Sequence[Candidate]) -> Iterator[Figures]:
        """In the order given. Raises BrokenProcessPool when a process dies."""
        if self._pool is None:
            return map(self._load.try_out, candidates)
        return (future.result() for future in self._begun(self._pool, candidates))

    def close(self) -> None:
        """End the processes, also in the middle of a candidate."""
        # Looked up anew: a pool begins its processes one by one, as there is work for them.
        for child in multiprocessing.active_children():
            if child not in self._others:
                child.terminate()
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def _begun(self, pool: ProcessPoolExecutor, candidates: Sequence[Candidate]) -> list[Future[Figures]]:
        # The pool begins its processes when it gets its first work; interrupted half-way it would never end them.
        with interrupts_wait():
            return [pool.submit(_try_out, candidate) for candidate in candidates]


def _begin(load: Load) -> None:
    global _load
    _load = load
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    # A parent that was killed closes nothing, and each worker holds the queue's other end itself.
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _try_out(candidate: Candidate) -> Figures:
    assert _load is not None
    return _load.try_out(candidate)
