"""SIP messages as the tests write and read them: short, and by rules of their own, not by the code under test."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

_number = itertools.count(1)


def unique(prefix: str) -> str:
    """A name that no other message of this run has."""
    return f"{prefix}{next(_number)}"


def request(
    method: str = "MESSAGE",
    *,
    uri: str = "sip:bob@example.org",
    call_id: str = "",
    branch: str = "",
    cseq: int = 1,
    to_tag: str = "",
    transport: str = "UDP",
    sent_by: str = "192.0.2.99:5060",
    max_forwards: int = 70,
    headers: Sequence[str] = (),
    body: bytes = b"",
    content_length: str | None = None,
) -> bytes:
    """A valid request (RFC 3261 8.1.1); sent_by is an address nobody has, so that an answer can only follow the flow."""
    tag = f";tag={to_tag}" if to_tag else ""
    lines = [
        f"{method} {uri} SIP/2.0",
        f"Via: SIP/2.0/{transport} {sent_by};rport;branch={branch or unique('z9hG4bK-edge-')}",
        f"Max-Forwards: {max_forwards}",
        "From: <sip:alice@example.org>;tag=a1",
        f"To: <sip:bob@example.org>{tag}",
        f"Call-ID: {call_id or unique('edge-')}",
        f"CSeq: {cseq} {method}",
        *headers,
        f"Content-Length: {len(body) if content_length is None else content_length}",
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@dataclass(frozen=True, slots=True)
class Message:
    """A received message, cut at its line ends."""

    start: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    data: bytes

    @classmethod
    def of(cls, data: bytes) -> Message:
        """Cut `data`; a message without an empty line is a failure of the test."""
        head, empty, body = data.partition(b"\r\n\r\n")
        assert empty, data
        start, *lines = head.decode().split("\r\n")
        pairs = [line.partition(":") for line in lines]
        return cls(start, tuple((name.strip().lower(), value.strip()) for name, _, value in pairs), body, data)

    @property
    def status(self) -> int:
        """The status of a response; 0 for a request."""
        return int(self.start.split(" ")[1]) if self.start.startswith("SIP/2.0 ") else 0

    @property
    def method(self) -> str:
        """The method of a request; of a response, that of its CSeq."""
        return self.one("CSeq").split(" ")[1]

    def all(self, name: str) -> list[str]:
        """The values of a header, one a line, in order."""
        return [value for key, value in self.headers if key == name.lower()]

    def one(self, name: str) -> str:
        """The value of a header that stands there exactly once."""
        values = self.all(name)
        assert len(values) == 1, (name, self.data)
        return values[0]


def response(
    to: bytes, status: int = 200, reason: str = "OK", *, to_tag: str = "b1", contact: str = "", body: bytes = b""
) -> bytes:
    """The server's answer to a request as it received it (RFC 3261 8.2.6), Record-Route copied (12.1.1)."""
    asked = Message.of(to)
    to_value = asked.one("To") if ";tag=" in asked.one("To") else f"{asked.one('To')};tag={to_tag}"
    lines = [
        f"SIP/2.0 {status} {reason}",
        *(f"Via: {value}" for value in asked.all("Via")),
        *(f"Record-Route: {value}" for value in asked.all("Record-Route")),
        f"From: {asked.one('From')}",
        f"To: {to_value}",
        f"Call-ID: {asked.one('Call-ID')}",
        f"CSeq: {asked.one('CSeq')}",
        *([f"Contact: <{contact}>"] if contact else []),
        f"Content-Length: {len(body)}",
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def ack(to: bytes, invite: bytes) -> bytes:
    """The ACK to a non-2xx final response (RFC 3261 17.1.1.3): the INVITE's Via, the response's To."""
    answer, asked = Message.of(to), Message.of(invite)
    lines = [
        asked.start.replace("INVITE", "ACK", 1),
        f"Via: {asked.all('Via')[0]}",
        "Max-Forwards: 70",
        f"From: {asked.one('From')}",
        f"To: {answer.one('To')}",
        f"Call-ID: {asked.one('Call-ID')}",
        f"CSeq: {asked.one('CSeq').split(' ')[0]} ACK",
        "Content-Length: 0",
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


def dialog_request(
    method: str,
    answer: bytes,
    *,
    route_reversed: bool = True,
    transport: str = "UDP",
    cseq: int = 2,
    swap: bool = False,
) -> bytes:
    """A request within the dialog that a 2xx (or its INVITE) set up, by its route set (RFC 3261 12.2.1.1).

    route_reversed: the caller reads Record-Route from the bottom, the callee from the top. swap: the callee's, whose From
    and To are the other way round.
    """
    set_up = Message.of(answer)
    routes = set_up.all("Record-Route")
    if route_reversed:
        routes.reverse()
    ends = (set_up.one("To"), set_up.one("From")) if swap else (set_up.one("From"), set_up.one("To"))
    contact = set_up.all("Contact")
    target = contact[0].strip("<>") if contact else "sip:peer@192.0.2.77:5060"
    lines = [
        f"{method} {target} SIP/2.0",
        f"Via: SIP/2.0/{transport} 192.0.2.99:5060;rport;branch={unique('z9hG4bK-edge-')}",
        "Max-Forwards: 70",
        *(f"Route: {value}" for value in routes),
        f"From: {ends[0]}",
        f"To: {ends[1]}",
        f"Call-ID: {set_up.one('Call-ID')}",
        f"CSeq: {cseq} {method}",
        "Content-Length: 0",
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"
