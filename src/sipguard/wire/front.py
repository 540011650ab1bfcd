"""The response of a server that leaves our Via as we wrote it: cut in one step, without reading the rest.

RFC 3261 16.7 step 3. Nearly every response is of this kind, so it is worth a way of its own; whatever looks different goes
the long way (`head.read_head`, `edits.pop_via`), which gives the same bytes.
"""

from __future__ import annotations

_NEXT_VIA = (b"Via:", b"via:", b"VIA:", b"v:")


def pop_front_via(data: bytes, start: bytes) -> tuple[bytes, bytes] | None:
    """`data` without its second line, and that line; None when it is not one Via that begins with `start`.

    start: from the header name to wherever the value is known. Also None without a further Via right behind it, with a
    comma or a fold in the line, and without the empty line that ends the head.
    """
    at = data.find(b"\r\n") + 2
    if not data.startswith(start, at):
        return None
    end = data.find(b"\r\n", at)
    line = data[at:end]
    if end < 0 or b"," in line or not data.startswith(_NEXT_VIA, end + 2) or b"\r\n\r\n" not in data:
        return None
    return data[:at] + data[end + 2 :], line
