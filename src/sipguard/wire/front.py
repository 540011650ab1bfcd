"""The response of a server that leaves our Via as we wrote it: cut in one step, without reading the rest.

RFC 3261 16.7 step 3. Nearly every response is of this kind, so it is worth a way of its own; whatever looks different goes
the long way (`head.read_head`, `edits.pop_via`), which gives the same bytes.
"""

from __future__ import annotations


def pop_front_via(data: bytes, start: bytes) -> tuple[bytes, bytes] | None:
    """`data` without its second line, and that line; None when it is not one Via that begins with `start`.

    start: from the header name to wherever the value is known. Also None without a further Via in its usual spelling, with a
    comma or a fold in the line, and without the empty line that ends the head.
    """
    # By LF alone, so that a line end without CR hides no line inside another.
    at = data.find(b"\n") + 1
    if not data.startswith(start, at):
        return None
    end = data.find(b"\n", at)
    line = data[at:end]
    head_end = data.find(b"\r\n\r\n", at)
    if end < 0 or head_end < 0 or line[-1:] != b"\r" or b"," in line or data[end + 1 : end + 2] in (b" ", b"\t"):
        return None
    # Usually the next line; a server that keeps the request's order puts the Record-Routes before it.
    if data.find(b"\nVia:", end, head_end) < 0 and data.find(b"\nv:", end, head_end) < 0:
        return None
    return data[:at] + data[end + 1 :], line[:-1]
