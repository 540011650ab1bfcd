"""Header names to kinds. RFC 3261 7.3.3 and 20 (compact forms), RFC 3581, RFC 3327.

The table holds the spellings seen on the wire, so that one look-up with the bytes as written decides nearly every line; a name
not in it is looked up once more, stripped and in lower case.
"""

from __future__ import annotations

OTHER, VIA, FROM, TO, CALL_ID, CSEQ, MAX_FORWARDS, ROUTE, RECORD_ROUTE, CONTENT_LENGTH, EXTRA = range(11)
KINDS = 11

_READ: dict[bytes, int] = {
    b"via": VIA,
    b"v": VIA,
    b"from": FROM,
    b"f": FROM,
    b"to": TO,
    b"t": TO,
    b"call-id": CALL_ID,
    b"i": CALL_ID,
    b"cseq": CSEQ,
    b"max-forwards": MAX_FORWARDS,
    b"route": ROUTE,
    b"record-route": RECORD_ROUTE,
    b"content-length": CONTENT_LENGTH,
    b"l": CONTENT_LENGTH,
}

# Frequent names a guard does not read: here only to save them the second look-up.
_PASSED = (
    b"Accept", b"Accept-Encoding", b"Accept-Language", b"Alert-Info", b"Allow", b"Allow-Events", b"Authorization", b"Call-Info",
    b"Contact", b"Content-Disposition", b"Content-Encoding", b"Content-Type", b"Date", b"Diversion", b"Event", b"Expires",
    b"History-Info", b"Identity", b"Min-Expires", b"Min-SE", b"Organization", b"P-Access-Network-Info", b"P-Asserted-Identity",
    b"P-Charging-Vector", b"P-Early-Media", b"P-Preferred-Identity", b"P-Visited-Network-ID", b"Path", b"Priority", b"Privacy",
    b"Proxy-Authorization", b"Proxy-Require", b"RAck", b"RSeq", b"Reason", b"Refer-To", b"Referred-By", b"Remote-Party-ID",
    b"Replaces", b"Require", b"Server", b"Session-Expires", b"Subject", b"Subscription-State", b"Supported", b"Timestamp",
    b"Unsupported", b"User-Agent", b"User-to-User", b"c", b"k", b"m", b"o", b"s", b"u", b"x",
)  # fmt: skip

_EXTRA_TABLES_MAX = 16  # keyed by configuration, not by the network; a cap all the same


def _spellings(name: bytes) -> tuple[bytes, ...]:
    return name, name.title(), name.upper()


def _table() -> dict[bytes, int]:
    table = dict.fromkeys(_PASSED, OTHER)
    table.update({name.lower(): OTHER for name in _PASSED})
    for name, kind in _READ.items():
        table.update(dict.fromkeys(_spellings(name), kind))
    table.update({b"Call-ID": CALL_ID, b"CSeq": CSEQ, b"Call-id": CALL_ID})
    return table


NAMES: dict[bytes, int] = _table()

_with_extra: dict[bytes, dict[bytes, int]] = {}


def names_with(extra: bytes) -> dict[bytes, int]:
    """NAMES with one more header name (lower case) read as EXTRA. A name that is read already stays what it is."""
    table = _with_extra.get(extra)
    if table is None:
        table = {name: kind for name, kind in NAMES.items() if kind or name.lower() != extra}
        for name in _spellings(extra):
            table.setdefault(name, EXTRA)
        if len(_with_extra) >= _EXTRA_TABLES_MAX:
            _with_extra.clear()
        _with_extra[extra] = table
    return table
