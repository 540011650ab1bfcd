"""The replay of a capture and a live guard come to the same, cycle by cycle (issue 3 §1; DESIGN §1: one law).

The capture's datagrams go through a guard on loopback with their own timing, beginning on a second of the guard's origin, so
that windows and seconds lie alike. Then each cycle is compared. Only packets that the machine moved may differ: sent (or
perhaps read) in another window than their own. They are counted from what the sender measured, not guessed, and a run in
which the machine moved more than a few is repeated.
"""

from __future__ import annotations

import socket
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from sipguard import Parameters, Policy
from sipguard.core.verdicts import Cycle
from sipguard.lab.capture.files import Captures, Input
from sipguard.lab.feed import CaptureOptions, feed
from sipguard.lab.study import Study
from tests.edge.live import ThreadGuard
from tests.lab.packets import EPOCH_NS, pcap, sip, udp4

MS = 1_000_000
SECOND_NS = 1_000_000_000
PARAMETERS = Parameters(LC=150, LCPS=45, LRC=3, PC=4, TR=200)
END_NS = 8 * SECOND_NS
#: How long after its sending a datagram may still be unread, and a window unevaluated, without anything being wrong.
MARGIN_NS = 20 * MS
MOVED_AT_MOST = 0.06


def load() -> Iterator[tuple[int, bytes]]:
    """Calm, a rise over LCPS alone, a storm over LC until the silent drop, calm until normal again.

    In the storm the end of each window is left empty, so that few datagrams lie where a busy machine may move them over
    the border; in the calm they come evenly, some right before one.
    """
    methods = ("INVITE", "REGISTER", "OPTIONS", "BYE", "INVITE", "SUBSCRIBE")
    number = 0
    for start_ms, end_ms, per_second in ((0, 1000, 40), (1000, 2000, 90), (2000, 4600, 300), (4600, 8000, 40)):
        step_ns = SECOND_NS // per_second
        for at_ns in range(start_ms * MS + 3 * MS, end_ms * MS, step_ns):
            if per_second > 100 and at_ns % PARAMETERS.window_ns > PARAMETERS.window_ns - 2 * MARGIN_NS:
                continue
            number += 1
            yield at_ns, udp4(sip(methods[number % len(methods)], number), f"192.0.2.{number % 7 + 1}")


@dataclass(frozen=True, slots=True)
class Sent:
    """A datagram: when it was due, when the sending began and ended; ns since the base."""

    due_ns: int
    from_ns: int
    to_ns: int


def send(datagrams: Sequence[tuple[int, bytes]], to: tuple[str, int], base_ns: int) -> list[Sent]:
    sent = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        for due_ns, payload in datagrams:
            time.sleep(max(0, base_ns + due_ns - time.monotonic_ns()) / 1e9)
            begun_ns = time.monotonic_ns() - base_ns
            client.sendto(payload, to)
            sent.append(Sent(due_ns, begun_ns, time.monotonic_ns() - base_ns))
    return sent


def moved(sent: Sequence[Sent]) -> Counter[int]:
    """Per window, by number: the datagrams that may have been counted in, or be missing from, it."""
    window_ns = PARAMETERS.window_ns
    counts: Counter[int] = Counter()
    for each in sent:
        windows = {
            each.due_ns // window_ns,
            *range(each.from_ns // window_ns, (each.to_ns + MARGIN_NS) // window_ns + 1),
        }
        if len(windows) > 1:
            counts.update(windows)
    return counts


def live(datagrams: Sequence[tuple[int, bytes]]) -> tuple[list[Cycle], list[Sent], dict[str, int]]:
    """Cycles (times since the base), what was sent, the verdicts."""
    flags = {name.lower(): value for name, value in PARAMETERS.as_dict().items()}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        upstream = f"udp:127.0.0.1:{server.getsockname()[1]}"
        with ThreadGuard("uvloop", upstream=[upstream], **flags) as guard:
            origin_ns = int(guard.status()["origin_ns"])
            # On a second of its origin, two from now: the one before is empty, as in a new controller (SPEC M3).
            base_ns = origin_ns + ((time.monotonic_ns() - origin_ns) // SECOND_NS + 2) * SECOND_NS
            address = guard.address()
            sent = send(datagrams, (address.host, address.port), base_ns)
            time.sleep(max(0, base_ns + END_NS + MARGIN_NS * 4 - time.monotonic_ns()) / 1e9)
            cycles = [cycle._replace(time_ns=cycle.time_ns - base_ns) for cycle in guard.cycles()]
            status = guard.status()
    assert status["overflowed"] == 0
    within = [cycle for cycle in cycles if 0 < cycle.time_ns <= END_NS]
    return within, sent, {**status["verdicts"], "kernel": status["kernel_dropped"]}


def replayed(path: Path) -> tuple[list[Cycle], Study]:
    cycles: list[Cycle] = []

    def make(origin_ns: int) -> Study:
        study = Study([(PARAMETERS, Policy())], origin_ns)
        study.main.on_cycle = cycles.append
        return study

    fed = feed([Input(str(path))], make, CaptureOptions(whole_second=True), until_ns=END_NS)
    assert fed.damages == []
    assert fed.study.origin_ns == EPOCH_NS
    return cycles, fed.study


def test_a_replay_comes_to_what_a_live_guard_does(tmp_path: Path) -> None:
    path = tmp_path / "load.pcap"
    path.write_bytes(pcap(load(), nano=True))
    expected, study = replayed(path)
    # The payloads as the file has them: Ethernet 14, IPv4 20, UDP 8.
    datagrams = [(at_ns - EPOCH_NS, frame[42:]) for at_ns, _, frame in Captures([Input(str(path))]).packets()]
    for _ in range(3):
        cycles, sent, verdicts = live(datagrams)
        near = moved(sent)
        if sum(near.values()) / 2 <= MOVED_AT_MOST * len(sent):
            break
    else:
        pytest.fail(f"the machine moved {near} of {len(sent)} datagrams into other windows in three attempts")

    assert [cycle.time_ns for cycle in cycles] == [cycle.time_ns for cycle in expected]
    for have, want in zip(cycles, expected, strict=True):
        number = want.time_ns // PARAMETERS.window_ns - 1
        assert abs(have.requests - want.requests) <= near[number], (number, have, want, near)
        # The rates lie far from LC, so that no moved datagram decides a state.
        assert have.state is want.state, (number, have, want)
    assert {cycle.state.value for cycle in expected} == {"normal", "around_critical_limit", "critical_limit"}
    assert sum(cycle.requests for cycle in cycles) == len(sent) == study.main.requests

    # A verdict differs only for what was read in another window, or before the window's end was evaluated.
    bound = sum(near.values())
    for name, count in zip(("allow", "reject", "drop"), study.main.verdicts, strict=True):
        assert abs(verdicts[name] - count) <= bound, (name, verdicts, study.main.verdicts, near)
    assert study.main.lcps_refused > 0
    assert verdicts["kernel"] > 0
    print(f"{len(cycles)} cycles alike; {bound // 2} of {len(sent)} datagrams at a border; live {verdicts}")
