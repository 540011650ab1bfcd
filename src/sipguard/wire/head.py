"""Tier 1: the header fields a guard needs, read on demand from the bytes of one message.

RFC 3261 7.3 (header format, folding, compact names), 8.1.1, 8.2.6, 18.3, 20. Nothing is decoded; values are slices of what came in, with
the outer white space stripped and a fold turned into one space, and nothing else changed.
"""

from __future__ import annotations

from sipguard.wire.lists import header_tag, split_list
from sipguard.wire.names import (
    CALL_ID,
    CONTENT_LENGTH,
    CSEQ,
    FROM,
    KINDS,
    MAX_FORWARDS,
    NAMES,
    RECORD_ROUTE,
    ROUTE,
    TO,
    VIA,
    names_with,
)
from sipguard.wire.scan import METHODS, is_response, request_line
from sipguard.wire.values import Via, read_via

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
    "no-end",
    "body-short",
)
"""Every value `Head.problem` can take, in the order they are looked for.

bad-start-line: not three words with one space between them, or no start line at all (RFC 3261 7.1, 7.2). version: a request that is not
SIP/2.0 (505). bare-cr: a CR without LF inside the header, which some parsers take for a line end. no-via … no-cseq: a mandatory header is
missing (8.1.1). bad-via: a Via that cannot be used. duplicate: two From, To, Call-ID, CSeq or Max-Forwards (RFC 4475 3.3.8). bad-cseq:
unreadable or over 2**31 - 1 (8.1.1.5). cseq-method: not the method of the request line. bad-max-forwards: not 0-255 (20.22).
bad-content-length: not a number, or two that differ (20.14). no-end: the empty line after the header is missing. body-short: fewer bytes
than Content-Length says (18.3; this one means a datagram).
"""

CSEQ_MAX = 2**31 - 1
MAX_FORWARDS_MAX = 255
_DIGITS_MAX = 10  # enough for 2**32; also keeps int() away from digit strings made to be slow
_SINGLE = (FROM, TO, CALL_ID, CSEQ, MAX_FORWARDS)
_SMALL = {b"%d" % number: number for number in range(2048)}


class Head:
    """What `read_head` found. Not to be changed; `data` is the message from its start line on (leading CRLFs are not part of it).

    method: the request's method, None for a response and for what is not SIP. uri: the Request-URI as written, b"" for a response.
    version: as written. status: the code of a response, 0 for a request (and for an unreadable status line).
    body_offset: where in `data` the body begins (its length when there is no empty line).
    vias, routes, record_routes: every value in order, comma lists resolved. from_, to, call_id, cseq: the first value of that header.
    cseq_number, cseq_method: None when unreadable or over 2**31 - 1. max_forwards, content_length: None when absent or unreadable.
    """

    __slots__ = (
        "_at",
        "_bare_cr",
        "_ended",
        "_joint",
        "_lines",
        "_more",
        "_problem",
        "_start_ok",
        "_top",
        "_unjudged",
        "_untopped",
        "body_offset",
        "call_id",
        "content_length",
        "cseq",
        "cseq_method",
        "cseq_number",
        "data",
        "from_",
        "max_forwards",
        "method",
        "record_routes",
        "routes",
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
    # For edits and replies of this room: the logical lines (start line first; without their line ends when _joint is CRLF, with them when
    # it is b""), the index of the first line of each kind, (kind, index) of the others.
    _lines: list[bytes]
    _joint: bytes
    _at: list[int]
    _more: list[tuple[int, int]]
    _ended: bool
    _start_ok: bool
    _bare_cr: bool
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
        return self._at[CONTENT_LENGTH] > 0

    @property
    def from_tag(self) -> bytes | None:
        """The From tag; None when there is none (RFC 2543 peers), b"" when it is empty."""
        return None if self.from_ is None else header_tag(self.from_)

    @property
    def to_tag(self) -> bytes | None:
        """The To tag; None when there is none: the request is not in a dialog and an answer must add one (RFC 3261 8.2.6.2)."""
        return None if self.to is None else header_tag(self.to)

    @property
    def problem(self) -> str | None:
        """The first defect of a request, in the order of PROBLEMS; None when it is fit to be forwarded. Judged once.

        For a response only the start line, the Vias and the message's end are judged.
        """
        if self._unjudged:
            self._unjudged = False
            self._problem = _judge(self)
        return self._problem

    @property
    def answerable(self) -> bool:
        """Can a stateless answer be built (RFC 3261 8.2.6): a request but ACK, with usable Vias, From, To, Call-ID and CSeq."""
        return (
            self.method is not None
            and self.method != "ACK"
            and self.to is not None
            and self.from_ is not None
            and self.call_id is not None
            and self.cseq is not None
            and self.top_via is not None
            and (len(self.vias) == 1 or _vias_usable(self.vias))
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
        block = data[:end]
        lines = block.split(b"\r\n")
        ends = len(lines) - 1
        if block.count(b"\n") == ends == block.count(b"\r") and _fill(head, lines, names, False):
            head._lines = lines
            head._joint = b"\r\n"
            head.body_offset = end + 4
            head._ended = True
            head._bare_cr = False
            return head
    return _read_odd(head, names)


def _fill(head: Head, lines: list[bytes], names: dict[bytes, int], unfolded: bool) -> bool:
    """Find the fields in `lines` (the start line first). False: a folded line turned up, nothing may be trusted."""
    values: list[bytes | None] = [None] * KINDS
    at = [0] * KINDS
    more: list[tuple[int, int]] = []
    rest: list[bytes] = []
    get = names.get
    numbered = enumerate(lines)
    next(numbered)
    for index, line in numbered:
        name, colon, value = line.partition(b":")
        kind = get(name)
        if kind is None:
            if name[:1] in (b" ", b"\t") and not unfolded:
                return False
            kind = get(name.strip(b" \t").lower(), 0)
        if kind and colon:
            if at[kind]:
                more.append((kind, index))
                rest.append(value)
            else:
                at[kind] = index
                values[kind] = value
    head._at = at
    head._more = more
    _start_line(head, lines[0])
    _fields(head, values, more, rest)
    head._untopped = head._unjudged = True
    return True


def _fields(head: Head, values: list[bytes | None], more: list[tuple[int, int]], rest: list[bytes]) -> None:
    value = values[FROM]
    head.from_ = None if value is None else value.strip()
    value = values[TO]
    head.to = None if value is None else value.strip()
    value = values[CALL_ID]
    head.call_id = None if value is None else value.strip()
    value = values[VIA]
    head.vias = [] if value is None else ([value.strip()] if b"," not in value else split_list(value))
    value = values[ROUTE]
    head.routes = [] if value is None else split_list(value)
    value = values[RECORD_ROUTE]
    head.record_routes = [] if value is None else split_list(value)
    value = values[CSEQ]
    head.cseq_number = head.cseq_method = None
    if value is None:
        head.cseq = None
    else:
        head.cseq = value = value.strip()
        words = value.split()
        if len(words) == 2:
            number = read_number(words[0])
            if number is not None and number <= CSEQ_MAX:
                head.cseq_number = number
                head.cseq_method = words[1]
    value = values[MAX_FORWARDS]
    number = None
    if value is not None:
        number = read_number(value.strip())
        if number is not None and number > MAX_FORWARDS_MAX:
            number = None
    head.max_forwards = number
    value = values[CONTENT_LENGTH]
    head.content_length = number = None if value is None else read_number(value.strip())
    if more:
        for (kind, _), value in zip(more, rest, strict=True):
            if kind == VIA:
                head.vias += split_list(value)
            elif kind == ROUTE:
                head.routes += split_list(value)
            elif kind == RECORD_ROUTE:
                head.record_routes += split_list(value)
            elif kind == CONTENT_LENGTH and read_number(value.strip()) != number:
                head.content_length = None


def _start_line(head: Head, line: bytes) -> None:
    head.status = 0
    words = line.split(b" ")
    if len(words) == 3 and words[1]:
        method = METHODS.get(words[0])
        if method is not None and words[2] == b"SIP/2.0":
            head.method = method
            head.uri = words[1]
            head.version = words[2]
            head._start_ok = True
            return
    found = request_line(line)
    if found is not None:
        head.method, head.uri, head.version = found
        head._start_ok = len(words) == 3 and b"\t" not in line
        return
    head.method = None
    head.uri = b""
    head.version = b""
    head._start_ok = False
    if is_response(line):
        head.version = words[0]
        code = words[1]
        if len(code) == 3 and code.isdigit() and code[0] != 0x30:
            head.status = int(code)
            head._start_ok = True


def _read_odd(head: Head, names: dict[bytes, int]) -> Head:
    """The careful way, physical line by physical line: bare LF, folding, bare CR, no empty line."""
    data = head.data
    size = len(data)
    raw: list[bytes] = []  # logical lines, with their line ends
    text: list[bytes] = []  # the same, unfolded
    pending: list[bytes] = []  # the physical lines of the logical line being read
    position = 0
    head._ended = False
    while position < size:
        newline = data.find(b"\n", position) + 1 or size
        line = data[position:newline]
        if line in (b"\r\n", b"\n"):
            head._ended = True
            break
        if pending and line[:1] not in (b" ", b"\t"):
            _unfold(pending, raw, text)
            pending = []
        pending.append(line)
        position = newline
    if pending:
        _unfold(pending, raw, text)
    if not raw:
        raw = [b""]
        text = [b""]
    first = raw[0]
    folded = first.find(b"\n") not in (-1, len(first) - 1)
    if folded:  # RFC 3261 7.3.1 folds headers only; the request line is then read as `scan` reads it
        text[0] = first
    _fill(head, text, names, True)
    if folded:
        head._start_ok = False
    head._lines = raw
    head._joint = b""
    head.body_offset = size if not head._ended else (data.find(b"\n", position) + 1)
    head._bare_cr = data.count(b"\r", 0, position) != data.count(b"\r\n", 0, position)
    return head


def _unfold(physical: list[bytes], raw: list[bytes], text: list[bytes]) -> None:
    if len(physical) == 1:
        raw.append(physical[0])
        text.append(physical[0].rstrip(b"\r\n"))
    else:
        raw.append(b"".join(physical))
        parts = [part.strip() for part in physical]
        text.append(b" ".join([part for part in parts if part]))


def read_number(digits: bytes) -> int | None:
    """A decimal number of at most ten digits, leading zeros apart; None for anything else."""
    number = _SMALL.get(digits)
    if number is not None:
        return number
    if not digits.isdigit():
        return None
    digits = digits.lstrip(b"0") or b"0"
    return int(digits) if len(digits) <= _DIGITS_MAX else None


def _vias_usable(vias: list[bytes]) -> bool:
    return all(via[:3].upper() == b"SIP" and read_via(via) is not None for via in vias)


def _judge(head: Head) -> str | None:
    if not head._start_ok:
        return "bad-start-line"
    if head.version != b"SIP/2.0" and head.version.upper() != b"SIP/2.0":
        return "version"
    if head._bare_cr:
        return "bare-cr"
    if not head.vias:
        return "no-via"
    if head.top_via is None or (len(head.vias) > 1 and not _vias_usable(head.vias)):
        return "bad-via"
    problem = _judge_request(head) if head.method is not None else None
    if problem is not None:
        return problem
    if head.content_length is None:
        if head._at[CONTENT_LENGTH]:
            return "bad-content-length"
    elif head._ended and len(head.data) - head.body_offset < head.content_length:
        return "body-short"
    return None if head._ended else "no-end"


def _judge_request(head: Head) -> str | None:
    if head.from_ is None:
        return "no-from"
    if head.to is None:
        return "no-to"
    if head.call_id is None or head.call_id == b"":
        return "no-call-id"
    if head.cseq is None:
        return "no-cseq"
    if head._more:
        for kind, _ in head._more:
            if kind in _SINGLE:
                return "duplicate"
    if head.cseq_number is None:
        return "bad-cseq"
    method = head.cseq_method
    if method is None or (METHODS.get(method) or method.decode("latin-1")) != head.method:
        return "cseq-method"
    if head.max_forwards is None and head._at[MAX_FORWARDS]:
        return "bad-max-forwards"
    return None
