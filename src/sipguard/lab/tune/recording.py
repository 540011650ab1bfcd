"""An input's requests as arrays, to be judged again and again: 17 bytes a request, the method reduced to what the law asks."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from sipguard.core.parameters import Parameters
from sipguard.core.policy import Policy
from sipguard.lab.capture.records import Request
from sipguard.lab.replay import Event
from sipguard.lab.sim.arrays import Codes, Ints
from sipguard.lab.study import Study
from sipguard.shown import duration

#: Bits of a code: what the law may do to the method (SPEC V1).
REFUSABLE, DROPPABLE = 1, 2
#: What can be tuned on: its windows are kept one by one.
MAX_DURATION_NS = 7 * 86_400 * 1_000_000_000


class RecordingError(ValueError):
    """An input that cannot be tuned on; the text says what is allowed."""


class Recording(NamedTuple):
    """Rows in order of time: times_ns since the origin (never going back, SPEC M4), codes of REFUSABLE and DROPPABLE,
    counts ≥ 1 (requests at that instant). end_ns: how long was listened; the windows that end by then are evaluated."""

    times_ns: Ints
    codes: Codes
    counts: Ints
    end_ns: int

    @property
    def requests(self) -> int:
        return int(self.counts.sum())


class Recorder(Study):
    """A study that keeps the requests in place of judging them; `feed` fills it as any other."""

    __slots__ = ("_bits", "_codes", "_counts", "_policy", "_times_ns", "end_ns")

    def __init__(self, policy: Policy, origin_ns: int = 0) -> None:
        super().__init__([(Parameters(), policy)], origin_ns)
        self._policy = policy
        self._bits: dict[str, int] = {}
        self._times_ns, self._codes, self._counts = array("q"), array("b"), array("q")
        self.end_ns = 0

    def run_requests(self, requests: Iterable[Request]) -> None:
        """Requests of captures, in the order of the capture. Raises RecordingError at one beyond MAX_DURATION_NS."""
        for request in requests:
            time_ns = request.time_ns - self.origin_ns
            if time_ns < 0:
                self.early += 1
                continue
            self._add(time_ns, request.method, 1)

    def run_events(self, events: Iterable[Event]) -> None:
        """Rows of events, in their order; one of no requests says nothing. Raises as `run_requests`."""
        for event in events:
            if event.requests:
                self._add(event.time_ns, event.method, event.requests)

    def close(self, until_ns: int | None) -> None:
        """The input has ended. until_ns: ns since the origin, None: at the last request."""
        self.end_ns = max(self.last_ns, until_ns or 0)

    def recording(self, instead: str = "empty") -> Recording:
        """What was recorded. instead: what else the input had. Raises RecordingError for no request, or over a week."""
        if not self._times_ns:
            raise RecordingError(f"no SIP request in the input ({instead}): allowed is at least one")
        if self.end_ns > MAX_DURATION_NS:
            raise _too_long(self.end_ns)
        return Recording(
            np.frombuffer(self._times_ns, np.int64),
            np.frombuffer(self._codes, np.int8),
            np.frombuffer(self._counts, np.int64),
            self.end_ns,
        )

    def _add(self, time_ns: int, method: str, n: int) -> None:
        if time_ns > MAX_DURATION_NS:
            raise _too_long(time_ns)
        if time_ns < self.last_ns:
            self._went_back(self.last_ns - time_ns)
            time_ns = self.last_ns
        self.last_ns = time_ns
        self._times_ns.append(time_ns)
        bits = self._bits.get(method)
        self._codes.append(self._bits_of(method) if bits is None else bits)
        self._counts.append(n)

    def _bits_of(self, method: str) -> int:
        policy = self._policy
        # ACK is never answered, whatever is set (SPEC V1).
        refusable = REFUSABLE if method in policy.refuse_methods and method != "ACK" else 0
        bits = refusable | (DROPPABLE if method in policy.drop_methods else 0)
        # A flood may invent a method for each request: only those that the policy names are kept.
        if bits:
            self._bits[method] = bits
        return bits


def _too_long(duration_ns: int) -> RecordingError:
    return RecordingError(f"the input lasts {duration(duration_ns)}: allowed is at most {duration(MAX_DURATION_NS)}")
