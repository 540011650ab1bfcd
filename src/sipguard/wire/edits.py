"""Changing a message on its way through: everything that need not change stays byte for byte.

RFC 3261 16.6 (request forwarding), 16.7 (response forwarding), 18.2.1 (received), 18.3 (octets after the body); RFC 3581 4.
"""

from __future__ import annotations

from sipguard.wire.head import Head
from sipguard.wire.lists import commas, cut_params, split_list
from sipguard.wire.names import EXTRA, MAX_FORWARDS, ROUTE, VIA
from sipguard.wire.values import Via

_MAX_FORWARDS_ABSENT = b"Max-Forwards: 70\r\n"  # RFC 3261 16.6 item 3
_LOWERED = {b"Max-Forwards: %d\r" % hops: b"Max-Forwards: %d\r" % (hops - 1) for hops in range(1, 256)}


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
    received: becomes the `received` parameter of the top Via, in place of whatever the client wrote there; None: left alone.
    rport: the value for the top Via's `rport` parameter, when it has one; None: left alone.
    drop_routes: how many Route values to remove from the top; a line left empty goes.
    strip_extra: remove every line of the `extra` header given to `read_head`.
    uri: replaces the Request-URI.
    Max-Forwards goes down by one; without one, 70 is put in; one that is 0 or unreadable stays (the caller answers 483 or 400
    instead). Octets beyond Content-Length are not passed on (RFC 3261 18.3).
    """
    lines = head.lines.copy()
    at = head.line_of
    index = at[VIA]
    if index and (received is not None or rport is not None):
        lines[index] = _mark_line(lines[index], received, rport, head.top_via)
    index = at[MAX_FORWARDS]
    if index:
        line = lines[index]
        lines[index] = _LOWERED.get(line) or _lower(line, head.max_forwards)
    else:
        insert += _MAX_FORWARDS_ABSENT
    gone: list[int] = []
    if drop_routes > 0 and at[ROUTE]:
        gone = _drop_routes(head, lines, drop_routes)
    if strip_extra and at[EXTRA]:
        gone += _indexes(head, EXTRA)
    if uri is not None:
        lines[0] = _with_uri(head, uri)
    if insert:
        lines[0] += b"\n" + insert[:-1] if lines[0][-1:] == b"\r" else b"\r\n" + insert[:-1]
    return _joined(head, lines, gone)


def pop_via(head: Head) -> bytes:
    """The message without its top Via value (RFC 3261 16.7 item 3).

    The line goes when it held no other. Without a Via nothing changes.
    """
    lines = head.lines.copy()
    index = head.line_of[VIA]
    gone: list[int] = []
    if index:
        line = lines[index]
        shorter = _drop_values(line, 1) if b"," in line else b""
        if shorter:
            lines[index] = shorter
        else:
            gone = [index]
    return _joined(head, lines, gone)


def mark_via(value: bytes, received: bytes | None, rport: int | None, via: Via | None = None) -> bytes:
    """One Via value (or a line that holds one) as the receiving element leaves it (RFC 3261 18.2.1, RFC 3581 4).

    `received` is set, in place of any that was there; `rport`, if it is there, gets its value. None leaves either alone.
    via: the same value, read: a plain one need not be taken apart again.
    """
    if via is not None and via.plain:
        if rport is not None and via.rport is not None:
            end = value.find(b";rport") + 6
            value = b"%b=%d%b" % (value[:end], rport, value[end:])
        return value if received is None else value + b";received=" + received
    kept = []
    for index, param in enumerate(value.split(b";") if b'"' not in value else cut_params(value)):
        name = param.partition(b"=")[0].strip().lower() if index else b""
        if name == b"rport" and rport is not None:
            kept.append(b"rport=%d" % rport)
        elif name != b"received" or received is None:
            kept.append(param)
    if received is not None:
        kept.append(b"received=" + received)
    return b";".join(kept)


def _mark_line(line: bytes, received: bytes | None, rport: int | None, via: Via | None) -> bytes:
    """The same for the first value of a whole Via line, as written."""
    name_end = line.find(b":") + 1
    end = len(line)
    if b"," in line:
        value = line[name_end:]
        if len(split_list(value)) > 1:
            end = name_end + commas(value)[0]
    stripped = line[:end].rstrip()
    return mark_via(stripped, received, rport, via) + line[len(stripped) :]


def _lower(line: bytes, hops: int | None) -> bytes:
    if not hops:
        return line
    name, _, value = line.partition(b":")
    digits = value.strip()
    before, _, after = value.partition(digits)
    return b"%b:%b%d%b" % (name, before, hops - 1, after)


def _indexes(head: Head, kind: int) -> list[int]:
    """The lines of one kind, in order."""
    first = head.line_of[kind]
    return [first] + [index for other, index in head.further if other == kind] if first else []


def _drop_routes(head: Head, lines: list[bytes], count: int) -> list[int]:
    """Shorten the Route lines by `count` values from the top; the indexes of those left empty."""
    gone: list[int] = []
    for index in _indexes(head, ROUTE):
        if count <= 0:
            break
        line = lines[index]
        held = len(split_list(line.partition(b":")[2])) if b"," in line else 1
        if held <= count:
            gone.append(index)
        else:
            lines[index] = _drop_values(line, count)
        count -= held
    return gone


def _drop_values(line: bytes, count: int) -> bytes:
    """The line without its first `count` list elements; b"" when it has no more than those."""
    name, _, value = line.partition(b":")
    if len(split_list(value)) <= count:
        return b""
    return name + b": " + value[commas(value)[count - 1] + 1 :].lstrip()


def _with_uri(head: Head, uri: bytes) -> bytes:
    method = b"" if head.method is None else head.method.encode("latin-1")
    return b"%b %b %b\r" % (method, uri, head.version)


def _joined(head: Head, lines: list[bytes], gone: list[int]) -> bytes:
    if gone:
        for index in sorted(gone, reverse=True):
            del lines[index]
    if head.rest_at >= 0:
        length = head.content_length
        lines.append(
            head.data[head.rest_at :] if length is None else head.data[head.rest_at : head.body_offset + length]
        )
    return b"\n".join(lines)
