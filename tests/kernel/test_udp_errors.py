"""The host's UDP counters: parsed, and read from the running kernel."""

from __future__ import annotations

import socket
import sys

import pytest

from sipguard.edge.kernel.udp_errors import ErrorCounts, UdpErrors, _parse_snmp, _parse_snmp6
from tests.kernel.loopback import available, pair

SNMP = b"""Ip: Forwarding DefaultTTL
Ip: 1 64
Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors IgnoredMulti MemErrors
Udp: 108 1 9 109 5 0 3 0 2
UdpLite: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors IgnoredMulti MemErrors
UdpLite: 0 0 0 0 77 0 0 0 0
"""
OLD_SNMP = b"""Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors
Udp: 108 1 9 109 5 0
"""
SNMP6 = b"""Ip6InReceives                   \t0
Udp6RcvbufErrors                \t5
Udp6InCsumErrors                \t3
Udp6MemErrors                   \t2
UdpLite6RcvbufErrors            \t77
"""


def test_parsing() -> None:
    assert _parse_snmp(SNMP) == ErrorCounts(full=5, memory=2)
    assert _parse_snmp(OLD_SNMP) == ErrorCounts(full=5)
    assert _parse_snmp6(SNMP6) == ErrorCounts(full=5, memory=2)


@pytest.mark.parametrize("text", [b"", b"Udp:\nUdp:\n", b"Udp: InDatagrams\nUdp: 5\n", b"Udp: RcvbufErrors\n"])
def test_a_file_without_the_counter_is_an_error(text: bytes) -> None:
    with pytest.raises(OSError, match="RcvbufErrors"):
        _parse_snmp(text)
    with pytest.raises(OSError, match="RcvbufErrors"):
        _parse_snmp6(text)


def test_differences_do_not_go_below_zero() -> None:
    assert ErrorCounts(5, 1).since(ErrorCounts(3, 4)) == ErrorCounts(2, 0)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6], ids=lambda family: family.name)
def test_a_full_buffer_raises_the_counter_of_its_family(family: socket.AddressFamily) -> None:
    if not available(family):
        pytest.skip("this machine has no such loopback")
    errors = UdpErrors()
    read = errors.read_ipv4 if family == socket.AF_INET else errors.read_ipv6
    with pair(family) as both:
        both.receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        before = read()
        both.send(b"x" * 500, times=100)
        received = len(both.drain())
        assert both.settled(100, received)
        assert received < 100
        assert read().since(before).full >= 100 - received  # others on this host may overflow too
    errors.close()
    with pytest.raises(OSError, match="cannot be read"):
        read()
    errors.close()
