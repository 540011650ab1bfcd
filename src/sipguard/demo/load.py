"""The load generator, a process of its own: `python -m sipguard.demo.load HOST:PORT`.

Reads commands on stdin, one a line: `rate N [AT_NS]` (requests/s from that moment of the monotonic clock, or at once) and
`quit`; the end of stdin is `quit` too, so it never outlives who started it. Writes a JSON line with its tally to
stdout every quarter of a second and at the end.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
import sys
import time

from sipguard.demo.pace import Pace
from sipguard.demo.traffic import Traffic

_REPORT_NS = 250_000_000
_NAP_S = 0.004
_BATCH = 256
_DRAIN_NS = 300_000_000


class Load:
    """Sends at a rate, reads answers, obeys commands."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        self._socket.bind((target[0], 0))
        self._socket.connect(target)
        self._socket.setblocking(False)
        host, port = self._socket.getsockname()
        self.traffic = Traffic(b"%b:%d" % (host.encode(), port), b"%b:%d" % (target[0].encode(), target[1]))
        self.pace = Pace()
        self._commands = b""
        self._quit = False
        self.unsent = 0

    def run(self) -> None:
        """Until told to quit."""
        with selectors.DefaultSelector() as selector, self._socket:
            selector.register(self._socket, selectors.EVENT_READ)
            selector.register(0, selectors.EVENT_READ)
            report_ns = 0
            while not self._quit:
                ready = {key.fd for key, _ in selector.select(_NAP_S)}
                if 0 in ready:
                    self._read_commands()
                now_ns = time.monotonic_ns()
                self._read_answers(now_ns)
                self._send_due(now_ns)
                if now_ns >= report_ns:
                    report_ns = now_ns + _REPORT_NS
                    self.traffic.forget_unanswered(now_ns)
                    self._report()
            self._drain()
            self._report()

    def obey(self, line: str) -> None:
        """One command; an unknown one is ignored."""
        match line.split():
            case ["rate", rate, *at]:
                at_ns = int(at[0]) if at else time.monotonic_ns()
                self.pace.change(int(rate), at_ns)
            case ["quit"]:
                self._quit = True

    def _read_commands(self) -> None:
        data = os.read(0, 4096)
        if not data:
            self._quit = True
        *lines, self._commands = (self._commands + data).split(b"\n")
        for line in lines:
            self.obey(line.decode("latin-1"))

    def _read_answers(self, now_ns: int) -> None:
        for _ in range(_BATCH):
            try:
                data = self._socket.recv(65_535)
            except BlockingIOError:
                return
            except OSError:
                continue  # an ICMP refusal: the guard is not there (any more)
            messages, counted = self.traffic.receive(data, now_ns)
            for message in messages:
                self._send(message)
            self.pace.spend(counted)

    def _send_due(self, now_ns: int) -> None:
        byes = self.traffic.due(now_ns)
        for bye in byes:
            self._send(bye)
        self.pace.spend(len(byes))
        for _ in range(self.pace.take(now_ns)):
            self._send(self.traffic.new_request(now_ns))

    def _send(self, message: bytes) -> None:
        try:
            self._socket.send(message)
        except OSError:
            self.unsent += 1

    def _drain(self) -> None:
        """Late answers still count; what has none by now will get none."""
        end_ns = time.monotonic_ns() + _DRAIN_NS
        while (now_ns := time.monotonic_ns()) < end_ns:
            self._read_answers(now_ns)
            time.sleep(_NAP_S)
        self.traffic.forget_unanswered(end_ns, within_ns=0)

    def _report(self) -> None:
        report = {"rows": self.traffic.tally.rows(), "skipped": self.pace.skipped, "unsent": self.unsent}
        print(json.dumps(report), flush=True)


def main() -> int:
    """The process; exit 2 for a wrong address."""
    host, _, port = sys.argv[1].rpartition(":") if len(sys.argv) == 2 else ("", "", "")
    if not host or not port.isdigit():
        print("usage: python -m sipguard.demo.load HOST:PORT", file=sys.stderr)
        return 2
    with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):
        Load((host, int(port))).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
