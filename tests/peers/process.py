"""One child process of a test: started with its output in a file, ended by its id."""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

# Below Linux's ephemeral range (32768…), so that no outgoing socket of another process takes a port between choice and use.
_FIRST_PORT, _LAST_PORT = 20_000, 32_000

_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


class PeerError(AssertionError):
    """A peer is missing, did not start, or did not end as it should."""


def executable(name: str) -> str:
    """The path of a peer's program; PeerError when it is not installed: a missing peer is a failure, never a skip."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin:/usr/local/sbin")
    if found is None:
        raise PeerError(f"{name} is not installed (scripts/install-peers says how)")
    return found


def free_port(host: str = "127.0.0.1") -> int:
    """A port free for UDP and for TCP on `host` at this moment."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for _ in range(200):
        port = random.randint(_FIRST_PORT, _LAST_PORT)
        with socket.socket(family, socket.SOCK_DGRAM) as udp, socket.socket(family, socket.SOCK_STREAM) as tcp:
            try:
                udp.bind((host, port))
                tcp.bind((host, port))
            except OSError:
                continue
            return port
    raise PeerError(f"no free port on {host}")


def host_port(host: str, port: int) -> str:
    """An address as it stands in a URI and on a command line: IPv6 in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def wait_until(ready: Callable[[], bool], timeout_s: float, what: str, *, pause_s: float = 0.02) -> None:
    """Poll `ready` until it is true; PeerError naming `what` after `timeout_s`."""
    deadline_s = time.monotonic() + timeout_s
    while not ready():
        if time.monotonic() > deadline_s:
            raise PeerError(f"not within {timeout_s:g} s: {what}")
        time.sleep(pause_s)


def _end_with_the_parent() -> None:
    """In the child: SIGTERM when the tests' process dies without a teardown (killed by a time limit of CI)."""
    if hasattr(_LIBC, "prctl"):
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


@dataclass(slots=True)
class Child:
    """A running child: leader of a session of its own, so that what it forks ends with it."""

    name: str
    process: subprocess.Popen[bytes]
    output: Path  # stdout and stderr together

    @classmethod
    def start(
        cls, name: str, argv: Sequence[str], directory: Path, environment: Mapping[str, str] | None = None
    ) -> Child:
        """Start `argv` in `directory`, its output in `directory`/output.log, with `environment` over our own."""
        output = directory / "output.log"
        with output.open("wb") as sink:
            process = subprocess.Popen(
                argv,
                cwd=directory,
                env={**os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_end_with_the_parent,  # noqa: PLW1509 - one call of libc, no thread of ours runs
            )
        return cls(name, process, output)

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def text(self) -> str:
        """Everything it has written so far."""
        return self.output.read_text("utf-8", "replace")

    def tail(self, lines: int = 25) -> str:
        return "\n".join(self.text().splitlines()[-lines:])

    def wait(self, timeout_s: float) -> int:
        """Its exit code; PeerError with its last lines when it is still running after `timeout_s`."""
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise PeerError(f"{self.name} still runs after {timeout_s:g} s:\n{self.tail()}") from None

    def stop(self, *, signal_number: int = signal.SIGTERM, grace_s: float = 5.0) -> int:
        """End it and what it forked, first politely; its exit code (negative: the signal that ended it)."""
        if self.running:
            self.process.send_signal(signal_number)
            try:
                self.process.wait(grace_s)
            except subprocess.TimeoutExpired:
                self.process.kill()
        code = self.process.wait()
        # Whatever outlived its leader is in the leader's group, which no one else can be in.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        return code
