"""A message for a shared stream: written so that every reader, a careless one too, finds the same end of it.

RFC 3261 18.3 and 20.14 (Content-Length frames a stream), 7.3.1 (a folded line may be written as one), 7.5. All clients share
the guard's streams to a server. A reader there that takes a folded ` Content-Length: 99` for a header (Kamailio 5.6 does), or
goes by another of two lines, would read the next client's request as a body. So nothing is left to be read in two ways.
"""

from __future__ import annotations

import re
from typing import Final

from sipguard.wire.head import read_number
from sipguard.wire.names import CONTENT_LENGTH, NAMES
from sipguard.wire.scan import TOKEN_BYTES

_EMPTY_LINE: Final = re.compile(rb"\n\r?\n")  # as `framing` finds the end of a head
_NO_TOKEN: Final = bytes(set(range(256)) - set(TOKEN_BYTES))
# What a line begins with that may be a Content-Length; b"" for an empty one.
_MAYBE: Final = frozenset((b"", *(bytes((byte,)) for byte in b"cClL" + _NO_TOKEN)))


def seal(data: bytes) -> bytes:
    """`data`, one message, as it goes out on a stream; never raises, linear in its length.

    Every line unfolded (a fold becomes one space) and ended by CRLF, a CR elsewhere in the head a space, each Content-Length
    gone however it was spelled, and one right behind the start line: the number of octets behind the empty line, which follow
    unchanged. Octets beyond the Content-Length the message came with do not go along (18.3). Sealed twice is sealed once.
    """
    if data[:1] in (b"\r", b"\n"):
        data = data.lstrip(b"\r\n")
    end = data.find(b"\r\n\r\n")
    text = data[: max(end, 0)]
    ends = text.count(b"\r\n")
    # Without a bare LF there is no earlier empty line either.
    if end > 0 and text.count(b"\n") == text.count(b"\r") == ends and b"\n " not in text and b"\n\t" not in text:
        lines, body = text.split(b"\r\n"), data[end + 4 :]
    else:
        lines, body = _cut(data)
    kept, told = _without_length(lines)
    if told is not None and told < len(body):
        body = body[:told]
    kept[1] = b"Content-Length: %d" % len(body)
    return b"%b\r\n\r\n%b" % (b"\r\n".join(kept), body)


def _without_length(lines: list[bytes]) -> tuple[list[bytes], int | None]:
    """The lines with a place for ours in that of every Content-Length; and what the first of those said."""
    kept = [lines[0], b""]
    told: int | None = None
    kind_of = NAMES.get
    for index in range(1, len(lines)):
        line = lines[index]
        if line[:1] not in _MAYBE:
            kept.append(line)
            continue
        name, _, value = line.partition(b":")
        kind = kind_of(name)
        if kind is None:
            kind = kind_of(name.strip(b" \t").lower())
            # Some readers pass over more than white space: nothing that a name cannot hold makes it another one.
            if kind is None and kind_of(name.translate(None, _NO_TOKEN).lower()) == CONTENT_LENGTH:
                continue
        if kind != CONTENT_LENGTH:
            kept.append(line)
        elif told is None:
            told = read_number(value.strip())
    return kept, told


def _cut(data: bytes) -> tuple[list[bytes], bytes]:
    """The logical lines, without line ends, and the body of a message with folds, bare LFs, bare CRs or no empty line."""
    found = _EMPTY_LINE.search(data)
    text, body = (data, b"") if found is None else (data[: found.start()], data[found.end() :])
    start, *rest = text.split(b"\n")
    logical = [
        [start.strip(b"\r").replace(b"\r", b" ")]
    ]  # with the space at the end that a status line without a reason has
    for line in rest:
        part = line.strip(b" \t\r").replace(b"\r", b" ")
        if not part or line[:1] in (b" ", b"\t"):
            if part:
                logical[-1].append(part)
        else:
            logical.append([part])
    return [b" ".join(parts) for parts in logical], body
