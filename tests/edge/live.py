"""The live edge under test, in three ways with one face: in a thread on uvloop or asyncio, or as an operator's process."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import uvloop

from sipguard.assembly import assemble, guard_settings
from sipguard.core.controller import OverloadController
from sipguard.core.verdicts import Change, Cycle
from sipguard.edge.edge import Edge, EdgeSettings
from sipguard.edge.limits import StreamLimits
from sipguard.guard.guard import Guard
from sipguard.guard.keys import Key, Keyring
from sipguard.guard.status import status_of
from sipguard.manage.config import load_settings
from tests.edge.peers import PATIENCE_S, Address
from tests.peers.guard import Guard as GuardProcess
from tests.peers.process import Child, PeerError, wait_until

T = TypeVar("T")

LOOPS: Mapping[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "uvloop": uvloop.new_event_loop,
    "asyncio": asyncio.new_event_loop,
}

CALM: Mapping[str, object] = {"lc": 10_000, "lcps": 10_000, "tr": 100}
"""Parameters under which nothing is refused."""


class ThreadGuard:
    """An Edge on a loop of its own in a thread of this process.

    flags: keys of a configuration (manage.config), `CALM` below them. problems: what reached the loop's exception handler;
    leaving the context fails when there is any.
    """

    def __init__(self, loop_name: str, **flags: object) -> None:
        self.changes: list[Change] = []
        self.problems: list[str] = []
        self.guard: Guard
        self.edge: Edge
        self._flags = {**CALM, "listen": ["udp:127.0.0.1:0", "tcp:127.0.0.1:0"], **flags}
        self._loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Event
        self._ready: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._thread = threading.Thread(target=self._run, args=(LOOPS[loop_name],), name=f"guard-{loop_name}")

    def __enter__(self) -> ThreadGuard:
        self._thread.start()
        self._ready.result(PATIENCE_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        if kind is None:
            assert not self.problems

    def address(self, transport: str = "udp", number: int = 0) -> Address:
        """Where clients come in."""
        return self._listening(inside=False, transport=transport)[number]

    def inside(self, transport: str = "udp") -> Address:
        """The socket that the upstreams see."""
        return self._listening(inside=True, transport=transport)[0]

    def call(self, what: Callable[[], T]) -> T:
        """Run in the edge's thread, between its other work; the result."""
        answer: concurrent.futures.Future[T] = concurrent.futures.Future()

        def tell() -> None:
            try:
                answer.set_result(what())
            except BaseException as problem:  # carried to the test
                answer.set_exception(problem)

        self._loop.call_soon_threadsafe(tell)
        return answer.result(PATIENCE_S)

    def status(self) -> dict[str, Any]:
        """As /api/v1/status says it, the guard's and the edge's part."""
        return self.call(lambda: {**status_of(self.guard), **self.edge.status()})

    def counter(self, name: str) -> int:
        """One of the edge's counters."""
        return int(self.status()["edge"].get(name, 0))

    def cycles(self) -> list[Cycle]:
        """The cycles evaluated since the last call; evaluates none."""
        controller = self.guard.controller
        return self.call(lambda: controller.advance(now_ns=controller.origin_ns))

    def await_counter(self, name: str, at_least: int = 1) -> int:
        """Wait for a counter of the edge; its value."""
        wait_until(lambda: self.counter(name) >= at_least, PATIENCE_S, f"{name} >= {at_least}")
        return self.counter(name)

    def await_status(self, what: str, true_of: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait until the status is as wanted; the status."""
        wait_until(lambda: true_of(self.status()), PATIENCE_S, what)
        return self.status()

    def unsent(self) -> list[int]:
        """Bytes that each open stream connection holds unsent."""
        connections = self.edge._connections._by_number.values()
        return self.call(lambda: [c._transport.get_write_buffer_size() for c in connections if c._transport])

    def sleeps(self) -> bool:
        """Whether the edge's thread sleeps in its poll, as it must when nothing happens: a loop that spins never does."""
        return sleeps(f"/proc/self/task/{self._thread.native_id}/stat")

    # -- inside ----------------------------------------------------------------------------------------------------

    def _listening(self, *, inside: bool, transport: str) -> list[Address]:
        texts = [text for text in self.edge.addresses(inside=inside) if text.startswith(transport)]
        return [Address.parse(text) for text in texts]

    def _run(self, loop_factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(lambda _, context: self.problems.append(repr(context)))
        self._stop = asyncio.Event()
        try:
            self._build()
        except BaseException as problem:  # carried to the test
            self._ready.set_exception(problem)
            return
        self.edge.start()
        self._ready.set_result(None)
        await self._stop.wait()
        self.edge.stop()
        await asyncio.sleep(0.01)

    def _build(self) -> None:
        settings = load_settings(None, self._flags)
        assembly = assemble(settings, settings.upstream)
        controller = OverloadController(settings.parameters, settings.policy, origin_ns=time.monotonic_ns())
        self.guard = Guard(controller, guard_settings(settings, assembly), Keyring(Key(bytes(range(32)))))
        limits = StreamLimits(
            settings.max_connections,
            settings.max_body,
            round(settings.idle_timeout_s * 1e9),
            round(settings.partial_timeout_s * 1e9),
        )
        edge_settings = EdgeSettings(settings.receive_buffer, limits)
        self.edge = Edge(self.guard, assembly.sockets, edge_settings, self.changes.append)


class Process(GuardProcess):
    """`sipguard run …` as a process; the addresses it really has are in its `ready` line."""

    @classmethod
    def run(
        cls, directory: Path, *arguments: str, limit_descriptors: int = 0, key_directory: Path | None = None
    ) -> Process:
        """Start it with an admin address and a state directory of its own, and wait until it is ready."""
        child = start(
            directory,
            "--admin",
            "127.0.0.1:0",
            *arguments,
            limit_descriptors=limit_descriptors,
            key_directory=key_directory,
        )
        guard = cls("", 0, "", child)
        try:
            wait_until(guard._announced, 20, "the guard's ready line")
        except BaseException as problem:
            child.stop()
            problem.add_note(child.tail())
            raise
        guard.admin = str(guard.line("ready")["admin"])
        return guard

    def line(self, event: str) -> dict[str, Any]:
        """The first log line of an event."""
        return next(line for line in self.log() if line["event"] == event)

    def listening(self, transport: str = "udp", side: str = "listen") -> Address:
        """The first address of a side: listen or inside."""
        return Address.parse(next(text for text in self.line("ready")[side] if text.startswith(transport)))

    def sleeps(self) -> bool:
        """As ThreadGuard.sleeps, for the main thread."""
        return sleeps(f"/proc/{self.child.process.pid}/stat")

    def await_status(self, what: str, true_of: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait until the status is as wanted; that status."""
        found: list[dict[str, Any]] = []

        def look() -> bool:
            found[:] = [self.status()]
            return true_of(found[0])

        try:
            wait_until(look, PATIENCE_S, what)
        except PeerError as problem:
            problem.add_note(repr(found))
            raise
        return found[0]

    def _announced(self) -> bool:
        if not self.child.running:
            raise PeerError(f"the guard ended with {self.child.process.returncode}:\n{self.child.tail()}")
        return any(line["event"] == "ready" for line in self.log())


def start(directory: Path, *arguments: str, limit_descriptors: int = 0, key_directory: Path | None = None) -> Child:
    """`sipguard run ARGUMENTS`, not waited for. limit_descriptors: RLIMIT_NOFILE, soft and hard; 0 leaves it."""
    directory.mkdir(parents=True, exist_ok=True)
    argv: Sequence[str] = [sys.executable, "-m", "sipguard", "run", *arguments]
    if limit_descriptors:
        argv = ["sh", "-c", f'ulimit -n {limit_descriptors}; exec "$@"', "sh", *argv]
    state = {"STATE_DIRECTORY": str(key_directory or directory / "state")}
    return Child.start("sipguard", argv, directory, {**state, "COLUMNS": "200", "NO_COLOR": "1"})


def sleeps(stat: str) -> bool:
    """Of 40 looks at a thread's state, nearly all find it sleeping. The state, not CPU: a loaded machine changes nothing."""
    asleep = 0
    for _ in range(40):
        with open(stat, "rb") as file:
            asleep += file.read().rpartition(b") ")[2][:1] == b"S"
        time.sleep(0.005)
    return asleep >= 30


def descriptors(pid: int | str = "self") -> int:
    """Open descriptors of a process."""
    return len(os.listdir(f"/proc/{pid}/fd"))
