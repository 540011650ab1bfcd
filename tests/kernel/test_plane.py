"""The plane on real sockets: switched together, counted exactly, failing open (DESIGN §3)."""

from __future__ import annotations

import os
import resource
import socket
import struct
import sys
from collections.abc import Iterator

import pytest

from sipguard.edge.kernel import socketfilter
from sipguard.edge.kernel.attribution import Drops, Taken
from sipguard.edge.kernel.bpf import Instruction
from sipguard.edge.kernel.plane import KernelDropPlane, Reading
from sipguard.edge.kernel.program import drop_program
from sipguard.edge.kernel.socketfilter import Memory, attach, drops
from sipguard.edge.kernel.udp_errors import ErrorCounts, UdpErrors
from tests.kernel.loopback import FAMILIES, NINE, Pair, available, pair

if sys.platform != "linux":
    pytest.skip("socket filters are Linux's", allow_module_level=True)

INVITE = b"INVITE sip:bob@example.com SIP/2.0\r\n\r\n"
BYE = b"BYE sip:bob@example.com SIP/2.0\r\n\r\n"
PROGRAM = drop_program(NINE, sample_one_in=0)
QUIET_ATTEMPTS = 20


@pytest.fixture
def both() -> Iterator[Pair]:
    with pair() as pair_:
        yield pair_


def test_apply_switches_all_sockets_and_is_idempotent() -> None:
    pairs = [Pair(family) for family in FAMILIES if available(family)]
    plane = KernelDropPlane([both.receiver for both in pairs], PROGRAM)
    assert not plane.filtering
    for wanted in (False, True, True, False, False, True):
        assert plane.apply(wanted)
        assert plane.filtering is wanted
        for both in pairs:
            assert both.outcome(INVITE) == (None if wanted else INVITE)
            assert both.outcome(BYE) == BYE
    plane.close()
    for both in pairs:
        assert both.outcome(INVITE) == INVITE
        both.close()
    assert not plane.failures


def test_filtered_is_what_was_dropped_since_the_last_reading() -> None:
    pairs = [Pair(family) for family in FAMILIES if available(family)]
    plane = KernelDropPlane([both.receiver for both in pairs], PROGRAM)
    plane.apply(True)
    for index, both in enumerate(pairs):
        both.send(INVITE, times=50 + index)
        assert both.settled(50 + index, 0)
    none_taken = [Taken(0, 0)] * len(pairs)
    expected = tuple(Drops(50 + index) for index in range(len(pairs)))
    assert plane.read(none_taken) == Reading(sum(drop.filtered for drop in expected), 0, expected)
    assert plane.read(none_taken).filtered == 0
    plane.close()
    for both in pairs:
        both.close()


def test_taking_over_detaches_and_starts_from_the_counters_value(both: Pair) -> None:
    """DESIGN §3: whoever takes a socket first detaches, takes the counter's base, then applies the state."""
    first = KernelDropPlane([both.receiver], PROGRAM)
    first.apply(True)
    both.send(INVITE, times=30)
    assert both.settled(30, 0)

    # Handed over as between processes; the giver's descriptor is closed without a word.
    left, right = socket.socketpair()
    with left, right:
        socket.send_fds(left, [b"x"], [both.receiver.fileno()])
        _, descriptors, _, _ = socket.recv_fds(right, 1, 1)
    both.receiver.close()
    both.receiver = socket.socket(fileno=descriptors[0])
    both.receiver.setblocking(False)
    assert both.outcome(INVITE) is None

    second = KernelDropPlane([both.receiver], PROGRAM)
    assert both.outcome(INVITE) == INVITE
    assert drops(both.receiver) == 31
    assert second.read().filtered == 0
    second.apply(True)
    assert both.outcome(INVITE) is None
    assert second.read([Taken(1, len(INVITE))]) == Reading(1, 0, (Drops(1),))
    second.close()


def test_the_counters_wrap_at_32_bits(both: Pair) -> None:
    plane = KernelDropPlane([both.receiver], PROGRAM)
    plane.apply(True)
    seen = plane._guarded[0].seen
    assert seen is not None
    plane._guarded[0].seen = Memory(seen.queued_bytes, seen.limit_bytes, (seen.drops - 5) % (1 << 32))  # 2**32 - 5
    both.send(INVITE, times=10)
    assert both.settled(10, 0)
    assert plane.read([Taken(0, 0)]).filtered == 15
    plane.close()


def test_drops_without_a_filter_are_overflow(both: Pair) -> None:
    both.receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    plane = KernelDropPlane([both.receiver], PROGRAM)
    both.send(INVITE, times=200)
    received = len(both.drain())
    assert both.settled(200, received)
    plane.apply(True)
    both.send(INVITE, times=7)
    assert both.settled(207, received)
    plane.apply(False)
    assert plane.read([Taken(0, 0)]) == Reading(7, 200 - received, (Drops(7, 200 - received),))
    plane.close()


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_overflow_is_told_from_filter_drops(family: socket.AddressFamily) -> None:
    """DESIGN §3: ΔRcvbufErrors. The counter is the whole host's, so the attempt counts when nobody else overflowed."""
    if not available(family):
        pytest.skip("this machine has no such loopback")
    errors = UdpErrors()
    read_host = errors.read_ipv4 if family == socket.AF_INET else errors.read_ipv6
    with pair(family) as both:
        both.receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        plane = KernelDropPlane([both.receiver], PROGRAM, errors)
        plane.apply(True)
        for _ in range(QUIET_ATTEMPTS):
            plane.read()
            host, dropped = read_host(), drops(both.receiver)
            both.send(BYE, times=100)
            both.send(INVITE, times=300)
            both.send(BYE, times=100)
            received = len(both.drain())
            assert both.settled(500, received, dropped)
            reading = plane.read([Taken(received, received * len(BYE))])
            overflowed = 200 - received
            assert reading.filtered + reading.overflowed == 500 - received  # with neighbours or without
            if read_host().since(host).full == overflowed:
                break
        else:
            pytest.skip("other sockets of this host overflow all the time")
        assert 0 < received < 200
        assert reading == Reading(300, overflowed, (Drops(300, overflowed),))
        plane.close()


def test_another_sockets_overflow_is_not_taken_for_ours(both: Pair) -> None:
    plane = KernelDropPlane([both.receiver], PROGRAM)
    plane.apply(True)
    for certain in (True, False):
        with pair() as neighbour:
            neighbour.receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            neighbour.send(BYE, times=100)
            lost = 100 - len(neighbour.drain())
        before = drops(both.receiver)
        both.send(INVITE, times=60)
        assert both.settled(60, 0, before)
        assert lost > 0
        reading = plane.read([Taken(0, 0)] if certain else None)
        if certain:
            assert reading == Reading(60, 0, (Drops(60),))
        else:
            # Bounded by the host's figure alone: the sum stays exact.
            assert reading.filtered + reading.overflowed == 60
            assert reading.overflowed >= min(60, lost)
    plane.close()


def test_broken_checksums_elsewhere_hide_no_request(both: Pair) -> None:
    """Short broken datagrams raise InErrors and InCsumErrors, and no socket's counter: nothing may be subtracted."""
    plane = KernelDropPlane([both.receiver], PROGRAM)
    plane.apply(True)
    port = both.receiver.getsockname()[1]
    try:
        raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP)
    except PermissionError:
        pytest.skip("raw sockets need CAP_NET_RAW")
    with raw:
        header = struct.pack("!4H", 9, port, 8 + len(INVITE), 0xBAD)
        for _ in range(9):
            raw.sendto(header + INVITE, ("127.0.0.1", 0))
    both.send(INVITE, times=20)
    assert both.settled(20, 0)
    assert plane.read([Taken(0, 0)]) == Reading(20, 0, (Drops(20),))
    plane.close()


def test_a_dual_stack_socket_draws_on_both_families() -> None:
    if not available(socket.AF_INET6):
        pytest.skip("this machine has no IPv6")
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as receiver, pair() as other:
        receiver.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        receiver.bind(("::", 0))
        other.sender.connect(("127.0.0.1", receiver.getsockname()[1]))
        other.receiver.close()
        other.receiver = receiver
        receiver.setblocking(False)
        plane = KernelDropPlane([receiver], PROGRAM)
        plane.apply(True)
        assert other.outcome(INVITE) is None
        assert other.outcome(BYE) == BYE
        assert plane.read([Taken(1, len(BYE))]).filtered == 1
        assert plane._guarded[0].tally.families == (4, 6)
        plane.close()


def test_another_program_is_swapped_in(both: Pair) -> None:
    plane = KernelDropPlane([both.receiver], PROGRAM)
    plane.apply(True)
    assert plane.load(drop_program(["BYE"], sample_one_in=0))
    assert both.outcome(INVITE) == INVITE
    assert both.outcome(BYE) is None
    plane.apply(False)
    assert plane.load(PROGRAM)
    assert both.outcome(INVITE) == INVITE
    plane.apply(True)
    assert both.outcome(INVITE) is None
    assert plane.read([Taken(0, 0)]).filtered == 2
    plane.close()


def test_sampling_leaves_the_totals_exact(both: Pair) -> None:
    """Issue 2 §4: the sum of what was sent is what was filtered and what was seen."""
    plane = KernelDropPlane([both.receiver], drop_program(NINE))
    plane.apply(True)
    filtered = received = octets = 0
    for _ in range(40):
        both.send(INVITE, times=100)
        payloads = both.drain()
        received += len(payloads)
        octets = sum(map(len, payloads))
        filtered += plane.read([Taken(len(payloads), octets)]).filtered
    assert both.settled(4000, received)
    rest = both.drain()
    filtered += plane.read([Taken(len(rest), octets)]).filtered
    assert received + len(rest) + filtered == 4000
    assert 0 < received + len(rest) < 400
    plane.close()


# Failing open


def test_a_closed_socket_is_counted_not_raised(both: Pair) -> None:
    with pair() as gone:
        plane = KernelDropPlane([gone.receiver, both.receiver], PROGRAM)
        plane.apply(True)
    assert both.outcome(INVITE) is None
    assert plane.read([Taken(0, 0)] * 2).sockets == (Drops(), Drops(1))
    assert plane.failures["counter"] >= 1
    assert not plane.apply(True)
    assert plane.failures["counter"] >= 2
    assert both.outcome(INVITE) is None
    plane.close()
    assert both.outcome(INVITE) == INVITE


def test_a_refused_program_leaves_the_socket_without_a_filter(both: Pair) -> None:
    refused = [Instruction(0x06, 0, 0, 0)] * 4096 + [Instruction(0x06, 0, 0, 0)]
    plane = KernelDropPlane([both.receiver], refused)
    assert not plane.apply(True)
    assert not plane.filtering
    assert plane.failures == {"attach": 1}
    assert plane.last_failure is not None
    assert "attach" in plane.last_failure
    assert both.outcome(INVITE) == INVITE
    assert plane.load(PROGRAM)
    assert plane.apply(True)
    assert both.outcome(INVITE) is None
    assert plane.load(refused)  # the old one may drop what is now to pass, so it goes
    assert both.outcome(INVITE) == INVITE
    assert not plane.filtering
    plane.close()


def test_a_locked_filter_is_reported_and_its_drops_are_a_filters(both: Pair) -> None:
    attach(both.receiver, PROGRAM)
    both.receiver.setsockopt(socket.SOL_SOCKET, 44, 1)  # SO_LOCK_FILTER
    plane = KernelDropPlane([both.receiver], PROGRAM)
    assert plane.filtering
    assert plane.failures == {"detach": 1}
    assert both.outcome(INVITE) is None
    assert not plane.apply(False)
    assert plane.read([Taken(0, 0)]).filtered == 1
    plane.close()


def test_elsewhere_than_on_linux_the_process_goes_on(both: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socketfilter, "_LINUX", False)
    plane = KernelDropPlane([both.receiver], PROGRAM)
    assert not plane.filtering
    assert not plane.apply(True)
    assert plane.apply(False)
    assert plane.read() == Reading(0, 0, (Drops(),))
    assert set(plane.failures) == {"detach", "counter"}
    plane.close()


class _NoProc(UdpErrors):
    """A host whose /proc/net is not there (a sandbox)."""

    def read_ipv4(self) -> ErrorCounts:
        raise FileNotFoundError("no /proc/net here")


def test_without_the_hosts_counters_screened_drops_are_filtered(both: Pair) -> None:
    plane = KernelDropPlane([both.receiver], PROGRAM, _NoProc())
    plane.apply(True)
    both.send(INVITE, times=5)
    assert both.settled(5, 0)
    assert plane.read() == Reading(5, 0, (Drops(5),))
    assert plane.failures == {"host": 2}
    plane.close()


def test_descriptors_may_run_out(both: Pair) -> None:
    """Issue 2 §4: descriptor exhaustion; the plane opens nothing after its start."""
    plane = KernelDropPlane([both.receiver], PROGRAM)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            os.open("/proc/net/snmp", os.O_RDONLY)
        assert plane.apply(True)
        both.send(INVITE, times=5)
        reading = plane.read([Taken(0, 0)])
        assert plane.apply(False)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert reading.filtered + plane.read([Taken(0, 0)]).filtered == 5
    assert not plane.failures
    plane.close()


def test_misuse_is_an_error(both: Pair) -> None:
    with socket.socket() as stream, pytest.raises(ValueError, match="UDP"):
        KernelDropPlane([stream], PROGRAM)
    plane = KernelDropPlane([both.receiver], PROGRAM)
    with pytest.raises(ValueError, match="2 figures for 1"):
        plane.read([Taken(0, 0)] * 2)
    assert repr(plane) == "<KernelDropPlane 0/1 filtering, failures {}>"
    plane.close()
    plane.close()
