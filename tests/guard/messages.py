"""Small SIP messages of our own making, and a plain reader of them that shares no code with the product."""

from __future__ import annotations

from collections.abc import Iterable


def request(
    method: str = "INVITE",
    uri: str = "sip:bob@example.com",
    *,
    sent_by: str = "198.51.100.7:5062",
    transport: str = "UDP",
    branch: str | None = "z9hG4bKa1",
    via_params: str = "",
    vias: Iterable[str] = (),
    to_tag: str | None = None,
    call_id: str = "c1@198.51.100.7",
    cseq: int = 1,
    max_forwards: int | None = 70,
    routes: Iterable[str] = (),
    headers: Iterable[str] = (),
    body: bytes = b"",
) -> bytes:
    """A well-formed request. vias: those below the top one. routes: Route values; headers: whole lines, without CRLF."""
    top = f"SIP/2.0/{transport} {sent_by}" + ("" if branch is None else f";branch={branch}") + via_params
    lines = [f"{method} {uri} SIP/2.0", *(f"Via: {via}" for via in (top, *vias))]
    if max_forwards is not None:
        lines.append(f"Max-Forwards: {max_forwards}")
    lines += [f"Route: {route}" for route in routes]
    lines += [
        "From: <sip:alice@example.com>;tag=af1",
        "To: <sip:bob@example.com>" + ("" if to_tag is None else f";tag={to_tag}"),
        f"Call-ID: {call_id}",
        f"CSeq: {cseq} {method}",
        *headers,
        f"Content-Length: {len(body)}",
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


def response_to(asked: bytes, status: int = 200, to_tag: str = "srv1", headers: Iterable[str] = ()) -> bytes:
    """What a server answers to the bytes it got (RFC 3261 8.2.6), the Record-Routes copied too (12.1.1)."""
    lines = [f"SIP/2.0 {status} Whatever".encode()]
    lines += [b"Via: " + via for via in values(asked, "Via")]
    lines += [b"Record-Route: " + route for route in values(asked, "Record-Route")]
    to = value(asked, "To")
    lines += [
        b"From: " + value(asked, "From"),
        b"To: " + (to if b";tag=" in to else to + b";tag=" + to_tag.encode()),
        b"Call-ID: " + value(asked, "Call-ID"),
        b"CSeq: " + value(asked, "CSeq"),
        *(header.encode() for header in headers),
        b"Content-Length: 0",
    ]
    return b"\r\n".join([*lines, b"", b""])


def ack_of(invite: bytes, final: bytes) -> bytes:
    """The ACK of a non-2xx final response, as the client transaction makes it (RFC 3261 17.1.1.3)."""
    return _within(invite, b"ACK", value(final, "To"))


def cancel_of(invite: bytes) -> bytes:
    """The CANCEL of a request (RFC 3261 9.1)."""
    return _within(invite, b"CANCEL", value(invite, "To"))


def _within(invite: bytes, method: bytes, to: bytes) -> bytes:
    lines = [
        method + b" " + start_line(invite).split(b" ")[1] + b" SIP/2.0",
        b"Via: " + values(invite, "Via")[0],
        b"Max-Forwards: 70",
        *(b"Route: " + route for route in values(invite, "Route")),
        b"From: " + value(invite, "From"),
        b"To: " + to,
        b"Call-ID: " + values(invite, "Call-ID")[0],
        b"CSeq: " + values(invite, "CSeq")[0].split(b" ")[0] + b" " + method,
        b"Content-Length: 0",
    ]
    return b"\r\n".join([*lines, b"", b""])


# -- reading -----------------------------------------------------------------------------------------------------------


def start_line(data: bytes) -> bytes:
    """The first line."""
    return data.split(b"\r\n", 1)[0]


def status_of(data: bytes) -> int:
    """The status code of a response; 0 for a request."""
    words = start_line(data).split(b" ")
    return int(words[1]) if words[0] == b"SIP/2.0" else 0


def body_of(data: bytes) -> bytes:
    """What follows the empty line."""
    return data.split(b"\r\n\r\n", 1)[1]


def lines_of(data: bytes) -> list[bytes]:
    """The header lines, without the start line."""
    return data.split(b"\r\n\r\n", 1)[0].split(b"\r\n")[1:]


def values(data: bytes, name: str) -> list[bytes]:
    """The values of the header lines of that name, in order; one value a line in our own messages."""
    found = []
    for line in lines_of(data):
        key, _, text = line.partition(b":")
        if key.strip().lower() == name.lower().encode():
            found.append(text.strip())
    return found


def value(data: bytes, name: str) -> bytes:
    """The one value of that header."""
    (only,) = values(data, name)
    return only


def param(text: bytes, name: str) -> bytes | None:
    """A `;name=value` parameter of a value; b"" for one without a value, None for none."""
    for part in text.strip(b"<>").split(b";")[1:]:
        key, _, given = part.partition(b"=")
        if key == name.encode():
            return given.rstrip(b">")
    return None


def uri_of(route: bytes) -> str:
    """What stands between `<` and `>`."""
    return route[route.index(b"<") + 1 : route.index(b">")].decode()
