"""An input under one or several sets of parameters at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from sipguard.core.parameters import Parameters
from sipguard.core.policy import Policy
from sipguard.core.verdicts import Verdict
from sipguard.lab.capture.records import Request
from sipguard.lab.course import Course
from sipguard.lab.replay import Event

#: Sets of parameters side by side.
MAX_SETS = 64

#: Told of each request or row: time as text or ns, method, allowed, refused, dropped.
OnVerdict = Callable[[int | str, str, int, int, int], None]


class Study:
    """Courses fed with the same requests; the first is the one that is told in detail.

    origin_ns: Unix time that is 0 on the courses' clock; 0 for events, which have their own. last_ns: the last
    request's time since the origin. early: requests before the origin, not used. back: requests whose time
    went back (SPEC M4), back_ns: by how much at most.
    """

    __slots__ = ("back", "back_ns", "courses", "early", "last_ns", "on_verdict", "origin_ns")

    def __init__(self, sets: Sequence[tuple[Parameters, Policy]], origin_ns: int = 0) -> None:
        if not 1 <= len(sets) <= MAX_SETS:
            raise ValueError(f"sets of parameters = {len(sets)}: allowed is 1 … {MAX_SETS}")
        self.courses = [Course(parameters, policy, sources=not i) for i, (parameters, policy) in enumerate(sets)]
        self.origin_ns = origin_ns
        self.last_ns = 0
        self.early = self.back = self.back_ns = 0
        self.on_verdict: OnVerdict | None = None

    @property
    def main(self) -> Course:
        """The course of the first set."""
        return self.courses[0]

    def run_requests(self, requests: Iterable[Request]) -> None:
        """Requests of captures, in the order of the capture."""
        origin_ns, on_verdict = self.origin_ns, self.on_verdict
        offer, others = self.main.offer, [course.offer for course in self.courses[1:]]
        last_ns = self.last_ns
        for at_ns, method, source, _ in requests:
            time_ns = at_ns - origin_ns
            if time_ns < last_ns:
                if time_ns < 0:
                    self.early += 1
                    continue
                self._went_back(last_ns - time_ns)
            else:
                last_ns = time_ns
            verdict = offer(time_ns, method, source)
            for other in others:
                other(time_ns, method, source)
            if on_verdict is not None:
                on_verdict(time_ns, method, *self._as_counts(verdict))
        self.last_ns = last_ns

    def run_events(self, events: Iterable[Event]) -> None:
        """Rows of events, in their order."""
        for event in events:
            if event.time_ns < self.last_ns:
                self._went_back(self.last_ns - event.time_ns)
            else:
                self.last_ns = event.time_ns
            counts, *_ = [
                course.offer_many(event.time_ns, event.method, event.requests, event.source) for course in self.courses
            ]
            if self.on_verdict is not None:
                if not self.main.policy.enforce:
                    counts = (event.requests, 0, 0)
                self.on_verdict(event.time_text, event.method, *counts)

    def close(self, until_ns: int | None) -> None:
        """The input has ended: evaluate what ends by until_ns (ns since the origin), if any; then the record is complete."""
        for course in self.courses:
            if until_ns is not None:
                course.advance(until_ns)
            course.finish()

    def _as_counts(self, verdict: Verdict) -> tuple[int, int, int]:
        if verdict is Verdict.ALLOW or not self.main.policy.enforce:
            return 1, 0, 0
        return (0, 1, 0) if verdict is Verdict.REJECT else (0, 0, 1)

    def _went_back(self, by_ns: int) -> None:
        self.back += 1
        self.back_ns = max(self.back_ns, by_ns)
