"""A plain request read in one pass, for an answer only: what a 503 under load is made of.

RFC 3261 8.2.6.2. Under an overload most of what comes in is refused, and nearly all of it is plain: CRLF line ends, no
folding, the usual spelling of the names, one Via value to a line, no To tag. Such a request is answered from its own header
lines, as they are. For anything else `read_plain` says None, and the long way (`head.read_head`, `replies.reply`) answers.
"""

from __future__ import annotations

import re
from itertools import product
from typing import Final

PlainRequest = tuple[list[bytes], bytes, bytes, bytes, bytes, bytes, bool, bytes, bytes, bytes]
"""Via lines; From, To, Call-ID and CSeq line; of the top Via: sent-by, whether it asks for rport, branch; Call-ID; CSeq number.

Lines come without their CRLF. A bare tuple, since it is made and taken apart once per refused request.
"""

_NOT_PLAIN, _VIA, _FROM, _TO, _CALL_ID, _CSEQ = range(6)

# By the first two bytes of a line. Not plain: names that a guard reads, in any spelling but the usual one; a fold; no line.
_KINDS: Final[dict[bytes, int]] = {b"Vi": _VIA, b"Fr": _FROM, b"To": _TO, b"Ca": _CALL_ID, b"CS": _CSEQ}
_KINDS.update(
    (bytes(spelling), _NOT_PLAIN)
    for first, seconds in (
        (b"vV", b"iI: \t"),
        (b"fF", b"rR: \t"),
        (b"tT", b"oO: \t"),
        (b"cC", b"aAsS"),
        (b"iI", b": \t"),
    )
    for spelling in product(first, seconds)
    if bytes(spelling) not in _KINDS
)
_KINDS.update((bytes(fold), _NOT_PLAIN) for fold in product(b" \t", range(256)))
_KINDS.update(dict.fromkeys((b"", b" ", b"\t"), _NOT_PLAIN))

# Transport, sent-by, and the parameters in the orders seen nearly always; no received, no maddr, no quotes, no further value.
_TOP: Final = re.compile(
    rb"Via: SIP/2\.0/(?:UDP|TCP|TLS|WSS?) ([0-9A-Za-z.\-]+(?::[0-9]{1,5})?|\[[0-9A-Fa-f:.]+\](?::[0-9]{1,5})?)"
    rb"(?:(;rport))?;branch=([0-9A-Za-z.!%*_+`'~-]+)(?:(;rport))?\Z"
)
_NUMBER_MAX = 9  # digits: below 2**31 whatever they are


def read_plain(data: bytes) -> PlainRequest | None:
    """The parts of a plain request whose To has no tag; None for all others. Never raises; linear in the length of the head.

    data: starts with a request line that `scan.request_method` took.
    """
    end = data.find(b"\r\n\r\n")
    text = data[:end]
    lines = text.split(b"\r\n")
    breaks = len(lines) - 1
    # No bare CR or LF, no NUL: what those three take from the text is the line breaks.
    if end < 0 or len(text) - len(text.translate(None, b"\r\n\0")) != 2 * breaks:
        return None
    vias: list[bytes] = []
    from_ = to = call_id = cseq = b""
    kind_of = _KINDS.get
    for line in lines:
        kind = kind_of(line[:2])
        if kind is None:
            continue
        if kind == _VIA:
            vias.append(line)
        elif kind == _FROM:
            if from_:
                return None
            from_ = line
        elif kind == _TO:
            if to:
                return None
            to = line
        elif kind == _CSEQ:
            if cseq:
                return None
            cseq = line
        elif kind == _CALL_ID and line[:8] == b"Call-ID:":
            if call_id:
                return None
            call_id = line
        elif line[:9] != b"Call-Info":
            return None
    return _parts(vias, from_, to, call_id, cseq)


def _parts(vias: list[bytes], from_: bytes, to: bytes, call_id: bytes, cseq: bytes) -> PlainRequest | None:
    top = _TOP.match(vias[0]) if vias else None
    words = cseq.split()
    if (
        top is None
        or from_[:5] != b"From:"
        or to[:3] != b"To:"
        or b"tag" in to.lower()
        or not call_id
        or len(words) != 3
        or words[0] != b"CSeq:"
    ):
        return None
    number = words[1]
    if not number.isdigit() or len(number) > _NUMBER_MAX or (number[0] == 0x30 and len(number) > 1):
        return None
    if len(vias) > 1 and not all(map(_TOP.match, vias)):
        return None
    sent_by, before, branch, behind = top.groups()
    identity = call_id[8:].strip()
    if not identity or (before and behind):
        return None
    return vias, from_, to, call_id, cseq, sent_by, bool(before or behind), branch, identity, number


def plain_reply(plain: PlainRequest, start: bytes, tag: bytes, received: bytes | None, port: int, tail: bytes) -> bytes:
    """The answer from the request's own lines.

    start: the status line. tag: for To. received: for the top Via, None to leave it alone; port: for its rport. tail: the
    lines behind CSeq; start and tail with their CRLFs, the empty line included.
    """
    vias, from_, to, call_id, cseq, _, asks, _, _, _ = plain
    if received is not None:
        via = vias[0]
        if asks:
            end = via.find(b";rport") + 6
            via = b"%b=%d%b;received=%b" % (via[:end], port, via[end:], received)
        else:
            via += b";received=" + received
        vias = [via, *vias[1:]]
    return start + b"\r\n".join((*vias, from_, to + b";tag=" + tag, call_id, cseq, tail))
