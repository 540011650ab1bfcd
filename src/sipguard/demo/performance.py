"""One performance: the guard, the load, the walk between them, and everything that was recorded of it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from sipguard.core.levels import State
from sipguard.core.meters import SECOND_NS
from sipguard.demo.process import Child
from sipguard.demo.recorder import Reading, Recorder
from sipguard.demo.subject import Subject
from sipguard.demo.tally import Tally
from sipguard.demo.walk import PARAMETERS, WALK, Step
from sipguard.lab.plots import Sample

_WINDOW_NS = PARAMETERS.window_ns
_AFTER_NS = _WINDOW_NS // 25
_GLANCE_S = 0.02
_LEAD_NS = 50_000_000
_DRAIN_S = 5.0


class Moment(NamedTuple):
    """What a view shows: the newest reading and sample, and what the clients have seen so far."""

    elapsed_s: float
    step: Step
    reading: Reading
    sample: Sample
    tally: Tally


class Performance:
    """Plays the walk once. begun: the steps and when each began, on the guard's clock.

    on_step, on_moment: called as it goes, the second one each TR.
    """

    def __init__(
        self,
        state_dir: Path,
        log: Path,
        *,
        on_step: Callable[[Step, float], None],
        on_moment: Callable[[Moment], None],
    ) -> None:
        self.subject = Subject(PARAMETERS, state_dir, log)
        self.recorder = Recorder()
        self.tally = Tally()
        self.begun: list[tuple[Step, int]] = []
        self.skipped = 0
        self._load: Child | None = None
        self._on_step = on_step
        self._on_moment = on_moment

    def __repr__(self) -> str:
        return f"<Performance {self.begun[-1:]!r} {self.subject!r}>"

    async def play(self) -> None:
        """All of it; whatever happens, no child is left. Raises DemoError when the guard fails."""
        try:
            await self.subject.start()
            self._load = Child("sipguard.demo.load", self.subject.listen, on_line=self._heard)
            await self._load.start()
            await self._walk_watched()
            self._load.say("quit")
            await self._load.finished(_DRAIN_S)
        finally:
            await self._stop()

    def began_ns(self, name: str) -> int:
        """When the step of this name began, on the guard's clock; the end of the recording when it never did."""
        last = self.recorder.last
        end_ns = last.now_ns if last is not None else self.subject.origin_ns
        return next((at_ns for step, at_ns in self.begun if step.name == name), end_ns)

    async def _stop(self) -> None:
        try:
            if self._load is not None:
                await self._load.stop()
            await self.subject.stop()
        finally:
            # Impatience (a second Ctrl-C) must not leave a child behind either.
            if self._load is not None:
                self._load.kill()
            self.subject.kill()

    async def _walk_watched(self) -> None:
        """The walk to its end, or until watching finds that the guard has died."""
        tasks = (asyncio.create_task(self._walk()), asyncio.create_task(self._watch()))
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _walk(self) -> None:
        for step in WALK:
            start_ns = time.monotonic_ns()
            if step.on_second:
                # The children share this clock (CLOCK_MONOTONIC); the guard's seconds run from its origin.
                since_ns = start_ns + _LEAD_NS - self.subject.origin_ns
                start_ns = self.subject.origin_ns - (-since_ns // SECOND_NS) * SECOND_NS
            assert self._load is not None
            self._load.say(f"rate {step.rate} {start_ns}")
            await asyncio.sleep(max(0, start_ns - time.monotonic_ns()) / SECOND_NS)
            self.begun.append((step, start_ns))
            self._on_step(step, self._elapsed_s(start_ns))
            if step.state is not None:
                await self._reach(step.state, step.wait_s)
            await asyncio.sleep(step.hold_s)

    async def _reach(self, state: State, within_s: float) -> None:
        """Until the guard tells of this state; what is not reached is told at the end."""
        deadline_ns = time.monotonic_ns() + int(within_s * SECOND_NS)
        while self.subject.state is not state and time.monotonic_ns() < deadline_ns:
            await asyncio.sleep(_GLANCE_S)

    async def _watch(self) -> None:
        """A reading just after each window's end: then what the kernel dropped in it is known and the level evaluated."""
        while True:
            since_ns = time.monotonic_ns() - self.subject.origin_ns
            wait_ns = _WINDOW_NS - (since_ns - _AFTER_NS) % _WINDOW_NS
            await asyncio.sleep(wait_ns / SECOND_NS)
            status = await self.subject.status()
            sample = self.recorder.add(status) if status is not None else None
            reading = self.recorder.last
            if sample is not None and reading is not None and self.begun:
                self._on_moment(Moment(self._elapsed_s(reading.now_ns), self.begun[-1][0], reading, sample, self.tally))

    def _elapsed_s(self, now_ns: int) -> float:
        return (now_ns - self.subject.origin_ns) / SECOND_NS

    def _heard(self, line: str) -> None:
        try:
            report = json.loads(line)
            self.tally = Tally(report["rows"])
            self.skipped = report["skipped"]
        except (ValueError, KeyError, TypeError):
            return
