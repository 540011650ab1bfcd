"""Fair turns for streams: a peer that sends a lot at once delays neither the timer nor anybody else for long."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Protocol

#: Work on streams in one round of the loop; then timers and datagrams have theirs. A fifth of the lateness allowed at TR 100.
TURN_NS = 2_000_000

#: Of it, for one connection while others wait.
SLICE_NS = 500_000


class Worker(Protocol):
    """A connection with something to do. It is held (not read) while it waits for its turn."""

    def work(self, until_ns: int) -> bool:
        """Handle what has come, at least one message, until `until_ns`; whether all of it is done."""
        ...

    def hold(self) -> None:
        """Stop reading."""
        ...

    def release(self) -> None:
        """Read again."""
        ...


class Turns:
    """Lets workers work, in the order in which they came, TURN_NS in all in one round of the loop."""

    __slots__ = ("_loop", "_until_ns", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._until_ns = 0
        self._waiting: deque[Worker] = deque()

    def take(self, worker: Worker) -> None:
        """Data has come for this worker: it works now if nobody waits and the round has time left, else later."""
        if self._waiting or not worker.work(self._round_ends_ns()):
            worker.hold()
            self._waiting.append(worker)

    def _round_ends_ns(self) -> int:
        if not self._until_ns:
            self._until_ns = time.monotonic_ns() + TURN_NS
            self._loop.call_soon(self._next_round)
        return self._until_ns

    def _next_round(self) -> None:
        self._until_ns = 0
        waiting = self._waiting
        if not waiting:
            return
        until_ns, now_ns = self._round_ends_ns(), time.monotonic_ns()
        while waiting and now_ns < until_ns:
            worker = waiting.popleft()
            if worker.work(min(until_ns, now_ns + SLICE_NS)):
                worker.release()
            else:
                waiting.append(worker)
            now_ns = time.monotonic_ns()
