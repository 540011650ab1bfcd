"""One server as a bounded FIFO queue; its departures are known at arrival, and a crash takes them back."""

from __future__ import annotations

from collections import deque

import numpy as np

from sipguard.lab.sim import scenario
from sipguard.lab.sim.arrays import Bools, Floats, Ints, joined
from sipguard.lab.sim.methods import METHODS

_SECOND_NS = 1_000_000_000
#: A request the queue had no room for.
OVERFLOW = -1
_NEVER = 1 << 62
#: No service is longer: no run lasts that long (ten days).
_LONGEST_NS = 864_000 * _SECOND_NS


class Server:
    """Serves requests in order of arrival, one at a time.

    life: how often it has started; what it remembers of requests is of one life. busy_ns: time at work. waited_ns,
    accepted: the sum of waits before service, and of how many requests.
    """

    def __init__(self, spec: scenario.Server, random: np.random.Generator) -> None:
        self.spec = spec
        self.life = 0
        self.busy_ns = self.waited_ns = self.accepted = 0
        self.costs: Floats = np.array([spec.costs.get(method, 1.0) for method in METHODS])
        self._random = random
        self._mean_ns = _SECOND_NS / spec.capacity
        self._free_ns = 0
        self._up_ns = 0
        self._slow = 1.0
        self._slow_until_ns = 0
        # Departure times of what is inside, for its number; departures and ids in order, for their answers.
        self._inside: deque[int] = deque()
        self._leaving: deque[tuple[Ints, Ints]] = deque()

    def __repr__(self) -> str:
        return f"<Server {self.spec.name} {len(self._inside)} inside, free at {self._free_ns} ns>"

    @property
    def inside(self) -> int:
        """Requests in it as of the last arrival."""
        return len(self._inside)

    def serve(self, times_ns: Ints, ids: Ints, costs: Floats) -> Ints:
        """When each of these arrivals (in order of time) will have been served, or OVERFLOW."""
        if int(times_ns[-1]) < self._up_ns:
            return np.full(len(times_ns), OVERFLOW)
        work = costs * self._mean_ns
        if self.spec.service == "exponential":
            work *= self._random.standard_exponential(len(costs))
        if int(times_ns[0]) < self._slow_until_ns:
            work[times_ns < self._slow_until_ns] *= self._slow
        work = np.clip(work, 1, _LONGEST_NS)
        leaves = _as_times(self._queue(times_ns.tolist(), work.astype(np.int64).tolist()))
        taken = leaves != OVERFLOW
        self._leaving.append((leaves[taken], ids[taken]))
        return leaves

    def leave(self, before_ns: int) -> tuple[Ints, Ints]:
        """Departures before this time that were not told yet: times and ids, in order."""
        times: list[Ints] = []
        ids: list[Ints] = []
        while self._leaving:
            part_times, part_ids = self._leaving[0]
            if len(part_times) and part_times[-1] >= before_ns:
                cut = int(np.searchsorted(part_times, before_ns))
                if cut:
                    times.append(part_times[:cut])
                    ids.append(part_ids[:cut])
                    self._leaving[0] = (part_times[cut:], part_ids[cut:])
                break
            self._leaving.popleft()
            times.append(part_times)
            ids.append(part_ids)
        return joined(times), joined(ids)

    def crash(self, now_ns: int, restart: scenario.Restart) -> Ints:
        """It dies now and is away for a while; the ids of the requests lost in it."""
        # It may die again while it is away: then it was not at work, and is back when the later restart is.
        self.busy_ns = self.busy_by(now_ns)
        self._up_ns = self._free_ns = max(self._up_ns, now_ns + int(restart.away_s * _SECOND_NS))
        self._slow, self._slow_until_ns = restart.slow, self._up_ns + int(restart.slow_s * _SECOND_NS)
        self.life += 1
        self._inside.clear()
        answered, lost = [], []
        for times, ids in self._leaving:
            kept = times <= now_ns
            answered.append((times[kept], ids[kept]))
            lost.append(ids[~kept])
        self._leaving = deque(answered)
        return joined(lost)

    def up_at(self, times_ns: Ints) -> Bools:
        """Whether it is there at these times."""
        return times_ns >= self._up_ns

    def busy_by(self, now_ns: int) -> int:
        """Time at work until then; what is inside will take longer."""
        return self.busy_ns - max(0, self._free_ns - max(now_ns, self._up_ns))

    def oldest(self) -> int | None:
        """The lowest id in it; None when it is empty."""
        lowest = [int(ids.min()) for _, ids in self._leaving if len(ids)]
        return min(lowest, default=None)

    def _queue(self, times_ns: list[int], work_ns: list[int]) -> list[int]:
        inside, thrash = self._inside, self.spec.thrash / self.spec.queue
        refuse_ns = int(self.spec.refuse_cost * self._mean_ns) if self.spec.full == "refuse" else 0
        free_ns, up_ns, waited_ns, busy_ns = self._free_ns, self._up_ns, 0, 0
        room = self.spec.queue - len(inside)
        next_ns = inside[0] if inside else _NEVER
        leaves = []
        for time_ns, need_ns in zip(times_ns, work_ns, strict=True):
            while next_ns <= time_ns:
                inside.popleft()
                room += 1
                next_ns = inside[0] if inside else _NEVER
            if not room or time_ns < up_ns:
                leaves.append(OVERFLOW)
                if refuse_ns and time_ns >= up_ns:
                    free_ns += refuse_ns
                    busy_ns += refuse_ns
                continue
            takes_ns = int(need_ns * (1 + thrash * len(inside))) if thrash else need_ns
            if free_ns > time_ns:
                waited_ns += free_ns - time_ns
                free_ns += takes_ns
            else:
                free_ns = time_ns + takes_ns
            busy_ns += takes_ns
            if not inside:
                next_ns = free_ns
            inside.append(free_ns)
            room -= 1
            leaves.append(free_ns)
        self._free_ns = free_ns
        self.waited_ns += waited_ns
        self.busy_ns += busy_ns
        self.accepted += len(leaves) - leaves.count(OVERFLOW)
        return leaves


def _as_times(times_ns: list[int]) -> Ints:
    """As an array; what a long queue before a slow server puts beyond all counting is never."""
    try:
        return np.array(times_ns, np.int64)
    except OverflowError:
        return np.array([min(time_ns, _NEVER) for time_ns in times_ns], np.int64)
