"""Tier 0: is this a SIP request, and of which method? Decided from the start line alone, in a fraction of a microsecond.

RFC 3261 section 7.1 (start lines), 7.5 (leading CRLFs), 25.1 (grammar). What counts as a request is read liberally, since RPS
is offered load (SPEC M2): any SIP version, spaces where there should be one, a bare LF, a folded request line. Whether such a
request is fit to be forwarded is for tier 1 (`head.Head.problem`) to say.
"""

from __future__ import annotations

KNOWN_METHODS: tuple[str, ...] = (
    "INVITE",
    "ACK",
    "BYE",
    "CANCEL",
    "OPTIONS",
    "REGISTER",
    "PRACK",
    "SUBSCRIBE",
    "NOTIFY",
    "PUBLISH",
    "INFO",
    "REFER",
    "MESSAGE",
    "UPDATE",
)
"""RFC 3261, 3262, 6665, 3903, 6086, 3515, 3428, 3311. Method names are case-sensitive (SPEC V1)."""

METHODS: dict[bytes, str] = {name.encode(): name for name in KNOWN_METHODS}

TOKEN_BYTES = b"!%'*+-.0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_`abcdefghijklmnopqrstuvwxyz~"
"""RFC 3261 25.1 `token`."""

_LONGEST = max(map(len, METHODS)) + 1
_VERSION_MAX = 16  # "SIP/2.0" is 7; a version is never long, and a bound keeps the check cheap


def request_method(data: bytes) -> str | None:
    """The method of the request that `data` starts with; None when it is not a SIP request (a response, a keep-alive, garbage).

    A known method comes back as the same `str` object each time; an unknown one (any legal token) is decoded from latin-1.
    Never raises.
    """
    space = data.find(b" ", 0, _LONGEST)
    if space > 0:
        method = METHODS.get(data[:space])
        # The suffix must begin after at least one byte of Request-URI, hence + 2; -1 + 1 = 0 ends the search at once.
        if (
            method is not None
            and data.endswith(b" SIP/2.0\r\n", space + 2, data.find(b"\n", space) + 1)
            and data[space + 1] != 0x20
        ):
            return method
    line = request_line(data)
    return None if line is None else line[0]


def is_response(data: bytes) -> bool:
    """True when `data` starts (leading CRLFs apart) with a status line: `SIP/x.y`, a space, a digit."""
    if data[:1] in (b"\r", b"\n"):
        data = data.lstrip(b"\r\n")
    if data[:4].upper() != b"SIP/":
        return False
    version, space, rest = data[: _VERSION_MAX + 4].partition(b" ")
    return space == b" " and is_version(version) and rest.lstrip(b" ")[:1].isdigit()


def request_line(data: bytes) -> tuple[str, bytes, bytes] | None:
    """Method, Request-URI and SIP-Version of any request line, however written; None when it is none.

    The slow way of `request_method`, which gives the same answer.
    """
    if data[:1] in (b"\r", b"\n"):
        data = data.lstrip(b"\r\n")
    end = data.find(b"\n")
    if end < 0:
        return _split_request_line(data)
    found = _split_request_line(data[:end])
    # A version on the first line settles it, whatever follows. Else the line may have been folded, which RFC 3261 7.3.1 allows
    # for headers only, but is seen from real devices.
    if found is None and data[end + 1 : end + 2] in (b" ", b"\t"):
        # One fold only: a request line is not longer, and the work stays linear.
        following = data.find(b"\n", end + 1)
        return _split_request_line(data[: following if following >= 0 else len(data)])
    return found


def is_version(word: bytes) -> bool:
    """`SIP/1*DIGIT.1*DIGIT`, in any case (RFC 3261 7.1)."""
    if word == b"SIP/2.0":
        return True
    if len(word) > _VERSION_MAX or word[:4].upper() != b"SIP/":
        return False
    major, dot, minor = word[4:].partition(b".")
    return dot == b"." and major.isdigit() and minor.isdigit()


def _split_request_line(line: bytes) -> tuple[str, bytes, bytes] | None:
    front = line.rsplit(None, 1)
    if len(front) != 2 or not is_version(front[1]):
        return None
    words = front[0].split(None, 1)
    if len(words) != 2:
        return None
    token, uri = words
    # `split` would pass over a white space before the method.
    if line[:1] != token[:1] or token.translate(None, TOKEN_BYTES):
        return None
    return METHODS.get(token) or token.decode("latin-1"), uri, front[1]
