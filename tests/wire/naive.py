"""A careless reader of a stream, as there are some: it shares no code with the product and none of its care."""

from __future__ import annotations

import re

LENGTHS = (b"content-length", b"l")


def naive_lengths(data: bytes) -> tuple[list[bytes], bytes]:
    """The value of each line that might be taken for a Content-Length, and what follows the first empty line.

    Every line end counts (CRLF, bare LF, bare CR), and white space before a name is passed over, so a folded line is a line.
    """
    end = re.search(rb"\r\n\r\n|\n\r?\n", data)
    assert end is not None, data
    found = []
    for line in re.split(rb"\r\n|\n|\r", data[: end.start()])[1:]:
        name, colon, value = line.strip().partition(b":")
        if colon and name.strip().lower() in LENGTHS:
            found.append(value.strip())
    return found, data[end.end() :]


def assert_sealed(data: bytes) -> None:
    """One length however carelessly it is looked for, and it is that of what follows the empty line (RFC 3261 20.14)."""
    found, body = naive_lengths(data)
    assert found == [b"%d" % len(body)], data
