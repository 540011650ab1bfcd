"""The answers a guard makes by itself. RFC 3261 8.2.6 (UAS responses), 18.2.1 (received), RFC 3581 (rport), 20.33 (Retry-After)."""

from __future__ import annotations

from sipguard.wire.edits import mark_via
from sipguard.wire.head import Head

_UNSAFE = bytes.maketrans(b"\r\n\0", b"   ")


def reply(
    head: Head,
    status: int,
    reason: bytes,
    *,
    to_tag: bytes | None,
    received: bytes | None = None,
    rport: int | None = None,
    server: bytes | None = None,
    retry_after: int | None = None,
    extra: bytes = b"",
) -> bytes:
    """A final answer to `head` without a body, built from the request alone (stateless, RFC 3261 8.2.7).

    All Vias in order (the top one with `received`, and `rport` when it asks for it), From, To (with to_tag when it has none), Call-ID and CSeq as
    they came, a fold as one space. retry_after: seconds. extra: complete header lines, each with its CRLF.
    Ask `head.answerable` first: what is missing in the request is left out here.
    """
    vias = head.vias
    if vias and (received is not None or rport is not None):
        vias = [mark_via(vias[0], received, rport), *vias[1:]]
    to = head.to
    if to is not None and to_tag is not None and head.to_tag is None:
        to += b";tag=" + to_tag
    lines = [b"SIP/2.0 %d %b" % (status, reason)]
    lines += [b"Via: " + via for via in vias]
    for name, value in ((b"From: ", head.from_), (b"To: ", to), (b"Call-ID: ", head.call_id), (b"CSeq: ", head.cseq)):
        if value is not None:
            lines.append(name + value)
    if retry_after is not None:
        lines.append(b"Retry-After: %d" % retry_after)
    if server is not None:
        lines.append(b"Server: " + server)
    lines = [line.translate(_UNSAFE) for line in lines]
    return b"\r\n".join(lines) + b"\r\n" + extra + b"Content-Length: 0\r\n\r\n"
