"""The guard under demonstration: a `sipguard run` of its own, followed by its log lines and its status page."""

from __future__ import annotations

import asyncio
import http.client
import json
from pathlib import Path
from typing import Any

from sipguard.core.levels import State
from sipguard.core.parameters import Parameters
from sipguard.core.verdicts import Change
from sipguard.demo.process import Child

_READY_S = 20.0
_STATUS_S = 2.0


class DemoError(RuntimeError):
    """The demonstration cannot go on; the text says why."""


class Subject:
    """The guard's process. changes: every change of state it has told, on its own clock.

    listen: its UDP address "host:port", origin_ns: its origin; both after `start`.
    """

    def __init__(self, parameters: Parameters, state_dir: Path, log: Path) -> None:
        self.changes: list[Change] = []
        self.listen = ""
        self.origin_ns = 0
        self._admin = ("", 0)
        self._log = log
        self._ready = asyncio.Event()
        flags = (f"--{name.lower()}={value}" for name, value in parameters.as_dict().items())
        self._child = Child(
            "sipguard",
            "run",
            "--listen=udp:127.0.0.1:0",
            "--admin=127.0.0.1:0",
            f"--state-dir={state_dir}",
            *flags,
            on_line=self._heard,
        )

    def __repr__(self) -> str:
        return f"<Subject {self.listen} {self._child!r} {len(self.changes)} changes>"

    @property
    def state(self) -> State:
        """The state by the last change told."""
        return self.changes[-1].after if self.changes else State.NORMAL

    async def start(self) -> None:
        """Until it serves. Raises DemoError, with its own last words, when it does not."""
        self._log.write_text("")
        await self._child.start()
        ended = asyncio.create_task(self._child.finished(_READY_S))
        ready = asyncio.create_task(self._ready.wait())
        try:
            await asyncio.wait((ended, ready), return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended.cancel()
            ready.cancel()
        if not self._ready.is_set():
            raise DemoError(
                "the guard did not start:\n  " + "\n  ".join(self._child.last_lines or ["(it said nothing)"])
            )

    async def stop(self) -> None:
        """End it; may be called twice."""
        await self._child.stop()

    def kill(self) -> None:
        """End it at once."""
        self._child.kill()

    async def status(self) -> dict[str, Any] | None:
        """GET /api/v1/status; None when it does not answer now. Raises DemoError when its process has ended."""
        if self._child.returncode is not None:
            raise DemoError(
                f"the guard ended by itself (code {self._child.returncode}):\n  " + "\n  ".join(self._child.last_lines)
            )
        return await asyncio.to_thread(_fetch, self._admin)

    def _heard(self, line: str) -> None:
        with self._log.open("a") as log:
            log.write(line + "\n")
        try:
            event = json.loads(line)
        except ValueError:
            return
        match event:
            case {"event": "ready", "listen": [str(listen), *_], "admin": str(admin), "origin_ns": int(origin_ns)}:
                self.listen = listen.removeprefix("udp:")
                host, _, port = admin.rpartition(":")
                self._admin = (host, int(port))
                self.origin_ns = origin_ns
                self._ready.set()
            case {"event": "state"}:
                self.changes.append(_change(event))


def _change(event: dict[str, Any]) -> Change:
    return Change(
        time_ns=event["time_ns"],
        before=State(event["from"]),
        after=State(event["to"]),
        rps=event["rps"],
        lc=event["lc"],
        patience_run=event["patience_run"],
        relax_run=event["relax_run"],
        cause=event["cause"],
    )


def _fetch(address: tuple[str, int]) -> dict[str, Any] | None:
    connection = http.client.HTTPConnection(*address, timeout=_STATUS_S)
    try:
        connection.request("GET", "/api/v1/status")
        response = connection.getresponse()
        found = json.loads(response.read()) if response.status == 200 else None
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()
    return found if isinstance(found, dict) and "now_ns" in found else None
