"""The field of one measurement: the load's sockets, the protected server's socket, one server between them."""

from __future__ import annotations

import contextlib
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from tests.peers.process import PeerError

from bench.cpu import HostTimes, cpu_ns, session_processes
from bench.load import Lane, Load
from bench.messages import answer_to
from bench.peers import Server, start_guard, start_kamailio
from bench.scenario import Done, Scenario
from bench.sink import Sink, dropped_at

#: Clients, each with a socket and a port of its own.
CLIENTS: Final = 32

_PROBE_S = 5.0
_ANSWER_S = 0.2
_DATAGRAM = 65_535


class Side(Enum):
    """Who is measured."""

    GUARD = "guard"
    KAMAILIO = "Kamailio"
    KAMAILIO_FM = "Kamailio -X fm"


# As it comes Kamailio takes memory from qm, an allocator for debugging: most of its CPU goes into searching free blocks.
# fm is the quick one it also has.
_KAMAILIO_OPTIONS: Final = {Side.KAMAILIO: (), Side.KAMAILIO_FM: ("-X", "fm")}


@dataclass(frozen=True, slots=True)
class Cores:
    """Whose is which: the server has one to itself, the load the other."""

    server: int
    load: int


@dataclass(frozen=True, slots=True)
class Point:
    """What happened between two instants inside a load."""

    elapsed_ns: int
    cpu_ns: int  # of the server, all its processes and threads
    offered: int
    done: int
    host: HostTimes  # of all cores, in between

    @property
    def us_per_message(self) -> float:
        """CPU of the server for one unit of work."""
        return self.cpu_ns / 1e3 / max(1, self.done)

    @property
    def core_percent(self) -> float:
        """Of the server's core."""
        return 100 * self.cpu_ns / self.elapsed_ns


@dataclass(slots=True)
class Field:
    """Everything in place: `load` to drive, `point` to measure."""

    server: Server
    load: Load
    sink: Sink | None  # None: what counts is what was read from the server's socket

    def flood(self, warm_s: float, span_s: float) -> Point:
        """At saturation."""
        self.load.flood(warm_s)
        return self._between(lambda: self.load.flood(span_s))

    def pace(self, per_second: int, warm_s: float, span_s: float) -> Point:
        """At a steady rate."""
        self.load.pace(per_second, warm_s)
        return self._between(lambda: self.load.pace(per_second, span_s))

    def idle(self, span_s: float) -> Point:
        """Nothing at all."""
        return self._between(lambda: time.sleep(span_s))

    def _between(self, run: Callable[[], None]) -> Point:
        processes = session_processes(self.server.child.process.pid)
        host, sent, done = HostTimes.read(), self.load.sent, self.done
        start_ns, cpu_start_ns = time.monotonic_ns(), cpu_ns(processes)
        run()
        end_ns, cpu_end_ns = time.monotonic_ns(), cpu_ns(processes)
        return Point(
            elapsed_ns=end_ns - start_ns,
            cpu_ns=cpu_end_ns - cpu_start_ns,
            offered=self.load.sent - sent,
            done=self.done - done,
            host=HostTimes.read().since(host),
        )

    @property
    def done(self) -> int:
        """Units of work so far."""
        if self.sink is None:
            return self.load.sent - dropped_at(self.server.port)
        return self.sink.count


@contextlib.contextmanager
def field(scenario: Scenario, side: Side, cores: Cores) -> Iterator[Field]:
    """One server, proven to do what the scenario says, and its load; all gone at the end. Raises PeerError."""
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sipguard-bench-")))
        upstream = stack.enter_context(_bound())
        clients = [stack.enter_context(_bound()) for _ in range(CLIENTS)]
        server = _start(scenario, side, directory, cores.server, _port(upstream))
        stack.callback(server.stop)
        for client in clients:
            client.connect(("127.0.0.1", server.port))
        lanes = [Lane(client, scenario.message(_port(client), server.port)) for client in clients]
        match scenario.done:
            case Done.ANSWERED:
                _prove(lanes[0], clients[0], b"SIP/2.0 503 ")
                yield Field(server, Load(lanes), Sink(clients))
            case Done.FORWARDED:
                _prove(lanes[0], upstream, lanes[0].first.partition(b" ")[0])
                yield Field(server, Load(lanes), Sink([upstream]))
            case Done.RETURNED:
                back = _answering_lanes(lanes, upstream)
                _prove(back[0], clients[0], b"SIP/2.0 200 ")
                yield Field(server, Load(back), Sink(clients))
            case Done.TAKEN:
                yield Field(server, Load(lanes), None)


def _start(scenario: Scenario, side: Side, directory: Path, core: int, upstream: int) -> Server:
    if side is Side.GUARD:
        return start_guard(directory, core, upstream, scenario.guard)
    return start_kamailio(directory, core, upstream, scenario.kamailio, _KAMAILIO_OPTIONS[side])


def _bound() -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("127.0.0.1", 0))
    sock.settimeout(_ANSWER_S)
    return sock


def _port(sock: socket.socket) -> int:
    port: int = sock.getsockname()[1]
    return port


def _prove(lane: Lane, hearer: socket.socket, start: bytes) -> tuple[bytes, tuple[str, int]]:
    """Send one datagram of the lane until something that begins like `start` is heard; that, and where it came from."""
    end_s = time.monotonic() + _PROBE_S
    while time.monotonic() < end_s:
        lane.send(1)
        try:
            data, source = hearer.recvfrom(_DATAGRAM)
        except TimeoutError:
            continue
        if data.startswith(start):
            return data, source
    raise PeerError(f"nothing like {start!r} came back for {lane.first[:40]!r}")


def _answering_lanes(lanes: list[Lane], upstream: socket.socket) -> list[Lane]:
    """One INVITE of each client through the server; lanes of answers to them, from the upstream's socket."""
    answers = []
    for lane in lanes:
        forwarded, source = _prove(lane, upstream, b"INVITE ")
        answers.append(answer_to(forwarded))
    upstream.connect(source)
    return [Lane(upstream, template) for template in answers]
