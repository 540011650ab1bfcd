"""The answers a guard makes by itself.

RFC 3261 8.2.6 (UAS responses), 8.2.7 (statelessly), 18.2.1 (received), 20.33 (Retry-After); RFC 3581 4 (rport).
"""

from __future__ import annotations

from sipguard.wire.edits import mark_via
from sipguard.wire.head import Head

_START_LINES_MAX = 64  # keyed by our own statuses and reasons, never by the network
_start_lines: dict[tuple[int, bytes], bytes] = {}


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
    """A final answer to `head`, without a body, built from the request alone.

    All Vias in order (the top one with `received`, and with `rport` when it asks for it), From, To (with `to_tag` when it has
    none), Call-ID and CSeq as they came, a fold as one space; a bare CR inside a value becomes a space.
    retry_after: seconds. extra: complete header lines, each with its CRLF.
    Ask `head.answerable` first: what is missing in the request comes back empty.
    """
    vias = head.vias
    from_ = head.from_
    to = head.to
    call_id = head.call_id
    cseq = head.cseq
    if not vias or from_ is None or to is None or call_id is None or cseq is None:
        vias = vias or [b""]
        from_, to, call_id, cseq = from_ or b"", to or b"", call_id or b"", cseq or b""
    via = vias[0] if received is None and rport is None else mark_via(vias[0], received, rport, head.top_via)
    if len(vias) > 1:
        via = b"\nVia: ".join([via, *vias[1:]])
    start = _start_lines.get((status, reason)) or _start_line(status, reason)
    tag = b";tag=" + to_tag if to_tag is not None and head.to_tag is None else b""
    text = b"".join(
        (start, b"\nVia: ", via, b"\nFrom: ", from_, b"\nTo: ", to, tag, b"\nCall-ID: ", call_id, b"\nCSeq: ", cseq)
    )
    # No value of `head` holds a LF; with bare CRs gone as well, nothing a peer wrote can start a line of its own. A NUL stays:
    # it is legal in a quoted pair (RFC 4475 3.1.1.2).
    if b"\r" in text:
        text = text.replace(b"\r", b" ")
    if retry_after is not None:
        text += b"\nRetry-After: %d" % retry_after
    if server is not None:
        text += b"\nServer: " + server
    if extra:
        return text.replace(b"\n", b"\r\n") + b"\r\n" + extra + b"Content-Length: 0\r\n\r\n"
    return (text + b"\nContent-Length: 0\n\n").replace(b"\n", b"\r\n")


def _start_line(status: int, reason: bytes) -> bytes:
    line = b"SIP/2.0 %d %b" % (status, reason)
    if len(_start_lines) < _START_LINES_MAX:
        _start_lines[status, reason] = line
    return line
