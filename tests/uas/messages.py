"""Small requests of our own making for the server's tests, and its answers taken apart."""

from __future__ import annotations

from sipguard.uas.agent import UserAgentServer
from sipguard.uas.peer import Peer, Send
from sipguard.wire.head import Head, read_head

CLIENT = Peer("udp", "192.0.2.7", 5070)
STREAM = Peer("tcp", "192.0.2.7", 40001, 3)
ADDRESSES = {"udp": b"192.0.2.1:5080", "tcp": b"192.0.2.1:5081"}
SECOND = 1_000_000_000

OFFER = (
    b"v=0\r\no=alice 1 1 IN IP4 192.0.2.7\r\ns=-\r\nc=IN IP4 192.0.2.7\r\nt=0 0\r\n"
    b"m=audio 40000 RTP/AVP 8 101\r\na=rtpmap:101 telephone-event/8000\r\na=sendrecv\r\n"
)


def server(**settings: int) -> UserAgentServer:
    """A server on documentation addresses."""
    return UserAgentServer(key=b"test key", addresses=ADDRESSES, **settings)


def request(
    method: str,
    *,
    call: str = "call-1",
    branch: str = "",
    cseq: int = 1,
    to_tag: str = "",
    from_tag: str = "alice",
    uri: str = "sip:bob@192.0.2.1",
    extra: bytes = b"",
    body: bytes = b"",
    via: str = "",
    cseq_method: str = "",
) -> bytes:
    """One request; extra: complete header lines. The default branch is one per method, call and CSeq number."""
    branch = branch or f"z9hG4bK-{method}-{call}-{cseq}"
    via = via or f"SIP/2.0/UDP 192.0.2.7:5070;branch={branch}"
    tag = f";tag={to_tag}" if to_tag else ""
    head = (
        f"{method} {uri} SIP/2.0\r\nVia: {via}\r\nMax-Forwards: 70\r\nFrom: <sip:alice@example.com>;tag={from_tag}\r\n"
        f"To: <sip:bob@example.com>{tag}\r\nCall-ID: {call}\r\nCSeq: {cseq} {cseq_method or method}\r\n"
        "Contact: <sip:alice@192.0.2.7:5070>\r\n"
    ).encode()
    return head + extra + b"Content-Length: %d\r\n\r\n" % len(body) + body


def heads(sends: list[Send]) -> list[Head]:
    """The messages sent, read."""
    return [read_head(send.data) for send in sends]


def statuses(sends: list[Send]) -> list[int]:
    """Their status codes."""
    return [head.status for head in heads(sends)]


def only(sends: list[Send]) -> Head:
    """The one message sent."""
    assert len(sends) == 1, sends
    return read_head(sends[0].data)


def values(head: Head, name: str) -> list[bytes]:
    """All values of one header of an answer, by its exact name."""
    prefix = name.encode() + b": "
    lines = head.data[: head.body_offset].split(b"\r\n")
    return [line[len(prefix) :] for line in lines if line.startswith(prefix)]


def body(head: Head) -> bytes:
    """The body of an answer."""
    return head.data[head.body_offset :]


def set_up(agent: UserAgentServer, now_ns: int = 0, call: str = "call-1") -> str:
    """A call answered and acknowledged at about now_ns; returns our tag of it."""
    agent.receive(request("INVITE", call=call, body=OFFER), CLIENT, now_ns)
    accepted = only(agent.tick(now_ns + agent.ring_ns))
    assert accepted.status == 200
    tag = (accepted.to_tag or b"").decode()
    agent.receive(request("ACK", call=call, to_tag=tag), CLIENT, now_ns + agent.ring_ns)
    return tag
