"""The load generator: exactly what is asked for, each datagram a SIP message of its own (issue 2, section 6)."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from bench.load import BATCH, NUMBER, SLOTS, Lane, Load, LoadError
from bench.messages import answer_to, invite, register

from sipguard.wire.head import Head, read_head

Pairs = Callable[[int], tuple[list[socket.socket], socket.socket]]


@pytest.fixture
def pairs() -> Iterator[Pairs]:
    """Some connected senders and the socket that hears them."""
    with ExitStack() as stack:

        def make(count: int) -> tuple[list[socket.socket], socket.socket]:
            hearer = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            hearer.bind(("127.0.0.1", 0))
            hearer.settimeout(5)
            senders = [stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) for _ in range(count)]
            for sender in senders:
                sender.connect(hearer.getsockname())
            return senders, hearer

        yield make


def _heard(hearer: socket.socket) -> list[bytes]:
    """All that has arrived; loopback delivers within the sender's call."""
    hearer.setblocking(False)
    found = []
    try:
        while True:
            found.append(hearer.recv(65_535))
    except BlockingIOError:
        return found


@pytest.mark.parametrize("count", [1, BATCH - 1, BATCH, BATCH + 1, 150])
def test_sends_exactly_so_many(pairs: Pairs, count: int) -> None:
    senders, hearer = pairs(3)
    load = Load([Lane(sender, b"lane %d @NUMBER@" % number) for number, sender in enumerate(senders)])
    load.send(count)
    assert load.sent == count
    assert len(_heard(hearer)) == count


def test_no_number_comes_twice_over_several_turns(pairs: Pairs) -> None:
    senders, hearer = pairs(1)
    lane = Lane(senders[0], b"a @NUMBER@ b @NUMBER@")
    found: list[bytes] = []
    while len(found) < 3 * SLOTS + 10:
        lane.send(BATCH)
        found += _heard(hearer)
        hearer.setblocking(True)
    assert len(set(found)) == len(found)
    assert found[0] == b"a 00000000 b 00000000"
    assert found[SLOTS + 7] == b"a 00001007 b 00001007"


def test_a_batch_ends_with_the_turn(pairs: Pairs) -> None:
    senders, hearer = pairs(1)
    lane = Lane(senders[0], b"@NUMBER@")
    assert [lane.send(10_000), lane.send(BATCH - 1), lane.send(BATCH)] == [BATCH, BATCH - 1, BATCH]
    for _ in range(SLOTS // BATCH - 3):
        lane.send(BATCH)
    assert lane.send(BATCH) == 1
    assert len(_heard(hearer)) == SLOTS


def test_first_is_what_is_sent_next(pairs: Pairs) -> None:
    senders, hearer = pairs(1)
    lane = Lane(senders[0], b"@NUMBER@")
    for _ in range(3):
        expected = lane.first
        lane.send(1)
        assert hearer.recv(100) == expected


def test_pace_sends_the_whole_number_and_takes_its_time(pairs: Pairs) -> None:
    senders, hearer = pairs(2)
    load = Load([Lane(sender, b"@NUMBER@") for sender in senders])
    start_ns = time.monotonic_ns()
    load.pace(500, 0.2)
    assert time.monotonic_ns() - start_ns >= 190_000_000  # the grid is absolute: never faster
    assert load.sent == len(_heard(hearer)) == 100


def test_a_server_that_is_gone_is_an_error_with_its_cause(pairs: Pairs) -> None:
    senders, hearer = pairs(1)
    hearer.close()
    lane = Lane(senders[0], b"@NUMBER@")
    with pytest.raises(LoadError, match="sendmmsg: 1 of 64 datagrams sent"):
        lane.send(BATCH)
    lane.send(1)
    with pytest.raises(LoadError, match="sendmmsg: Connection refused"):
        lane.send(1)


def _read(template: bytes, number: int) -> Head:
    return read_head(template.replace(NUMBER, b"%08d" % number))


@pytest.mark.parametrize("make", [invite, register])
def test_requests_are_sound_and_differ_where_transactions_do(make: Callable[[int, int], bytes]) -> None:
    """RFC 3261 8.1.1: all six mandatory headers; 17.2.3: a branch of its own for each."""
    one, other = _read(make(40_001, 5060), 1), _read(make(40_001, 5060), 2)
    for head in (one, other):
        assert head.problem is None
        assert head.content_length == len(head.data) - head.body_offset
    assert one.top_via is not None
    assert other.top_via is not None
    assert one.top_via.branch != other.top_via.branch
    assert one.top_via.rport is not None
    assert one.call_id != other.call_id
    assert one.cseq_number != other.cseq_number
    assert len(make(40_001, 5060)) == len(one.data)  # the mark is as long as what replaces it


def test_an_answer_keeps_vias_and_routes_in_order() -> None:
    """RFC 3261 8.2.6.2 (Vias, all, in order), 12.1.1 (Record-Routes, all, in order)."""
    via = b"Via: SIP/2.0/UDP 127.0.0.1:5070;branch=z9hG4bKproxy\r\n"
    routes = b"Record-Route: <sip:127.0.0.1:5070;lr>\r\nRecord-Route: <sip:127.0.0.1:5060;lr>\r\n"
    line, _, rest = invite(40_001, 5060).replace(NUMBER, b"00000001").partition(b"\r\n")
    request = read_head(line + b"\r\n" + via + routes + rest)
    answer = _read(answer_to(request.data), 9)
    assert answer.status == 200
    assert answer.problem is None
    assert answer.vias == request.vias
    assert answer.record_routes == request.record_routes
    assert answer.from_ == request.from_
    assert answer.to_tag is not None
    assert answer.content_length == len(answer.data) - answer.body_offset
