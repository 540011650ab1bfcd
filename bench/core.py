"""CPU of single calls, without any socket: the law's `admit`, the two tiers of reading, the guard's `receive`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from bench.load import NUMBER
from bench.messages import invite
from bench.results import Cost, Spread
from sipguard import OverloadController, Parameters, Policy
from sipguard.guard.flows import Flow, Listener, Upstream
from sipguard.guard.guard import Guard
from sipguard.guard.keys import KEY_BYTES, Key, Keyring
from sipguard.guard.settings import GuardSettings
from sipguard.wire.head import read_head
from sipguard.wire.scan import request_method

_MESSAGES: Final = 4_000  # more than the caches near a core hold
_CLIENTS: Final = 32
_TR_MS: Final = 100
_TR_NS: Final = _TR_MS * 1_000_000
_CALLS: Final = 100_000

_Law = Mapping[str, int | str]  # parameters by name


def costs(repeats: int) -> list[Cost]:
    """Each call's cost: the median of `repeats` loops, and their range."""
    messages = [
        invite(40_000 + number % _CLIENTS, 5060).replace(NUMBER, b"%08d" % number) for number in range(_MESSAGES)
    ]
    refuse: _Law = {"LC": 1, "LCPS": 1, "LCDM": "denial_only"}
    drop: _Law = {"LC": 1, "LCPS": 1, "LCDM": "drop_only"}
    let_through: _Law = {"LC": 10_000, "LCPS": 10_000}
    return [
        Cost("admit", "admit, allowed", _admit(repeats, let_through, per_second=9_000), 1.0),
        Cost("admit-reject", "admit, refused", _admit(repeats, refuse, per_second=100_000), 1.0),
        Cost("tier-0", "tier 0: request_method", _each(repeats, request_method, messages), None),
        Cost("tier-1", "tier 1: read_head, INVITE", _each(repeats, read_head, messages), None),
        Cost("receive-503", "receive: 503, INVITE", _receive(repeats, refuse, messages), None),
        Cost(
            "receive-forward", "receive: forward, INVITE", _receive(repeats, let_through, messages, enforce=False), None
        ),
        Cost("receive-drop", "receive: silent drop, INVITE", _receive(repeats, drop, messages), None),
    ]


def _admit(repeats: int, parameters: _Law, *, per_second: int) -> Spread:
    """`admit` as it is called for traffic of this rate: time goes on, a cycle is evaluated each TR."""
    controller = _controller(parameters, enforce=True)
    spacing_ns = 1_000_000_000 // per_second
    now_ns = 0
    found = []
    for _ in range(repeats):
        times = range(now_ns, now_ns + _CALLS * spacing_ns, spacing_ns)
        admit = controller.admit
        start_ns = time.thread_time_ns()
        for moment_ns in times:
            admit("INVITE", now_ns=moment_ns)
        found.append((time.thread_time_ns() - start_ns) / 1e3 / len(times))
        now_ns = times.stop
        controller.advance(now_ns=now_ns)
    return Spread.of(found)


def _each(repeats: int, call: Callable[[bytes], object], messages: Sequence[bytes]) -> Spread:
    found = []
    for _ in range(repeats):
        start_ns = time.thread_time_ns()
        for message in messages:
            call(message)
        found.append((time.thread_time_ns() - start_ns) / 1e3 / len(messages))
    return Spread.of(found)


def _receive(repeats: int, parameters: _Law, messages: Sequence[bytes], *, enforce: bool = True) -> Spread:
    """`Guard.receive` of datagrams from several clients; the states are reached by one window of the same load."""
    outside = Listener(0, "udp", "127.0.0.1", 5060)
    inside = Listener(1, "udp", "127.0.0.1", 5070, inside=True)
    upstream = Upstream(b"up", "udp", "127.0.0.1", 5080, 1, Flow(inside, ("127.0.0.1", 5080)))
    settings = GuardSettings((outside, inside), (upstream,))
    guard = Guard(_controller(parameters, enforce=enforce), settings, Keyring(Key(bytes(KEY_BYTES))))
    remotes = [("127.0.0.1", 40_000 + number) for number in range(_CLIENTS)]
    sources = [remotes[number % _CLIENTS] for number in range(len(messages))]

    def window(now_ns: int) -> None:
        receive = guard.receive
        for message, remote in zip(messages, sources, strict=True):
            receive(message, Flow(outside, remote), now_ns)

    window(0)
    found = []
    for number in range(1, repeats + 1):
        now_ns = number * _TR_NS
        guard.tick(now_ns)
        start_ns = time.thread_time_ns()
        window(now_ns)
        found.append((time.thread_time_ns() - start_ns) / 1e3 / len(messages))
    return Spread.of(found)


def _controller(parameters: _Law, *, enforce: bool) -> OverloadController:
    return OverloadController(Parameters(**parameters, TR=_TR_MS), Policy(enforce=enforce), origin_ns=0)
