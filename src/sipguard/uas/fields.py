"""The header fields a server needs beyond those every element reads: Contact, Expires, Content-Type, Require, …"""

from __future__ import annotations

import re

from sipguard.wire.lists import cut_params

# Long and compact names (RFC 3261 7.3.3, 20; RFC 3327 for Path; RFC 6665 for Event).
_WANTED = {
    b"contact": b"contact",
    b"m": b"contact",
    b"content-type": b"content-type",
    b"c": b"content-type",
    b"expires": b"expires",
    b"path": b"path",
    b"require": b"require",
    b"timestamp": b"timestamp",
}
# RFC 3261 7.3.1; a line end comes first, so that long runs of white space are read once.
_FOLD = re.compile(rb"\r?\n[ \t]+")

DEFAULT_EXPIRES_S = 3600
"""What is granted when nothing (or nothing readable) is asked, and the most that is granted (RFC 3261 10.2.1.1)."""


def read_fields(data: bytes, body_offset: int) -> dict[bytes, list[bytes]]:
    """The wanted fields of a message's header block: lower-case long name to its values, in order, unfolded.

    Comma lists stay whole (see `wire.lists.split_list`). Values that hold NUL, CR or LF are left out: they could not be
    repeated in an answer. Never raises.
    """
    block = data[:body_offset].strip(b"\r\n")
    if b"\n " in block or b"\n\t" in block:
        block = _FOLD.sub(b" ", block)
    fields: dict[bytes, list[bytes]] = {}
    for line in block.split(b"\n")[1:]:
        name, _, value = line.partition(b":")
        wanted = _WANTED.get(name.strip().lower())
        if wanted is not None:
            value = value.strip()
            if b"\r" not in value and b"\x00" not in value:
                fields.setdefault(wanted, []).append(value)
    return fields


def read_expires(text: bytes | None) -> int:
    """Seconds to grant: what is asked, at most DEFAULT_EXPIRES_S, which is also the reading of nonsense."""
    if text is None or not text.isdigit() or len(text) > 10:
        return DEFAULT_EXPIRES_S
    return min(int(text), DEFAULT_EXPIRES_S)


def grant_contact(contact: bytes, asked: bytes | None) -> bytes | None:
    """A Contact value as a registrar answers it, its own `expires` replaced (RFC 3261 10.3 step 8); None: removed.

    asked: the request's Expires value, for a Contact without the parameter.
    """
    address, bracket, tail = contact.rpartition(b">")
    if not bracket:
        # Without brackets all parameters are the header's, not the URI's (RFC 3261 20).
        address, _, tail = contact.partition(b";")
        tail = b";" + tail if tail else b""
    kept = []
    for parameter in cut_params(tail)[1:]:
        name, _, value = parameter.partition(b"=")
        if name.strip().lower() == b"expires":
            asked = value.strip()
        elif parameter.strip():
            kept.append(parameter.strip())
    seconds = read_expires(asked)
    if seconds == 0:
        return None
    return b";".join([address.rstrip() + bracket, *kept, b"expires=%d" % seconds])
