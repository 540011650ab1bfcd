"""One JSON line on stderr for each change of state, start, readiness, stop and warning. Nothing per packet."""

from __future__ import annotations

import json
import select
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TextIO

from sipguard.core.verdicts import Change

#: A pipe that polls writable takes this much without blocking (POSIX PIPE_BUF on Linux); longer lines are cut.
MAX_LINE = 4096
_CUT = 512


class EventLog:
    """Structured lines, one JSON object each, every one with `event`, `time_ns` (monotonic) and `at` (ISO 8601, UTC).

    It fails toward the guard: a reader that does not read loses lines, never time. The next line that gets out says how
    many are missing (`lost`).
    """

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._monotonic_ns = monotonic_ns
        self._wall_ns = wall_ns
        self.lost = 0

    def state(self, change: Change, *, shadow: bool) -> None:
        """One change of state with the figures that made it. `time_ns` is the change's own, `at` follows from it."""
        self._write(
            "state",
            change.time_ns,
            {
                "from": change.before.value,
                "to": change.after.value,
                "rps": change.rps,
                "lc": change.lc,
                "patience_run": change.patience_run,
                "relax_run": change.relax_run,
                "cause": change.cause,
                "shadow": shadow,
            },
        )

    def start(self, **fields: object) -> None:
        """The process begins: version, parameters, policy."""
        self._write("start", self._monotonic_ns(), fields)

    def ready(self, **fields: object) -> None:
        """All sockets are open: the listeners, the admin address."""
        self._write("ready", self._monotonic_ns(), fields)

    def stop(self, **fields: object) -> None:
        """The process ends: the totals."""
        self._write("stop", self._monotonic_ns(), fields)

    def warning(self, text: str, **fields: object) -> None:
        """Something an operator should look at, in a sentence."""
        self._write("warning", self._monotonic_ns(), {"text": text, **fields})

    # -- inside --------------------------------------------------------------------------------------------------------

    def _write(self, event: str, time_ns: int, fields: dict[str, object]) -> None:
        record: dict[str, object] = {"event": event, "time_ns": time_ns, "at": self._at(time_ns), **fields}
        if self.lost:
            record["lost"] = self.lost
        line = json.dumps(record, default=str)
        if len(line) >= MAX_LINE:
            line = json.dumps({"event": event, "time_ns": time_ns, "at": record["at"], "cut": line[:_CUT]})
        try:
            if not _takes_a_line(self._stream):
                self.lost += 1
                return
            self._stream.write(line + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            # A closed stderr must not end the guard.
            self.lost += 1
        else:
            self.lost = 0

    def _at(self, time_ns: int) -> str:
        """The wall clock when the monotonic one showed time_ns."""
        wall_us = (self._wall_ns() - (self._monotonic_ns() - time_ns)) // 1000
        seconds, micros = divmod(wall_us, 1_000_000)
        moment = datetime.fromtimestamp(seconds, UTC).replace(microsecond=micros)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _takes_a_line(stream: TextIO) -> bool:
    """Whether a line can be written without waiting; a stream without a descriptor always takes it."""
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):
        return not stream.closed
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return any(events & select.POLLOUT for _, events in poll.poll(0))
