"""What must not go onto a stream that others share: a server closes the whole stream on a message it cannot parse.

A datagram of that kind harms nobody else and is passed on as it is; over a shared stream one client would end all the others'
transactions, again and again. So what a server reads before it routes is held to a form here: the name of each header line,
and every Via, To, From and CSeq. The forms are RFC 3261 25.1, wider where devices are sloppy and servers do not mind, and
narrower where Kamailio 5.6 closes a connection on what the RFC allows; those places say so.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from sipguard.wire.names import CSEQ, FROM, NAMES, TO, VIA
from sipguard.wire.problems import PROBLEMS, judge_identity

if TYPE_CHECKING:
    from sipguard.wire.head import Head

STREAM_PROBLEMS: Final[tuple[str, ...]] = (
    "bad-start-line",
    *PROBLEMS[PROBLEMS.index("no-from") : PROBLEMS.index("cseq-method")],
    "bad-header-line",
    "bad-via",
    "bad-address",
)
"""Every value of `stream_problem`. As in PROBLEMS, and:

bad-header-line: a header line without a colon, or whose name is none (RFC 3261 7.3.1, 25.1 `header-name`).
bad-address: a From or To with an open quote or bracket, an empty parameter or the like (20.20, 20.39).
"""

# Letters, digits, and of the other token characters those that Kamailio takes in a name: not ! % * ' `.
_NAME: Final = re.compile(rb"[-+.0-9A-Z_a-z~]++[ \t\r\n]*+")

_WS: Final = rb"[ \t]*+"
# Up to its first parameter. Kamailio: no backslash but in a quoted string, and no NUL at all.
_URI: Final = rb"[^ \t\"<>;\\\0]++"
_ADDRESS: Final = re.compile(
    rb"(?:"
    rb"(?:\"(?:[^\"\\\0]|\\[^\0])*+\"" + _WS + rb"|[^\"<>;\\\0]*+)<" + _WS + _URI + rb"[^ \t\"<>\\\0]*+" + _WS + rb">"
    rb"|" + _URI + rb")"
    rb"(?:[ \t]*;" + _WS + rb"[^ \t\",;=\\\0<>]++(?:[ \t]*=" + _WS + rb"(?:[^ \t\",;=\\\0<>]++|\"[^\",;\\\0]*+\")?)?)*+" + _WS
)  # fmt: skip

_TOKEN: Final = rb"[-!%'*+.0-9A-Z_`a-z~]++"
_VIA_PARAM: Final = (
    rb"[ \t]*;" + _WS
    # Kamailio: these need a value, `alias` none, and a part of its name is none.
    + rb"(?!(?:i|branch|received|ttl|maddr)[ \t]*(?:=[ \t]*)?(?:[;,]|\Z))(?!al(?:ia?)?[ \t]*(?:[=;,]|\Z))(?!a(?:lias)?[ \t]*=)"
    + _TOKEN + rb"(?:[ \t]*=" + _WS + rb"(?:[^ \t\",;=\0]++|\"(?:[^\",\\\0]|\\[^\",\0])*+\")?)?"
)  # fmt: skip
_VIA: Final = (
    _WS + rb"SIP" + _WS + rb"/" + _WS + rb"2\.0" + _WS + rb"/" + _WS
    # Kamailio closes on a transport that begins with one of these.
    + rb"(?![.0-9CDILP])" + _TOKEN + rb"[ \t]++(?:[-.0-9A-Z_a-z]++|\[[%.0-9:A-F_a-z]++\])(?:[ \t]*:" + _WS + rb"[0-9]{1,5})?"
    + rb"(?:" + _VIA_PARAM + rb")*+" + _WS
)  # fmt: skip
_VIAS: Final = re.compile(_VIA + rb"(?:," + _VIA + rb")*+", re.IGNORECASE)
_CSEQ: Final = re.compile(rb"[0-9]++[ \t]++" + _TOKEN)

_FORMS: Final = {
    VIA: (_VIAS, "bad-via"),
    FROM: (_ADDRESS, "bad-address"),
    TO: (_ADDRESS, "bad-address"),
    CSEQ: (_CSEQ, "bad-cseq"),
}


def stream_problem(head: Head) -> str | None:
    """Why a message that has no `problem` must not go onto a shared stream, one of STREAM_PROBLEMS; None: it may.

    Of a response also what of it makes a request's `problem`, and the space behind the status code (RFC 3261 7.2). Linear in
    the length of the head: no expression goes back over what it has taken.
    """
    if b"\t" in head.lines[0] or b"\0" in head.lines[0]:
        return "bad-start-line"
    if head.method is None:
        if head.lines[0].count(b" ") < 2:
            return "bad-start-line"
        problem = judge_identity(head)
        if problem is not None:
            return problem
    kind_of = NAMES.get
    for line in head.lines[1:]:
        name, colon, value = line.partition(b":")
        kind = kind_of(name)
        if kind is None:
            if _NAME.fullmatch(name) is None:
                return "bad-header-line"
            kind = kind_of(name.rstrip(b" \t\r\n").lower())
        if not colon:
            return "bad-header-line"
        form = _FORMS.get(kind) if kind else None
        if form is not None and form[0].fullmatch(_unfolded(value)) is None:
            return form[1]
    return None


def _unfolded(value: bytes) -> bytes:
    if b"\n" in value:
        value = value.replace(b"\r\n", b" ").replace(b"\n", b" ")
    return value.strip(b" \t\r")
