"""A child process with lines on a pipe, in a process group of its own, ended by its own pid and by nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections import deque
from collections.abc import Callable

_LAST_LINES = 20
_TERM_S = 3.0


class Child:
    """`python -m module arguments…`; each line of stdout and stderr goes to `on_line`.

    It has its own session, so that Ctrl-C in the terminal reaches only the parent, which then ends it in order.
    last_lines: what it said last, for an error message.
    """

    def __init__(self, module: str, *arguments: str, on_line: Callable[[str], None]) -> None:
        self.last_lines: deque[str] = deque(maxlen=_LAST_LINES)
        self._command = (sys.executable, "-m", module, *arguments)
        self._on_line = on_line
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        pid = self._process.pid if self._process is not None else None
        return f"<Child {' '.join(self._command[1:3])} pid={pid} returncode={self.returncode}>"

    @property
    def returncode(self) -> int | None:
        """None while it runs."""
        return self._process.returncode if self._process is not None else None

    async def start(self) -> None:
        """Raises OSError when it cannot be started."""
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        self._reader = asyncio.create_task(self._read())

    def say(self, line: str) -> None:
        """One line on its stdin; lost when it is gone."""
        if self._process is not None and self._process.stdin is not None and self.returncode is None:
            with contextlib.suppress(ConnectionError, RuntimeError):
                self._process.stdin.write(line.encode() + b"\n")

    async def finished(self, within_s: float) -> bool:
        """Wait for it to end by itself, with all of its lines read; False when it has not."""
        if self._process is None or self._reader is None:
            return True
        try:
            async with asyncio.timeout(within_s):
                await self._process.wait()
                await self._reader
        except TimeoutError:
            return False
        return True

    async def stop(self) -> None:
        """SIGTERM, and SIGKILL when that does not help. May be called twice, and before `start`."""
        process = self._process
        if process is None or self._reader is None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(number)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_TERM_S):
                        await process.wait()
        if not await self.finished(_TERM_S):
            self._reader.cancel()

    def kill(self) -> None:
        """SIGKILL, without waiting; nothing when it has ended."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    async def _read(self) -> None:
        assert self._process is not None
        stdout = self._process.stdout
        assert stdout is not None
        while True:
            try:
                line = await stdout.readline()
            except ValueError:
                continue  # longer than the reader's limit: not one of ours
            if not line:
                return
            text = line.decode("utf-8", "replace").rstrip()
            self.last_lines.append(text)
            self._on_line(text)
