"""A test's peers: started here, each in a directory of its own, and all ended with the test, however it goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.peers.guard import Guard, Value
from tests.peers.kamailio import Kamailio, Role
from tests.peers.process import Child, free_port, host_port
from tests.peers.sipp import Sipp


class Testbed:
    """SIPp caller → guard → Kamailio → SIPp callee, put together by the test; leave it as a context to end them all."""

    __test__ = False  # not a test class, whatever its name says to pytest

    def __init__(self, directory: Path, host: str = "127.0.0.1") -> None:
        self._directory = directory
        self.host = host  # the loopback address all of it is on
        self._children: list[Child] = []
        self._guards: list[Guard] = []

    def __enter__(self) -> Testbed:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        codes = {id(child): child.stop() for child in reversed(self._children)}
        for child in self._children:
            told = "" if child.name.startswith("sipp") and codes[id(child)] == 0 else child.tail(15)
            print(f"--- {child.name} in {child.output.parent}: exit {codes[id(child)]}\n{told}")
        if kind is None:
            for guard in self._guards:
                assert codes[id(guard.child)] == 0, f"the guard's exit code\n{guard.child.tail()}"
                assert "Traceback" not in guard.child.text(), guard.child.tail(60)

    def callee(self, scenario: str, *, pause_ms: int = 0) -> Sipp:
        """A SIPp that takes calls (UDP)."""
        return self._sipp(scenario, pause_ms=pause_ms, timeout_s=100)

    def caller(self, scenario: str, target: str, *, calls: int, transport: str = "udp", **options: Any) -> Sipp:
        """A SIPp that makes `calls` calls to `target`; options as in Sipp.start."""
        return self._sipp(scenario, target=target, calls=calls, transport=transport, **options)

    def kamailio(self, callee: Sipp | Kamailio | None = None, *, role: Role = Role.STATEFUL) -> Kamailio:
        """A Kamailio in front of `callee` (of another server, when it forwards)."""
        address = host_port(self.host, callee.port) if callee else ""
        kamailio = Kamailio.start(
            self._new("kamailio"), port=free_port(self.host), role=role, callee=address, host=self.host
        )
        self._children.append(kamailio.child)
        return kamailio

    def guard(self, *servers: Kamailio, **parameters: Value) -> Guard:
        """A guard in front of these servers; parameters by their flags' names."""
        upstreams = [server.address for server in servers]
        return self._guard(self._new("guard"), free_port(self.host), upstreams, parameters)

    def restart(self, guard: Guard, upstreams: Sequence[str], **parameters: Value) -> Guard:
        """End a guard and start another in its place: the same address, the same key, these upstreams and parameters."""
        assert guard.stop() == 0
        return self._guard(guard.child.output.parent, guard.port, upstreams, parameters)

    def _guard(self, directory: Path, port: int, upstreams: Sequence[str], parameters: Mapping[str, Value]) -> Guard:
        guard = Guard.start(
            directory, port=port, host=self.host, admin_port=free_port(), upstreams=upstreams, parameters=parameters
        )
        self._children.append(guard.child)
        self._guards.append(guard)
        return guard

    def _sipp(self, scenario: str, **options: Any) -> Sipp:
        sipp = Sipp.start(self._new(scenario), scenario, port=free_port(self.host), host=self.host, **options)
        self._children.append(sipp.child)
        return sipp

    def _new(self, name: str) -> Path:
        directory = self._directory / f"{len(list(self._directory.iterdir())):02d}-{name}"
        directory.mkdir()
        return directory
