"""The load's messages: against the embedded server on virtual time, and its process on a socket."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections import Counter

import pytest

from sipguard.demo.tally import Tally
from sipguard.demo.traffic import ANSWER_WITHIN_NS, TALK_NS, Traffic
from sipguard.uas.agent import UserAgentServer
from sipguard.uas.peer import Peer
from sipguard.wire.head import read_head
from sipguard.wire.scan import request_method

SECOND = 1_000_000_000


class Exchange:
    """Traffic and the embedded server, message by message on virtual time."""

    def __init__(self) -> None:
        self.traffic = Traffic(b"192.0.2.7:5070", b"192.0.2.1:5060")
        self.server = UserAgentServer(ring_ns=200_000_000, addresses={"udp": b"192.0.2.1:5060"})
        self.seen: Counter[str | None] = Counter()

    def to_server(self, data: bytes, now_ns: int) -> None:
        self.seen[request_method(data)] += 1
        assert read_head(data).problem is None
        for send in self.server.receive(data, Peer("udp", "192.0.2.7", 5070), now_ns):
            self.to_client(send.data, now_ns)

    def to_client(self, data: bytes, now_ns: int) -> int:
        messages, counted = self.traffic.receive(data, now_ns)
        for message in messages:
            self.to_server(message, now_ns)
        return counted

    def run(self, requests: int, until_ns: int) -> None:
        for n in range(until_ns // 10_000_000):
            now_ns = n * 10_000_000
            if n < requests:
                self.to_server(self.traffic.new_request(now_ns), now_ns)
            for bye in self.traffic.due(now_ns):
                self.to_server(bye, now_ns)
            for send in self.server.tick(now_ns):
                self.to_client(send.data, now_ns)


def test_every_request_of_the_mix_is_served_and_every_call_ended() -> None:
    exchange = Exchange()
    exchange.run(200, 2 * SECOND + TALK_NS + 10 * SECOND)
    exchange.traffic.forget_unanswered(60 * SECOND)
    rows = exchange.traffic.tally.rows()
    calls = exchange.seen["INVITE"]
    assert calls == 40
    for method, row in rows.items():
        assert row["sent"] == exchange.seen[method], method
        assert row["refused"] == row["other"] == row["none"] == 0
        assert row["ok"] == (0 if method == "ACK" else row["sent"])
    assert rows["ACK"]["sent"] == rows["BYE"]["sent"] == calls
    assert repr(exchange.server).startswith("<UserAgentServer invites=40 dialogs=0 ")
    assert repr(exchange.traffic).startswith("<Traffic waiting=0 calls=0 ")


def invite_of(traffic: Traffic) -> bytes:
    """The mix's next INVITE."""
    while request_method(data := traffic.new_request(0)) != "INVITE":
        pass
    return data


def answer(data: bytes, status: int, extra: bytes = b"") -> bytes:
    head = read_head(data)
    return (
        b"SIP/2.0 %d X\r\nVia: %b\r\nFrom: %b\r\nTo: %b;tag=t\r\nCall-ID: %b\r\nCSeq: %b\r\n%bContent-Length: 0\r\n\r\n"
        % (status, head.vias[0], head.from_ or b"", head.to or b"", head.call_id or b"", head.cseq or b"", extra)
    )


def test_a_refused_invite_is_acknowledged_hop_by_hop() -> None:
    # RFC 3261 17.1.1.3: same Request-URI, branch, Call-ID, From and CSeq number; the To of the answer. SPEC M2: not counted.
    traffic = Traffic(b"192.0.2.7:5070", b"192.0.2.1:5060")
    data = invite_of(traffic)
    messages, counted = traffic.receive(answer(data, 503), 0)
    ack, invite = read_head(messages[0]), read_head(data)
    assert (ack.method, ack.uri, ack.vias, ack.call_id, ack.from_) == (
        *("ACK", invite.uri, invite.vias),
        *(invite.call_id, invite.from_),
    )
    assert (ack.cseq, ack.to_tag, counted) == (b"1 ACK", b"t", 0)
    assert traffic.tally.rows()["INVITE"]["refused"] == 1


def test_the_route_set_is_the_record_route_reversed() -> None:
    # RFC 3261 12.1.2.
    traffic = Traffic(b"192.0.2.7:5070", b"192.0.2.1:5060")
    extra = b"Record-Route: <sip:a;lr>, <sip:b;lr>\r\nContact: <sip:bob@192.0.2.99:7>\r\n"
    messages, counted = traffic.receive(answer(invite_of(traffic), 200, extra), 0)
    ack, bye = read_head(messages[0]), read_head(traffic.due(TALK_NS)[0])
    assert ack.routes == bye.routes == [b"<sip:b;lr>", b"<sip:a;lr>"]
    assert ack.uri == bye.uri == b"sip:bob@192.0.2.99:7"
    assert (bye.cseq, counted) == (b"2 BYE", 1)


def test_a_repeated_200_is_acknowledged_again() -> None:
    traffic = Traffic(b"192.0.2.7:5070", b"192.0.2.1:5060")
    accepted = answer(invite_of(traffic), 200, b"Contact: <sip:bob@192.0.2.99:7>\r\n")
    assert traffic.receive(accepted, 0) == traffic.receive(accepted, 1)
    assert traffic.tally.rows()["INVITE"]["ok"] == 1


def test_what_is_not_answered_in_time_is_counted() -> None:
    traffic = Traffic(b"192.0.2.7:5070", b"192.0.2.1:5060")
    late = [traffic.new_request(n) for n in range(5)]
    traffic.forget_unanswered(ANSWER_WITHIN_NS + 2)
    assert traffic.tally.total("none") == 3
    assert traffic.receive(answer(late[0], 200), ANSWER_WITHIN_NS) == ([], 0)
    assert traffic.tally.total("ok") == 0


@pytest.mark.parametrize("data", [b"", b"junk", b"SIP/2.0 200 OK\r\n\r\n", b"SIP/2.0 503 X\r\nCSeq: 1 INVITE\r\n\r\n"])
def test_strange_answers_are_ignored(data: bytes) -> None:
    assert Traffic(b"192.0.2.7:5070", b"192.0.2.1:5060").receive(data, 0) == ([], 0)


def test_the_load_process_sends_at_its_rate_and_ends_with_its_stdin() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        peer.bind(("127.0.0.1", 0))
        peer.settimeout(20)
        command = [sys.executable, "-m", "sipguard.demo.load", f"127.0.0.1:{peer.getsockname()[1]}"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(f"nonsense\nrate 200 {time.monotonic_ns()}\n")
            process.stdin.flush()
            received = [peer.recv(65_535) for _ in range(40)]
            process.stdin.close()
            report = json.loads(process.stdout.readlines()[-1])
            assert process.wait(20) == 0
    assert all(read_head(data).problem is None for data in received)
    tally = Tally(report["rows"])
    assert tally.total("sent") >= 40
    assert tally.total("none") == tally.total("sent")


@pytest.mark.parametrize("arguments", [[], ["localhost"], ["127.0.0.1:x"]])
def test_the_load_process_refuses_a_wrong_address(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sipguard.demo.load", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )
    assert done.returncode == 2
    assert "usage" in done.stderr
