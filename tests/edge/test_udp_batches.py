"""What one wake-up of a UDP socket takes: bounded in number and in time (SPEC M1: a late evaluation is a wrong one)."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from sipguard.core.controller import OverloadController
from sipguard.core.parameters import Parameters
from sipguard.core.policy import Policy
from sipguard.edge.counters import EdgeCounters
from sipguard.edge.sockets import open_udp
from sipguard.edge.udp import BATCH, UdpEndpoint
from sipguard.guard.flows import Flow, Listener, Send
from sipguard.guard.guard import Guard
from sipguard.guard.keys import Key, Keyring
from sipguard.guard.settings import GuardSettings
from tests.edge.messages import Message, request
from tests.edge.peers import Address, UdpPeer


class TimedGuard(Guard):
    """A guard for which each datagram takes at least so long, as a hostile one may; keeps the times it was given."""

    cost_s = 0.0
    times_ns: list[int]

    def receive(self, data: bytes, flow: Flow, now_ns: int) -> Send | None:
        self.times_ns.append(now_ns)
        if self.cost_s:
            time.sleep(self.cost_s)
        return super().receive(data, flow, now_ns)


@pytest.fixture(params=["127.0.0.1", "0.0.0.0"])
def endpoint(request: pytest.FixtureRequest) -> Iterator[UdpEndpoint]:
    """An outside socket, bound to one address and to all of them, with a guard before no upstream."""
    host = request.param
    sock = open_udp(host, 0, wildcard=host == "0.0.0.0", inside=False)
    listener = Listener(0, "udp", host, sock.getsockname()[1])
    controller = OverloadController(Parameters(LC=10_000, LCPS=10_000), Policy(), origin_ns=time.monotonic_ns())
    guard = TimedGuard(controller, GuardSettings((listener,), ()), Keyring(Key(bytes(32))))
    guard.times_ns = []
    made: list[UdpEndpoint] = []

    def deliver(action: Send) -> None:
        made[0].send(action)

    made.append(UdpEndpoint(sock, listener, guard, deliver, lambda: None, EdgeCounters()))
    yield made[0]
    made[0].close()


def send(client: UdpPeer, endpoint: UdpEndpoint, count: int) -> None:
    to = Address("127.0.0.1", endpoint.listener.port)
    for _ in range(count):
        client.send(request("OPTIONS", max_forwards=0), to)


def test_a_batch_of_costly_datagrams_is_cut_short_and_loses_none(endpoint: UdpEndpoint, client: UdpPeer) -> None:
    """1 ms each: two or three of them, then timers have their turn, and so on until all are answered."""
    guard = endpoint._guard
    assert isinstance(guard, TimedGuard)
    guard.cost_s = 0.001
    send(client, endpoint, 40)
    batches: list[int] = []
    while not batches or batches[-1]:
        endpoint.readable()
        batches.append(endpoint.take_taken().datagrams)
    assert sum(batches) == 40
    assert max(batches) <= 3
    assert [Message.of(data).status for data in client.drain()] == [483] * 40


def test_one_datagram_is_handled_however_much_it_costs(endpoint: UdpEndpoint, client: UdpPeer) -> None:
    guard = endpoint._guard
    assert isinstance(guard, TimedGuard)
    guard.cost_s = 0.005
    send(client, endpoint, 3)
    batches = []
    for _ in range(3):
        endpoint.readable()
        batches.append(endpoint.take_taken().datagrams)
    assert batches == [1, 1, 1]


def test_cheap_datagrams_are_bounded_by_number_and_each_has_its_own_time(
    endpoint: UdpEndpoint, client: UdpPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time a datagram is judged at is not the batch's: it never goes back, and it moves on within the batch."""
    # So that a machine under load changes nothing here.
    monkeypatch.setattr("sipguard.edge.udp.BATCH_NS", 10_000_000_000)
    guard = endpoint._guard
    assert isinstance(guard, TimedGuard)
    send(client, endpoint, BATCH + 6)
    endpoint.readable()
    assert endpoint.take_taken().datagrams == BATCH
    endpoint.readable()
    assert endpoint.take_taken().datagrams == 6
    assert guard.times_ns == sorted(guard.times_ns)
    assert len(set(guard.times_ns)) > 1
