#!/usr/bin/env python3
"""`make bench-lab`: what the lab costs. It reports and never asserts.

Usage: bench/lab.py [--quick] [--rounds N]

Replay: packets per second of CPU to the full record (tier 0 and the verdict included), in turns with dpkt, which only takes the
same packets apart and judges nothing. Simulate: CPU of an hour of 1,000 new requests/s with all their retransmissions. Tune:
300 sets of parameters on a capture of ten minutes, with the reading of it. One core, but for tune.
"""

from __future__ import annotations

import argparse
import os
import resource
import struct
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import dpkt  # type: ignore[import-untyped]  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

from bench.results import Spread  # noqa: E402
from sipguard import Parameters, Policy  # noqa: E402
from sipguard.lab.capture.files import Input  # noqa: E402
from sipguard.lab.feed import CaptureOptions, feed  # noqa: E402
from sipguard.lab.sim.engine import Simulation  # noqa: E402
from sipguard.lab.sim.scenario import Scenario  # noqa: E402
from sipguard.lab.sim.scenario_file import parse  # noqa: E402
from sipguard.lab.study import Study  # noqa: E402
from sipguard.lab.tune.capture_load import CaptureLoad  # noqa: E402
from sipguard.lab.tune.local import LocalBench  # noqa: E402
from sipguard.lab.tune.recording import Recorder  # noqa: E402
from sipguard.lab.tune.tune import tune  # noqa: E402

_MIX = (*("REGISTER",) * 5, *("INVITE",) * 3, "ACK", "BYE")
_RESPONSE_EVERY = 3
_EPOCH_S = 1_700_000_000
_CLIENTS = 5000
_STORM = """
title = "An hour"
about = "1,000 new requests a second, {about}."
duration_s = {seconds}
[guard]
lc = {lc}
shed = "{shed}"
[[servers]]
name = "a"
capacity = {capacity}
queue = 4000
thrash = 1.0
retransmission_cost = 0.5
[[callers]]
name = "c"
method = "MESSAGE"
rate = 1000
redial_probability = {redial}
"""
DROWNED = "drowned: the same without a guard"
_STORMS = (
    ("calm: the servers can do twice that", {"lc": 1500, "capacity": 2000, "redial": 0, "shed": "all"}),
    ("excess: the servers can do 0.8 of it", {"lc": 700, "capacity": 800, "redial": 0.5, "shed": "excess"}),
    (DROWNED, {"lc": 700, "capacity": 800, "redial": 0.5, "shed": "excess"}),
)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a thirtieth of everything, one round: does it run?")
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args(arguments)
    part, rounds = (30, 1) if asked.quick else (1, max(1, asked.rounds))
    console = Console(width=None if sys.stdout.isatty() else 150)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "bench.pcap"
        console.print(_replay(path, 600_000 // part, rounds))
        console.print(_simulate(3600 // part))
        console.print(_tune(path, 600 // part, 300 // part))
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    console.print(f"highest memory of all of it: {peak_mb:.0f} MB", highlight=False)
    return 0


# -- replay ------------------------------------------------------------------------------------------------------------


def _replay(path: Path, packets: int, rounds: int) -> Table:
    _write_capture(path, packets, per_second=2000)
    sides: list[tuple[str, Callable[[Path], None]]] = [("sipguard replay", _read_ours), ("dpkt", _read_dpkt)]
    found: dict[str, list[float]] = {name: [] for name, _ in sides}
    for _ in range(rounds):
        for name, read in sides:
            begun_s = time.process_time()
            read(path)
            found[name].append(packets / (time.process_time() - begun_s))
    table = Table("", "packets/s of CPU", "target", title=f"Replay of {packets:,} UDP packets", title_justify="left")
    ours, theirs = (Spread.of(found[name]) for name, _ in sides)
    table.add_row("sipguard replay: to the full record, verdicts included", _thousands(ours), "≥ 150,000")
    table.add_row("dpkt: link, IP and UDP taken apart, nothing judged", _thousands(theirs), "–")
    ratios = Spread.of([one / two for one, two in zip(*found.values(), strict=True)])
    table.add_row("sipguard / dpkt", f"{ratios.middle:.1f} ({ratios.low:.1f}–{ratios.high:.1f})", "–")
    return table


def _read_ours(path: Path) -> None:
    law = Parameters(LC=1000, LCPS=800)
    feed([Input(str(path))], lambda origin_ns: Study([(law, Policy())], origin_ns), CaptureOptions())


def _read_dpkt(path: Path) -> None:
    with path.open("rb") as file:
        for _, data in dpkt.pcap.Reader(file):
            dpkt.ethernet.Ethernet(data)


def _write_capture(path: Path, packets: int, per_second: int) -> None:
    """A trunk's mix of requests and responses, evenly spaced, three times as many in every fourth minute."""
    record, at_ns = struct.Struct("<IIII"), 0
    with path.open("wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262144, 1))
        for number in range(packets):
            data = _packet(number)
            file.write(record.pack(_EPOCH_S + at_ns // 10**9, at_ns % 10**9 // 1000, len(data), len(data)) + data)
            at_ns += 10**9 // (per_second * (3 if at_ns // (60 * 10**9) % 4 == 3 else 1))


def _packet(number: int) -> bytes:
    method = _MIX[number // _RESPONSE_EVERY % len(_MIX)]
    start = "SIP/2.0 200 OK" if number % _RESPONSE_EVERY == 0 else f"{method} sip:{number}@example.com SIP/2.0"
    load = (
        f"{start}\r\nVia: SIP/2.0/UDP 192.0.2.1:5060;branch=z9hG4bK{number:x};rport\r\nMax-Forwards: 70\r\n"
        f"From: <sip:alice{number}@example.com>;tag={number:x}\r\nTo: <sip:bob{number}@example.com>\r\n"
        f"Call-ID: {number:032x}@192.0.2.1\r\nCSeq: 1 {method}\r\nContact: <sip:alice{number}@192.0.2.1:5060>\r\n"
        "User-Agent: bench\r\nContent-Length: 0\r\n\r\n"
    ).encode()
    client = struct.pack("!BBH", 10, 0, number % _CLIENTS)
    udp = struct.pack("!HHHH", 5060, 5060, 8 + len(load), 0) + load
    ip = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0) + client + bytes((192, 0, 2, 9))
    return bytes(12) + b"\x08\x00" + ip + udp


# -- simulate ----------------------------------------------------------------------------------------------------------


def _simulate(seconds: int) -> Table:
    table = Table("", "CPU s", "messages", "target", title=f"Simulate {seconds:,} s", title_justify="left")
    for title, values in _STORMS:
        storm = _storm(seconds, title, values)
        begun_s = time.process_time()
        run = Simulation(storm).run()
        taken_s = time.process_time() - begun_s
        messages = int(run.measure.bins[:2].sum())
        table.add_row(title, f"{taken_s:.1f}", f"{messages:,}", f"about {seconds / 60:g}")
    return table


def _storm(seconds: int, about: str, values: dict[str, object]) -> Scenario:
    storm = parse(tomllib.loads(_STORM.format(seconds=seconds, about=about, **values)), "hour")
    return replace(storm, guard=None) if about == DROWNED else storm


# -- tune --------------------------------------------------------------------------------------------------------------


def _tune(path: Path, seconds: int, trials: int) -> Table:
    per_second = 800
    _write_capture(path, seconds * per_second, per_second)
    recorders: list[Recorder] = []

    def make(origin_ns: int) -> Recorder:
        recorders.append(Recorder(Policy(), origin_ns))
        return recorders[-1]

    begun_s = time.monotonic()
    feed([Input(str(path))], make, CaptureOptions())
    load = CaptureLoad(recorders[0].recording(), 700, path.name)
    read_s = time.monotonic() - begun_s
    jobs = min(2, os.cpu_count() or 1)
    with LocalBench(load, jobs) as bench:
        advice = tune(load, bench, trials=trials)
    whole_s = time.monotonic() - begun_s
    title = f"Tune on {seconds} s of {load.offered.sum():,} requests"
    table = Table("", "s on the clock", "target", title=title, title_justify="left")
    table.add_row("reading the capture", f"{read_s:.1f}", "–")
    table.add_row(f"with {trials} trials ({len(advice.tried)} sets) in {jobs} processes", f"{whole_s:.1f}", "about 120")
    return table


def _thousands(spread: Spread) -> str:
    return f"{spread.middle:,.0f} ({spread.low:,.0f}–{spread.high:,.0f})"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
