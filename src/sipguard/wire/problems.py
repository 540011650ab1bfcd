"""The defects for which a guard answers by itself instead of passing a message on. RFC 3261 8.1.1, 16.3, 18.3, 20; RFC 4475."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sipguard.wire.names import CALL_ID, CONTENT_LENGTH, CSEQ, FROM, MAX_FORWARDS, TO
from sipguard.wire.scan import METHODS
from sipguard.wire.values import read_via

if TYPE_CHECKING:
    from sipguard.wire.head import Head

PROBLEMS: tuple[str, ...] = (
    "bad-start-line",
    "version",
    "bare-cr",
    "no-via",
    "bad-via",
    "no-from",
    "no-to",
    "no-call-id",
    "no-cseq",
    "duplicate",
    "bad-cseq",
    "cseq-method",
    "bad-max-forwards",
    "bad-content-length",
    "body-short",
    "no-end",
)
"""Every value `Head.problem` can take, in the order they are looked for.

bad-start-line: not three words with one space between them, or no start line at all (RFC 3261 7.1, 7.2).
version: a request that is not SIP/2.0 (505).
bare-cr: a CR without LF in the header, which some parsers take for a line end.
no-via, no-from, no-to, no-call-id, no-cseq: a mandatory header is missing (8.1.1).
bad-via: a Via that cannot be used.
duplicate: two From, To, Call-ID, CSeq or Max-Forwards (RFC 4475 3.3.8).
bad-cseq: unreadable or over 2**31 - 1 (8.1.1.5).
cseq-method: not the method of the request line.
bad-max-forwards: not 0-255 (20.22).
bad-content-length: not a number, or two that differ (20.14).
body-short: fewer bytes than Content-Length says (18.3); on a stream the framer never lets that happen.
no-end: the empty line after the header is missing.
"""

_BARE_CR = re.compile(rb"\r[^\n]")
_SINGLE = (FROM, TO, CALL_ID, CSEQ, MAX_FORWARDS)


def vias_usable(vias: list[bytes]) -> bool:
    """Can each of them be read. Those below the top one are only echoed, so the usual shape is not taken apart."""
    return all(
        (via[:8] == b"SIP/2.0/" and b" " in via and b"," not in via) or read_via(via) is not None for via in vias
    )


def judge(head: Head) -> str | None:
    """The first of PROBLEMS that `head` has; see `Head.problem`."""
    if not head.start_ok:
        return "bad-start-line"
    if head.version != b"SIP/2.0" and head.version.upper() != b"SIP/2.0":
        return "version"
    data = head.data
    if _BARE_CR.search(data, 0, head.body_offset) is not None:
        return "bare-cr"
    if not head.vias:
        return "no-via"
    if head.top_via is None:
        return "bad-via"
    problem = None if head.method is None else _judge_request(head)
    if problem is not None:
        return problem
    if head.content_length is None:
        if head.line_of[CONTENT_LENGTH]:
            return "bad-content-length"
    elif head.ended and len(data) - head.body_offset < head.content_length:
        return "body-short"
    return None if head.ended else "no-end"


def _judge_request(head: Head) -> str | None:
    if len(head.vias) > 1 and not vias_usable(head.vias[1:]):
        return "bad-via"
    problem = judge_identity(head)
    if problem is not None:
        return problem
    method = head.cseq_method
    assert method is not None
    if (METHODS.get(method) or method.decode("latin-1")) != head.method:
        return "cseq-method"
    if head.max_forwards is None and head.line_of[MAX_FORWARDS]:
        return "bad-max-forwards"
    return None


def judge_identity(head: Head) -> str | None:
    """What a transaction is known by: From, To, Call-ID and CSeq, one of each (RFC 3261 8.1.1)."""
    if head.from_ is None:
        return "no-from"
    if head.to is None:
        return "no-to"
    if not head.call_id:
        return "no-call-id"
    if head.cseq is None:
        return "no-cseq"
    if head.further:
        for kind, _ in head.further:
            if kind in _SINGLE:
                return "duplicate"
    return "bad-cseq" if head.cseq_method is None else None
