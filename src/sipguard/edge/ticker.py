"""The timer that evaluates the level: on an absolute monotonic grid, whatever the traffic does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from sipguard.edge.lateness import Lateness


class Ticker:
    """Calls `tick(now_ns)` when `deadline_ns()` is reached, again and again; measures how late each call is.

    The deadlines are the guard's grid, so lateness never adds up.
    """

    __slots__ = ("_deadline_ns", "_handle", "_loop", "_tick", "lateness")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        deadline_ns: Callable[[], int],
        tick: Callable[[int], None],
    ) -> None:
        self._loop = loop
        self._deadline_ns = deadline_ns
        self._tick = tick
        self._handle: asyncio.TimerHandle | None = None
        self.lateness = Lateness()

    def start(self) -> None:
        """Arm for the next deadline."""
        wait_ns = self._deadline_ns() - time.monotonic_ns()
        self._handle = self._loop.call_later(max(0, wait_ns) / 1e9, self._fire)

    def stop(self) -> None:
        """No call comes after this."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _fire(self) -> None:
        now_ns, deadline_ns = time.monotonic_ns(), self._deadline_ns()
        try:
            # A loop may round its timers down by up to a millisecond: then it is not time yet.
            if now_ns >= deadline_ns:
                self.lateness.note(now_ns - deadline_ns)
                self._tick(now_ns)
        finally:
            # Whatever went wrong in one evaluation (a log, an alarm), the next one comes.
            self.start()
