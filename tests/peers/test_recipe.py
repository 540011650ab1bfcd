"""The README's recipe is what runs here: examples/kamailio.cfg behind a guard, addresses replaced, nothing else."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.peers.guard import Guard
from tests.peers.process import Child, executable, free_port, wait_until

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TRUNK, STRANGER = "127.0.0.3", "127.0.0.4"

pytestmark = pytest.mark.peer


class Phone:
    """A SIP client's UDP socket on a loopback address of its own."""

    def __init__(self, guard: Guard, host: str, name: str) -> None:
        self.name = name
        self.guard = guard
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.bind((host, 0))
        self.sock.settimeout(5)
        self.address = "{}:{}".format(*self.sock.getsockname())
        self.sent = 0

    def close(self) -> None:
        self.sock.close()

    def request(self, method: str, user: str = "", *, cseq: int = 1, extra: str = "") -> None:
        """One request to the guard; the Contact is an address nobody could reach, as behind a NAT."""
        self.sent += 1
        uri = f"sip:{user}@{self.guard.address}" if user else f"sip:{self.guard.address}"
        to = self.name if method == "REGISTER" else user
        text = (
            f"{method} {uri} SIP/2.0\r\nVia: SIP/2.0/UDP 10.9.9.9:5060;branch=z9hG4bK{self.name}{method}{self.sent};rport\r\n"
            f"Max-Forwards: 70\r\nFrom: <sip:{self.name}@{self.guard.address}>;tag={self.name}\r\n"
            f"To: <sip:{to}@{self.guard.address}>\r\nCall-ID: {self.name}-{method}-{user}-{self.sent if user else 0}\r\n"
            f"CSeq: {cseq} {method}\r\nContact: <sip:{self.name}@10.9.9.9:5060>\r\n{extra}Content-Length: 0\r\n\r\n"
        )
        self.sock.sendto(text.encode(), (self.guard.host, self.guard.port))

    def hear(self) -> str:
        """The next message that is not provisional; it must come from the address we asked."""
        while True:
            data, source = self.sock.recvfrom(65535)
            assert source == (self.guard.host, self.guard.port)
            if not data.startswith(b"SIP/2.0 1"):
                return data.decode()

    def hang_up(self, invite: str) -> None:
        """BYE from the called side: the Record-Routes as Routes, in their order (RFC 3261 12.1.1)."""
        lines = {
            name: [x for x in invite.split("\r\n") if x.startswith(name)] for name in ("Record-Route:", "From:", "To:")
        }
        routes = "".join(line.replace("Record-Route:", "Route:", 1) + "\r\n" for line in lines["Record-Route:"])
        call_id = next(line for line in invite.split("\r\n") if line.startswith("Call-ID:"))
        text = (
            f"BYE sip:alice@10.9.9.9:5060 SIP/2.0\r\nVia: SIP/2.0/UDP 10.9.9.9:5060;branch=z9hG4bKbye{self.name};rport\r\n"
            f"Max-Forwards: 70\r\n{routes}{lines['To:'][0].replace('To:', 'From:', 1)};tag=callee\r\n"
            f"{lines['From:'][0].replace('From:', 'To:', 1)}\r\n{call_id}\r\nCSeq: 1 BYE\r\nContent-Length: 0\r\n\r\n"
        )
        self.sock.sendto(text.encode(), (self.guard.host, self.guard.port))

    def answer(self, request: str, status: str) -> None:
        """Answer a request that came in, as a user agent does: Vias and Record-Routes copied."""
        copied = [
            line
            for line in request.split("\r\n")
            if line.startswith(("Via:", "Record-Route:", "From:", "Call-ID:", "CSeq:"))
        ]
        to = next(line for line in request.split("\r\n") if line.startswith("To:"))
        lines = [
            f"SIP/2.0 {status}",
            *copied,
            f"{to};tag=callee",
            f"Contact: <sip:{self.name}@10.9.9.9:5060>",
            "Content-Length: 0",
        ]
        self.sock.sendto(("\r\n".join(lines) + "\r\n\r\n").encode(), (self.guard.host, self.guard.port))


@pytest.fixture
def guard(tmp_path: Path) -> Iterator[Guard]:
    """The recipe, running: Kamailio by examples/kamailio.cfg and a guard in front of it."""
    kamailio_port, guard_port = free_port(), free_port()
    text = (EXAMPLES / "kamailio.cfg").read_text()
    trunks = tmp_path / "trunks.list"
    example = (EXAMPLES / "trunks.list").read_text()
    assert "203.0.113.9" in example
    trunks.write_text(example.replace("203.0.113.9", TRUNK))
    for old, new in (
        ("198.51.100.7:5060", f"127.0.0.1:{guard_port}"),
        ("127.0.0.1:5080", f"127.0.0.1:{kamailio_port}"),
        ("/etc/kamailio/trunks.list", str(trunks)),
        ("log_stderror=no", "log_stderror=yes"),
    ):
        assert old in text
        text = text.replace(old, new)
    configuration = tmp_path / "kamailio.cfg"
    configuration.write_text(text)
    with ExitStack() as stack:
        directory = tmp_path / "kamailio"
        directory.mkdir()
        argv = [
            executable("kamailio"),
            "-DD",
            "-E",
            "-f",
            str(configuration),
            "-m",
            "64",
            "-M",
            "8",
            "-w",
            str(directory),
            "-Y",
            str(directory),
        ]
        child = Child.start("kamailio", argv, directory)
        stack.callback(child.stop)
        started = Guard.start(
            tmp_path, port=guard_port, admin_port=free_port(), upstreams=[f"127.0.0.1:{kamailio_port}"],
            parameters={"lc": 5000, "lcps": 5000},
        )  # fmt: skip
        stack.callback(started.stop)
        wait_until(lambda: _answers(kamailio_port), 10, f"Kamailio's answer: {child.tail()}")
        yield started


def _answers(port: int) -> bool:
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as sock:
        sock.settimeout(0.3)
        sock.connect(("127.0.0.1", port))
        try:
            here = "{}:{}".format(*sock.getsockname())
            sock.send(
                f"OPTIONS sip:127.0.0.1:{port} SIP/2.0\r\nVia: SIP/2.0/UDP {here};branch=z9hG4bKp\r\n"
                f"Max-Forwards: 9\r\nFrom: <sip:p@x>;tag=p\r\nTo: <sip:x@x>\r\n"
                "Call-ID: p\r\nCSeq: 1 OPTIONS\r\nContent-Length: 0\r\n\r\n".encode()
            )
            return sock.recv(4096).startswith(b"SIP/2.0 200")
        except OSError:
            return False


def test_a_registered_phone_behind_a_nat_is_called_and_hangs_up(guard: Guard) -> None:
    """RFC 3327 Path and the flow token in it: the call finds the flow that registered, not the Contact."""
    with ExitStack() as stack:
        alice, bob = (stack.enter_context(closing(Phone(guard, "127.0.0.1", name))) for name in ("alice", "bob"))
        for phone in (alice, bob):
            phone.request("REGISTER", extra="Supported: path\r\nExpires: 60\r\n")
            assert phone.hear().startswith("SIP/2.0 200")
        alice.request("INVITE", "bob")
        invite = bob.hear()
        assert invite.startswith("INVITE sip:bob@10.9.9.9:5060 SIP/2.0")
        assert "X-Guard-Source" not in invite  # that is for servers
        bob.answer(invite, "200 OK")
        assert alice.hear().startswith("SIP/2.0 200 OK")
        # Bob hangs up: two passes through the guard, by its Record-Routes alone; alice's Contact is unreachable.
        bob.hang_up(invite)
        bye = alice.hear()
        assert bye.startswith("BYE sip:alice@10.9.9.9:5060 SIP/2.0")
        alice.answer(bye, "200 OK")
        assert bob.hear().startswith("SIP/2.0 200 OK")


def test_a_trunk_is_known_by_its_own_address_and_a_stranger_cannot_claim_it(guard: Guard) -> None:
    with ExitStack() as stack:
        bob = stack.enter_context(closing(Phone(guard, "127.0.0.1", "bob")))
        bob.request("REGISTER", extra="Expires: 60\r\n")
        assert bob.hear().startswith("SIP/2.0 200")
        trunk = stack.enter_context(closing(Phone(guard, TRUNK, "carrier")))
        stranger = stack.enter_context(closing(Phone(guard, STRANGER, "nobody")))
        # From a foreign domain, so that only the address counts.
        for phone, forged, status in (
            (trunk, "", None),
            (stranger, "", "403"),
            (stranger, f"X-Guard-Source: {TRUNK};5060;udp\r\n", "403"),
        ):
            phone.sent += 1
            text = (
                f"INVITE sip:bob@{guard.address} SIP/2.0\r\n"
                f"Via: SIP/2.0/UDP {phone.address};branch=z9hG4bKt{phone.name}{phone.sent};rport\r\n"
                f"Max-Forwards: 70\r\nFrom: <sip:c@carrier.example>;tag=c\r\nTo: <sip:bob@{guard.address}>\r\n{forged}"
                f"Call-ID: t-{phone.name}-{phone.sent}\r\nCSeq: 1 INVITE\r\n"
                f"Contact: <sip:c@{phone.address}>\r\nContent-Length: 0\r\n\r\n"
            )
            phone.sock.sendto(text.encode(), (guard.host, guard.port))
            if status is None:
                invite = bob.hear()
                assert invite.startswith("INVITE ")
                bob.answer(invite, "486 Busy Here")
                assert trunk.hear().startswith("SIP/2.0 486")
            else:
                assert phone.hear().startswith(f"SIP/2.0 {status}")


def test_pike_does_not_block_the_guard(guard: Guard) -> None:
    """Far more than pike's density from one packet source, the guard: all are answered."""
    with closing(Phone(guard, "127.0.0.1", "carol")) as carol:
        for number in range(200):
            carol.request("REGISTER", cseq=number + 1, extra="Expires: 60\r\n")
            assert carol.hear().startswith("SIP/2.0 200")


@pytest.mark.parametrize("way", ["Request-URI", "Route"])
def test_kamailio_relays_to_nobody_beyond_the_guard(guard: Guard, way: str) -> None:
    """A To tag opens no way out: neither a foreign Request-URI nor a foreign Route."""
    with ExitStack() as stack:
        victim = stack.enter_context(closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)))
        victim.bind(("127.0.0.7", 0))
        victim.settimeout(1)
        attacker = stack.enter_context(closing(Phone(guard, STRANGER, "mallory")))
        target = "{}:{}".format(*victim.getsockname())
        uri, route = (
            (f"sip:x@{target}", "")
            if way == "Request-URI"
            else (f"sip:x@{guard.address}", f"Route: <sip:{target};lr>\r\n")
        )
        text = (
            f"MESSAGE {uri} SIP/2.0\r\nVia: SIP/2.0/UDP {attacker.address};branch=z9hG4bKm;rport\r\nMax-Forwards: 70\r\n{route}"
            f"From: <sip:m@x>;tag=m\r\nTo: <sip:x@y>;tag=invented\r\n"
            f"Call-ID: relay-{way}\r\nCSeq: 1 MESSAGE\r\nContent-Length: 0\r\n\r\n"
        )
        attacker.sock.sendto(text.encode(), (guard.host, guard.port))
        assert attacker.hear().startswith(("SIP/2.0 403", "SIP/2.0 404"))
        with pytest.raises(TimeoutError):
            victim.recv(65535)
