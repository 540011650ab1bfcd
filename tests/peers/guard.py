"""The guard as an operator runs it: `sipguard run …` as a process between the peers, read over its HTTP API and its log."""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.peers.process import Child, PeerError, host_port, wait_until

#: A flag's value: True for one that takes none, a tuple for one that is given several times.
Value = str | int | bool | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """A change of state as the guard logged it."""

    time_ns: int  # the guard's monotonic clock (CLOCK_MONOTONIC, the machine's own), on its grid
    before: str
    after: str
    rps: int
    patience_run: int  # cycles
    relax_run: int  # cycles
    line: dict[str, Any]  # the whole line


@dataclass(slots=True)
class Guard:
    """A running guard."""

    host: str
    port: int
    admin: str  # host:port
    child: Child

    @classmethod
    def start(
        cls,
        directory: Path,
        *,
        port: int,
        admin_port: int,
        upstreams: Sequence[str],
        parameters: Mapping[str, Value],
        host: str = "127.0.0.1",
    ) -> Guard:
        """Start it on UDP and TCP and wait for /readyz.

        `upstreams` are host:port[,weight=N], each given for both transports; `parameters` are flags by their names (lc=100,
        shed="all", shadow=True, inside=("udp:…", "tcp:…")).
        """
        admin = f"127.0.0.1:{admin_port}"
        listen = host_port(host, port)
        argv = [sys.executable, "-m", "sipguard", "run", "--listen", f"udp:{listen}", "--listen", f"tcp:{listen}"]
        for upstream in upstreams:
            argv += ["--upstream", f"udp:{upstream}", "--upstream", f"tcp:{upstream}"]
        argv += ["--admin", admin]
        for name, value in parameters.items():
            flag = f"--{name.replace('_', '-')}"
            for each in value if isinstance(value, tuple) else (value,):
                argv += [flag] if each is True else [flag, str(each)]
        guard = cls(host, port, admin, Child.start("sipguard", argv, directory, {"STATE_DIRECTORY": str(directory)}))
        try:
            wait_until(guard._is_ready, 15, "the guard's /readyz")
        except BaseException as problem:
            guard.child.stop()
            problem.add_note(guard.child.tail())
            raise
        return guard

    @property
    def address(self) -> str:
        return host_port(self.host, self.port)

    def status(self) -> dict[str, Any]:
        """GET /api/v1/status."""
        with urllib.request.urlopen(f"http://{self.admin}/api/v1/status", timeout=5) as answer:
            document = json.load(answer)
        assert isinstance(document, dict)
        return document

    @property
    def state(self) -> str:
        return str(self.status()["state"])

    def await_state(self, state: str, timeout_s: float = 10) -> None:
        """Until the status says `state`."""
        wait_until(lambda: self.state == state, timeout_s, f"state {state}")

    def log(self) -> list[dict[str, Any]]:
        """Its structured log: every output line that is a JSON object."""
        lines = []
        for text in self.child.text().splitlines():
            if text.startswith("{"):
                line = json.loads(text)
                assert isinstance(line, dict)
                lines.append(line)
        return lines

    def changes(self) -> list[Change]:
        """Its changes of state so far, in order."""
        return [
            Change(
                time_ns=int(line["time_ns"]),
                before=str(line["from"]),
                after=str(line["to"]),
                rps=int(line["rps"]),
                patience_run=int(line["patience_run"]),
                relax_run=int(line["relax_run"]),
                line=line,
            )
            for line in self.log()
            if "from" in line and "to" in line and "time_ns" in line
        ]

    def stop(self) -> int:
        """SIGTERM; its exit code, 0 when it ended in order."""
        return self.child.stop()

    def _is_ready(self) -> bool:
        if not self.child.running:
            raise PeerError(f"the guard ended with {self.child.process.returncode}")
        try:
            with urllib.request.urlopen(f"http://{self.admin}/readyz", timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False
