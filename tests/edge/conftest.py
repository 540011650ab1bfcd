"""One test body, two loops: `start` runs the edge on uvloop, then on asyncio. `launch` runs it as a process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.edge.live import LOOPS, Process, ThreadGuard
from tests.edge.peers import StreamServer, UdpPeer

Start = Callable[..., ThreadGuard]
Launch = Callable[..., Process]


@pytest.fixture(params=sorted(LOOPS))
def start(request: pytest.FixtureRequest) -> Iterator[Start]:
    """`start(upstream=[…], lc=…)`: a running edge, ended with the test."""
    with contextlib.ExitStack() as stack:
        yield lambda **flags: stack.enter_context(ThreadGuard(request.param, **flags))


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """`launch("--lc", "10", …)`: a running process, ended with the test; it must end in order and without a traceback."""
    guards: list[Process] = []

    def run(*arguments: str, **options: object) -> Process:
        guards.append(Process.run(tmp_path / f"guard{len(guards)}", *arguments, **options))  # type: ignore[arg-type]
        return guards[-1]

    yield run
    codes = [guard.child.stop() for guard in guards]
    for guard, code in zip(guards, codes, strict=True):
        assert code == 0, guard.child.tail()
        assert "Traceback" not in guard.child.text(), guard.child.tail(60)


@pytest.fixture
def server() -> Iterator[UdpPeer]:
    """A UDP upstream."""
    with UdpPeer() as peer:
        yield peer


@pytest.fixture
def stream_server() -> Iterator[StreamServer]:
    """A TCP upstream."""
    with StreamServer() as peer:
        yield peer


@pytest.fixture
def client() -> Iterator[UdpPeer]:
    """A UDP client."""
    with UdpPeer() as peer:
        yield peer
