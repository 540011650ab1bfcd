"""SIPp: own scenarios, bounded in time, its statistics and its message trace read into typed results."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.peers.process import Child, PeerError, executable, wait_until

SCENARIOS = Path(__file__).parent / "scenarios"
TRANSPORTS = {"udp": "u1", "tcp": "t1"}  # one socket for all calls


@dataclass(frozen=True, slots=True)
class Message:
    """One message as SIPp sent or received it (its short message trace)."""

    wall_s: float  # seconds since the epoch, to the microsecond
    sent: bool  # by SIPp
    call_id: str
    cseq: str  # e.g. "1 INVITE"
    start_line: str

    @property
    def is_request(self) -> bool:
        return not self.start_line.startswith("SIP/")

    @property
    def method(self) -> str:
        """A request's method, or that of the request a response answers."""
        return self.start_line.split(" ", 1)[0] if self.is_request else self.cseq.split(" ", 1)[-1]

    @property
    def status(self) -> int:
        """A response's status code; 0 for a request."""
        return 0 if self.is_request else int(self.start_line.split(" ", 2)[1])


@dataclass(frozen=True, slots=True)
class Result:
    """What SIPp says of a run that has ended. `counts` has a column per message of the scenario, e.g. "0_INVITE_Sent"."""

    exit_code: int  # 0: every call succeeded
    calls: int
    successes: int
    failures: int
    retransmissions: int
    unexpected: int  # calls failed by a message the scenario does not expect
    regexp_failures: int  # calls failed by a header that is not as the scenario demands
    counts: dict[str, int]
    errors: str  # its error log
    messages: tuple[Message, ...]

    def sent(self, *methods: str) -> list[Message]:
        """Requests sent, retransmissions included; of these methods, or all."""
        return [m for m in self.messages if m.sent and m.is_request and (not methods or m.method in methods)]

    def received(self, status: int, method: str | None = None) -> list[Message]:
        """Responses received with this status (to this method)."""
        return [
            m
            for m in self.messages
            if not m.sent and not m.is_request and m.status == status and method in (None, m.method)
        ]

    def require_all(self, calls: int) -> None:
        """Every one of `calls` calls succeeded."""
        told = (self.exit_code, self.calls, self.successes, self.failures)
        assert told == (0, calls, calls, 0), f"{self.counts}\n{self.errors[-4000:]}"


@dataclass(slots=True)
class Sipp:
    """A SIPp that runs (or has run) one scenario in a directory of its own."""

    scenario: str
    port: int
    directory: Path
    child: Child

    @classmethod
    def start(
        cls,
        directory: Path,
        scenario: str,
        *,
        port: int,
        target: str | None = None,
        transport: str = "udp",
        calls: int | None = None,
        rate: int = 10,
        pause_ms: int = 0,
        timeout_s: int = 30,
        host: str = "127.0.0.1",
        call_prefix: str = "call",
        more: Sequence[str] = (),
    ) -> Sipp:
        """Start `scenario`: toward `target` (host:port), `calls` calls at `rate` per second; without a target it waits for calls.

        It ends by itself after `timeout_s` seconds whatever happens, and that is then a failure. `pause_ms` is the
        length of the scenario's pauses. Call-IDs are `call_prefix`-number-pid@host, so that runs can be told apart.
        """
        argv = [executable("sipp"), "-sf", str(SCENARIOS / f"{scenario}.xml"), "-i", host, "-p", str(port)]
        argv += ["-t", TRANSPORTS[transport], "-nostdin", "-d", str(pause_ms), "-cid_str", f"{call_prefix}-%u-%p@%s"]
        argv += ["-timeout", str(timeout_s), "-timeout_error", "-trace_err", "-trace_counts", "-trace_shortmsg"]
        argv += [
            "-trace_stat",
            "-stf",
            "statistics.csv",
            "-fd",
            "1",
            "-buff_size",
            "4194304",
            "-max_recv_loops",
            "2000",
            *more,
        ]
        if target is not None:
            argv += [target, "-r", str(rate), "-rp", "1000", "-l", "4000"]
        if calls is not None:
            argv += ["-m", str(calls)]
        return cls(scenario, port, directory, Child.start(f"sipp {scenario}", argv, directory))

    def finish(self, timeout_s: float = 60) -> Result:
        """Wait for its end (calls done, or its own time limit) and read what it left."""
        return self._result(self.child.wait(timeout_s))

    def stop(self) -> Result:
        """End it (a callee has no end of its own) and read what it left."""
        return self._result(self.child.stop())

    def wait_sent(self, count: int, timeout_s: float = 20) -> None:
        """Until it has sent `count` requests."""
        wait_until(
            lambda: len([m for m in self.messages() if m.sent and m.is_request]) >= count,
            timeout_s,
            f"{count} sent by {self.scenario}",
        )

    def messages(self) -> tuple[Message, ...]:
        """The messages traced so far."""
        return tuple(message for path in self._files("shortmessages.log") for message in read_short_trace(path))

    def _files(self, kind: str) -> list[Path]:
        return sorted(self.directory.glob(f"{self.scenario}_*_{kind}"))

    def _result(self, exit_code: int) -> Result:
        if not (self.directory / "statistics.csv").exists():
            raise PeerError(f"SIPp ended at once ({exit_code}):\n{self.child.tail()}")
        statistics = _last_row([self.directory / "statistics.csv"])
        counts = _last_row(self._files("counts.csv"))
        errors = "".join(path.read_text("utf-8", "replace") for path in self._files("errors.log"))

        def total(name: str) -> int:
            return int(statistics.get(name, "0"))

        return Result(
            exit_code=exit_code,
            calls=total("TotalCallCreated"),
            successes=total("SuccessfulCall(C)"),
            failures=total("FailedCall(C)"),
            retransmissions=total("Retransmissions(C)"),
            unexpected=total("FailedUnexpectedMessage(C)"),
            regexp_failures=total("FailedRegexpDoesntMatch(C)")
            + total("FailedRegexpShouldntMatch(C)")
            + total("FailedRegexpHdrNotFound(C)"),
            counts={name: int(value) for name, value in counts.items() if value.isdigit()},
            errors=errors,
            messages=self.messages(),
        )


def read_short_trace(path: Path) -> list[Message]:
    """SIPp's short message trace: date, time and epoch seconds, S or R, Call-ID, `CSeq:`, start line, between tabs."""
    messages = []
    for line in path.read_text("utf-8", "replace").splitlines():
        fields = line.split("\t")
        if len(fields) >= 7 and fields[3] in ("S", "R"):
            cseq = fields[5].removeprefix("CSeq:").strip()
            messages.append(Message(float(fields[2]), fields[3] == "S", fields[4], cseq, fields[6]))
    return messages


def _last_row(paths: Iterable[Path]) -> dict[str, str]:
    """The last line of a SIPp CSV under its header; empty when there is none."""
    for path in paths:
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file, delimiter=";"))
        if rows:
            return {name: value or "" for name, value in rows[-1].items() if name}
    return {}
