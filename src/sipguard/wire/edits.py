"""Changing a message on its way through: everything that need not change stays byte for byte.

RFC 3261 16.6 (request forwarding), 16.7 (response forwarding), 18.2.1 (received), 18.3 (octets after the body); RFC 3581 4 (rport).
"""

from __future__ import annotations

from sipguard.wire.head import Head
from sipguard.wire.lists import commas, cut_params, split_list
from sipguard.wire.names import EXTRA, MAX_FORWARDS, ROUTE, VIA

_CRLF = b"\r\n"
_MAX_FORWARDS_ABSENT = b"Max-Forwards: 70\r\n"  # RFC 3261 16.6 item 3
_LOWERED = {b"Max-Forwards: %d" % hops: b"Max-Forwards: %d" % (hops - 1) for hops in range(1, 256)}


def forward_request(
    head: Head,
    insert: bytes,
    *,
    received: bytes | None,
    rport: int | None,
    drop_routes: int,
    strip_extra: bool = True,
    uri: bytes | None = None,
) -> bytes:
    """The request as it goes on to the next hop.

    insert: complete header lines, each with its CRLF (our Via, Record-Route …), put right after the start line.
    received: becomes the `received` parameter of the top Via, in place of whatever the client wrote there; None leaves the Via alone.
    rport: the value for the top Via's `rport` parameter, when it has one; None leaves it alone.
    drop_routes: how many Route values to remove from the top; a line left empty goes.
    strip_extra: remove every line of the `extra` header given to `read_head`.
    uri: replaces the Request-URI.
    Max-Forwards goes down by one; without one, 70 is put in; one that is 0 or unreadable stays (the caller answers 483 or 400 first).
    Octets beyond Content-Length are not passed on (RFC 3261 18.3).
    """
    lines = head._lines.copy()
    at = head._at
    gone: list[int] = []
    index = at[VIA]
    if index and (received is not None or rport is not None):
        lines[index] = _mark_line(lines[index], received, rport)
    index = at[MAX_FORWARDS]
    if index:
        line = lines[index]
        lines[index] = _LOWERED.get(line) or _lower(line, head.max_forwards)
    else:
        insert += _MAX_FORWARDS_ABSENT
    if drop_routes > 0 and at[ROUTE]:
        _drop_routes(head, lines, drop_routes, gone)
    if strip_extra and at[EXTRA]:
        gone += _indexes(head, EXTRA)
    start = lines[0]
    if uri is not None:
        start = _with_uri(head, uri)
    return _joined(head, start, insert, lines, gone)


def pop_via(head: Head) -> bytes:
    """The message without its top Via value (RFC 3261 16.7 item 3); the line goes when it held no other. Unchanged without a Via."""
    index = head._at[VIA]
    if not index:
        return head.data
    lines = head._lines.copy()
    if len(head.vias) > 1:
        shorter = _drop_values(lines[index], 1)
        if shorter:
            lines[index] = shorter
            return _joined(head, lines[0], b"", lines, [])
    return _joined(head, lines[0], b"", lines, [index])


def mark_via(value: bytes, received: bytes | None, rport: int | None) -> bytes:
    """One Via value with `received` set (any that was there is replaced) and, if it has an `rport` parameter, that one filled in."""
    params = value.split(b";") if b'"' not in value else cut_params(value)
    kept = [params[0]]
    for param in params[1:]:
        name = param.partition(b"=")[0].strip().lower()
        if name == b"received" and received is not None:
            continue
        if name == b"rport" and rport is not None:
            param = b"rport=%d" % rport
        kept.append(param)
    if received is not None:
        kept.append(b"received=" + received)
    return b";".join(kept)


def _mark_line(line: bytes, received: bytes | None, rport: int | None) -> bytes:
    name, _, rest = line.partition(b":")
    cuts = commas(rest) if b"," in rest else []
    end = cuts[0] if cuts else len(rest.rstrip())
    return name + b":" + mark_via(rest[:end], received, rport) + rest[end:]


def _lower(line: bytes, hops: int | None) -> bytes:
    if not hops:
        return line
    name, _, rest = line.partition(b":")
    digits = rest.strip()
    before, _, after = rest.partition(digits)
    return name + b":" + before + b"%d" % (hops - 1) + after


def _indexes(head: Head, kind: int) -> list[int]:
    """The lines of one kind, in order."""
    first = head._at[kind]
    return [first] + [index for other, index in head._more if other == kind] if first else []


def _drop_routes(head: Head, lines: list[bytes], count: int, gone: list[int]) -> None:
    for index in _indexes(head, ROUTE):
        if count <= 0:
            return
        held = len(split_list(lines[index].partition(b":")[2]))
        if held <= count:
            gone.append(index)
        else:
            lines[index] = _drop_values(lines[index], count)
        count -= held


def _drop_values(line: bytes, count: int) -> bytes:
    """The line without its first `count` list elements; b"" when it has no more than those."""
    name, _, rest = line.partition(b":")
    if len(split_list(rest)) <= count:
        return b""
    return name + b": " + rest[commas(rest)[count - 1] + 1 :].lstrip()


def _with_uri(head: Head, uri: bytes) -> bytes:
    end = b"" if head._joint else _CRLF
    return b" ".join(((head.method or "").encode("latin-1"), uri, head.version)) + end


def _joined(head: Head, start: bytes, insert: bytes, lines: list[bytes], gone: list[int]) -> bytes:
    if gone:
        for index in sorted(gone, reverse=True):
            del lines[index]
    data = head.data
    end = len(data)
    if head.content_length is not None and head.content_length < end - head.body_offset:
        end = head.body_offset + head.content_length
    if head._joint:
        lines[0] = start + _CRLF + insert[:-2] if insert else start
        lines.append(data[head.body_offset - 2 : end])
        return _CRLF.join(lines)
    if start[-1:] != b"\n":
        start += _CRLF
    lines[0] = start + insert
    lines.append(data[_head_end(head) : end])
    return b"".join(lines)


def _head_end(head: Head) -> int:
    return sum(map(len, head._lines))
