"""Counting without reading: what the kernel says was thrown away is what was sent (SO_MEMINFO, /proc/net/udp)."""

from __future__ import annotations

import socket

import pytest
from bench.sink import Sink, dropped_at


def _udp() -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("127.0.0.1", 0))
    sock.setblocking(False)
    return sock


def test_counts_every_datagram_on_every_socket_and_keeps_none() -> None:
    with _udp() as one, _udp() as other, _udp() as sender:
        sender.sendto(b"before", one.getsockname())
        assert one.recv(100) == b"before"
        sink = Sink([one, other])
        assert sink.count == 0
        for number in range(250):
            sender.sendto(b"datagram %d" % number, one.getsockname())
        sender.sendto(b"", other.getsockname())
        assert sink.count == 251
        with pytest.raises(BlockingIOError):
            one.recv(100)


def test_drops_at_a_port_of_any_process() -> None:
    with _udp() as swallower, _udp() as idle, _udp() as sender:
        port = swallower.getsockname()[1]
        assert dropped_at(port) == 0
        sink = Sink([swallower])
        for _ in range(40):
            sender.sendto(b"x", swallower.getsockname())
        assert dropped_at(port) == sink.count == 40
        assert dropped_at(idle.getsockname()[1]) == 0
