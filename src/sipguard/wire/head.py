"""Tier 1: the header fields a guard needs, read on demand from the bytes of one message.

RFC 3261 7.3 (header format, folding, compact names), 8.1.1, 8.2.6, 18.3, 20. Nothing is decoded; a value is a slice of what
came in, with the outer white space stripped and a fold turned into one space, and nothing else changed.
"""

from __future__ import annotations

from sipguard.wire.lists import header_tag, split_list
from sipguard.wire.names import (
    CONTENT_LENGTH,
    KINDS,
    NAMES,
    RECORD_ROUTE,
    ROUTE,
    VIA,
    names_with,
)
from sipguard.wire.problems import PROBLEMS, judge, vias_usable
from sipguard.wire.scan import METHODS, is_response, request_line
from sipguard.wire.values import Via, read_via

__all__ = ["CSEQ_MAX", "MAX_FORWARDS_MAX", "PROBLEMS", "Head", "read_head", "read_number"]

CSEQ_MAX = 2**31 - 1
MAX_FORWARDS_MAX = 255
_DIGITS_MAX = 10  # enough for 2**32; also keeps int() away from digit strings made to be slow
_SMALL = {b"%d" % number: number for number in range(2048)}
_AS_WRITTEN = {b" %d\r" % number: number for number in range(2048)}  # after the colon of the usual line
_STATUS = {b"%d" % code: code for code in range(100, 700)}
_WHITE = (b" ", b"\t")


class Head:
    """What `read_head` found. Not to be changed.

    data: the message from its start line on (CRLFs before it are not part of it).
    method: the request's method; None for a response and for what is not SIP.
    uri: the Request-URI as written, b"" for a response. version: as written.
    status: the code of a response; 0 for a request and for an unreadable status line.
    body_offset: where in `data` the body begins; its length when the empty line is missing.
    vias, routes, record_routes: every value in order, comma lists resolved.
    from_, to, call_id, cseq: the first value of that header.
    cseq_number, cseq_method: None when unreadable or over 2**31 - 1.
    max_forwards, content_length: None when absent or unreadable.

    The layout (see `names` for the kinds): lines: the logical lines, start line first, as written but for their last LF;
    data is b"\n".join(lines), then, if rest_at >= 0, a LF and data[rest_at:]. line_of: by kind, the index of its first line,
    0 for none; further: kind and index of the others. ended: the empty line is there. start_ok: the start line has its form.
    """

    __slots__ = (
        "_problem",
        "_to_tag",
        "_top",
        "_unjudged",
        "_untagged",
        "_untopped",
        "body_offset",
        "call_id",
        "content_length",
        "cseq",
        "cseq_method",
        "cseq_number",
        "data",
        "ended",
        "from_",
        "further",
        "line_of",
        "lines",
        "max_forwards",
        "method",
        "record_routes",
        "rest_at",
        "routes",
        "start_ok",
        "status",
        "to",
        "uri",
        "version",
        "vias",
    )

    data: bytes
    method: str | None
    uri: bytes
    version: bytes
    status: int
    body_offset: int
    vias: list[bytes]
    from_: bytes | None
    to: bytes | None
    call_id: bytes | None
    cseq: bytes | None
    cseq_number: int | None
    cseq_method: bytes | None
    max_forwards: int | None
    routes: list[bytes]
    record_routes: list[bytes]
    content_length: int | None
    # The layout, for this room alone: `edits` cuts by it, `problems` judges by it.
    lines: list[bytes]
    rest_at: int
    line_of: list[int]
    further: list[tuple[int, int]]
    ended: bool
    start_ok: bool
    _to_tag: bytes | None
    _untagged: bool
    _top: Via | None
    _untopped: bool
    _problem: str | None
    _unjudged: bool

    @property
    def top_via(self) -> Via | None:
        """The first Via, read; None when there is none or it cannot be read. Read once."""
        if self._untopped:
            self._untopped = False
            self._top = read_via(self.vias[0]) if self.vias else None
        return self._top

    @property
    def has_content_length(self) -> bool:
        """Is there a Content-Length at all, readable or not."""
        return self.line_of[CONTENT_LENGTH] > 0

    @property
    def from_tag(self) -> bytes | None:
        """The From tag; None when there is none (RFC 2543 peers), b"" when it is empty."""
        return None if self.from_ is None else header_tag(self.from_)

    @property
    def to_tag(self) -> bytes | None:
        """The To tag; None when there is none: the request is in no dialog and an answer must add one (RFC 3261 8.2.6.2).

        Read once.
        """
        if self._untagged:
            self._untagged = False
            self._to_tag = None if self.to is None else header_tag(self.to)
        return self._to_tag

    @property
    def problem(self) -> str | None:
        """The first defect, in the order of PROBLEMS; None when the message is fit to be forwarded. Judged once.

        Of a response only the start line, bare CRs, the Vias, Content-Length and the end are judged.
        """
        if self._unjudged:
            self._unjudged = False
            self._problem = judge(self)
        return self._problem

    @property
    def answerable(self) -> bool:
        """Can a stateless answer be built (RFC 3261 8.2.6): not an ACK, usable Vias, and From, To, Call-ID and CSeq there."""
        return (
            self.method is not None
            and self.method != "ACK"
            and self.to is not None
            and self.from_ is not None
            and self.call_id is not None
            and self.cseq is not None
            and self.top_via is not None
            and (len(self.vias) == 1 or vias_usable(self.vias[1:]))
        )

    def __repr__(self) -> str:
        what = self.method if self.method is not None else self.status
        return f"Head({what!r}, {self.uri!r}, call_id={self.call_id!r}, cseq={self.cseq!r}, problem={self.problem!r})"


def read_head(data: bytes, extra: bytes = b"") -> Head:
    """Read the head of one message. Never raises, on any bytes; linear in their length.

    extra: one more header name, in lower case, whose lines are remembered so that `edits.forward_request` can strip them.
    """
    if data[:1] in (b"\r", b"\n"):
        data = data.lstrip(b"\r\n")
    head = Head.__new__(Head)
    head.data = data
    names = names_with(extra) if extra else NAMES
    end = data.find(b"\r\n\r\n")
    if end > 0:
        lines = data[: end + 1].split(b"\n")
        if _read_lines(head, lines, names, True):
            head.lines = lines
            head.rest_at = end + 2
            head.body_offset = end + 4
            head.ended = True
            return head
    _read_odd(head, names)
    return head


def _read_lines(head: Head, lines: list[bytes], names: dict[bytes, int], physical: bool) -> bool:
    """Find the fields in `lines`. False, and nothing found, when physical lines turn out to be folded or to end earlier."""
    values: list[bytes | None] = [None] * KINDS
    at = [0] * KINDS
    more: list[tuple[int, int]] = []
    further: list[bytes] = []
    get = names.get
    numbered = enumerate(lines)
    next(numbered)
    for index, line in numbered:
        name, colon, value = line.partition(b":")
        kind = get(name)
        if kind is None:
            if physical and (line[:1] in _WHITE or line in (b"", b"\r")):
                return False
            kind = get(name.strip(b" \t").lower(), 0)
        if kind and colon:
            if at[kind]:
                more.append((kind, index))
                further.append(value)
            else:
                at[kind] = index
                values[kind] = value
    head.line_of = at
    head.further = more
    head._untopped = head._unjudged = head._untagged = True
    _read_start(head, lines[0])
    _read_values(head, values)
    if more:
        _read_further(head, more, further)
    return True


def _read_values(head: Head, values: list[bytes | None]) -> None:
    _, via, from_, to, call_id, cseq, hops, route, record_route, length, _ = values
    head.from_ = None if from_ is None else from_.strip()
    head.to = None if to is None else to.strip()
    head.call_id = None if call_id is None else call_id.strip()
    head.vias = [] if via is None else _read_list(via)
    head.routes = [] if route is None else _read_list(route)
    head.record_routes = [] if record_route is None else _read_list(record_route)
    head.cseq = head.cseq_number = head.cseq_method = None
    if cseq is not None:
        head.cseq = cseq.strip()
        words = cseq.split()
        if len(words) == 2:
            number = _SMALL.get(words[0])
            if number is None:
                number = read_number(words[0])
            if number is not None and number <= CSEQ_MAX:
                head.cseq_number = number
                head.cseq_method = words[1]
    head.max_forwards = None
    if hops is not None:
        number = _AS_WRITTEN.get(hops)
        if number is None:
            number = read_number(hops.strip())
        if number is not None and number <= MAX_FORWARDS_MAX:
            head.max_forwards = number
    head.content_length = None
    if length is not None:
        number = _AS_WRITTEN.get(length)
        head.content_length = read_number(length.strip()) if number is None else number


def _read_list(value: bytes) -> list[bytes]:
    return split_list(value) if b"," in value else [value.strip()]


def _read_further(head: Head, more: list[tuple[int, int]], values: list[bytes]) -> None:
    length = head.content_length
    for (kind, _), value in zip(more, values, strict=True):
        if kind == VIA:
            head.vias += split_list(value)
        elif kind == ROUTE:
            head.routes += split_list(value)
        elif kind == RECORD_ROUTE:
            head.record_routes += split_list(value)
        elif kind == CONTENT_LENGTH and read_number(value.strip()) != length:
            head.content_length = None


def _read_start(head: Head, line: bytes) -> None:
    head.status = 0
    head.start_ok = True
    words = line.split(b" ")
    if len(words) == 3 and words[1] and words[2] == b"SIP/2.0\r":
        method = METHODS.get(words[0])
        if method is not None:
            head.method = method
            head.uri = words[1]
            head.version = b"SIP/2.0"
            return
    head.method = None
    head.uri = b""
    head.version = b""
    words = line.rstrip(b"\r").split(b" ")
    if words[0] == b"SIP/2.0" or is_response(line):
        head.version = words[0]
        head.status = _STATUS.get(words[1], 0) if len(words) > 1 else 0
        if head.status:
            return
    else:
        found = request_line(line)
        if found is not None:
            head.method, head.uri, head.version = found
            head.start_ok = len(words) == 3 and b"\t" not in line
            return
    head.start_ok = False


def _read_odd(head: Head, names: dict[bytes, int]) -> None:
    """The careful way, one physical line after the other: folding, bare LF, no empty line."""
    data = head.data
    size = len(data)
    logical: list[list[bytes]] = []  # physical lines, without their LF, of each logical line
    position = 0
    head.ended = False
    head.rest_at = -1
    while position < size:
        newline = data.find(b"\n", position)
        line = data[position : newline if newline >= 0 else size]
        if newline >= 0 and line in (b"", b"\r"):
            head.ended = True
            head.rest_at = position
            position = newline + 1
            break
        if logical and line[:1] in _WHITE:
            logical[-1].append(line)
        else:
            logical.append([line])
        if newline < 0:
            position = size
            head.rest_at = -1
            break
        position = newline + 1
        head.rest_at = position
    head.body_offset = position
    head.lines = [lines[0] if len(lines) == 1 else b"\n".join(lines) for lines in logical] or [b""]
    text = [lines[0] if len(lines) == 1 else _unfold(lines) for lines in logical] or [b""]
    folded = bool(logical) and len(logical[0]) > 1
    if folded:  # RFC 3261 7.3.1 folds headers only; the start line is then read as `scan` reads it
        text[0] = head.lines[0]
    _read_lines(head, text, names, False)
    if folded:
        head.start_ok = False


def _unfold(physical: list[bytes]) -> bytes:
    parts = [part.strip() for part in physical]
    return b" ".join([part for part in parts if part])


def read_number(digits: bytes) -> int | None:
    """A decimal number of at most ten digits, leading zeros apart; None for anything else."""
    number = _SMALL.get(digits)
    if number is not None:
        return number
    if not digits.isdigit():
        return None
    digits = digits.lstrip(b"0") or b"0"
    return int(digits) if len(digits) <= _DIGITS_MAX else None
