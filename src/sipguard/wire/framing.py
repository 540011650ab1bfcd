"""Messages out of a byte stream. RFC 3261 18.3 (Content-Length), 7.5 (CRLFs between messages), RFC 5626 4.4.1 (keep-alive)."""

from __future__ import annotations

import re
from typing import Final, Literal

from sipguard.wire.head import read_head, read_number
from sipguard.wire.scan import is_response, request_method

MESSAGE: Final = "message"
PING: Final = "ping"
BROKEN: Final = "broken"

BROKEN_REASONS: tuple[str, ...] = ("bad-start-line", "head-too-large", "bad-content-length", "body-too-large")


class Frame:
    """One thing found in a stream.

    kind: MESSAGE: data is the whole message. PING: CRLFCRLF between messages, to be answered with CRLF. BROKEN: the stream is
    lost, nothing follows; reason is one of BROKEN_REASONS, data the header block with its empty line when there is one (so that
    a 400 may be tried), else b"".
    """

    __slots__ = ("data", "kind", "reason")

    def __init__(self, kind: Literal["message", "ping", "broken"], data: bytes = b"", reason: str = "") -> None:
        self.kind: Literal["message", "ping", "broken"] = kind
        self.data = data
        self.reason = reason

    def __repr__(self) -> str:
        return f"Frame({self.kind!r}, {self.data[:40]!r}, {self.reason!r})"


_PING = b"\r\n\r\n"
_PING_FRAME = Frame(PING)
_GAP = re.compile(rb"[\r\n]+")
_EMPTY_LINE = re.compile(rb"\n\r?\n")  # after a line end, CRLF or bare LF
# The value of each Content-Length line, and b"" for each folded line.
_CONTENT_LENGTH = re.compile(rb"\n(?:[ \t]|(?:content-length|l)[ \t]*:([^\n]*))", re.IGNORECASE)


class StreamFramer:
    """Cuts one direction of one connection into frames; the same bytes give the same frames however they are split.

    max_head, max_body: bytes; at most max_head + max_body bytes are held back. A message without Content-Length has no body
    (RFC 3261 20.14 demands one on streams); what follows is then read as the next message.
    """

    __slots__ = (
        "_buffer",
        "_gap",
        "_inside",
        "_looked",
        "_lost",
        "_need",
        "_scanned",
        "_started",
        "max_body",
        "max_head",
        "partial_since_ns",
    )

    def __init__(self, *, max_head: int = 65536, max_body: int = 65536) -> None:
        self.max_head = max_head
        self.max_body = max_body
        self.partial_since_ns: int | None = None
        """When the first byte of the unfinished message came; None between messages. To limit that time is the caller's."""
        self._buffer = bytearray()
        self._gap = b""  # the end of the CRLFs since the last message or ping: what may still become a ping
        self._inside = False  # a message has begun
        self._lost = False
        self._reset()

    def _reset(self) -> None:
        self._need = 0  # length of the message being read, once its head is complete
        self._scanned = 0  # how far it was searched for the end of its head
        self._looked = 0  # how far it was searched for its start line
        self._started = False  # its start line was found good

    def feed(self, data: bytes, now_ns: int) -> list[Frame]:
        """The frames that `data` completes, in order. Never raises; each byte is looked at a bounded number of times."""
        frames: list[Frame] = []
        if self._lost:
            return frames
        held = self._buffer
        buffer: bytes | bytearray = data
        if held:
            held += data
            buffer = held
        position = 0
        size = len(buffer)
        while position < size:
            if not self._inside:
                position = self._skip_gap(buffer, position, frames)
                if position == size:
                    break
                self._inside = True
                self._gap = b""
            reason, head = self._measure(buffer, position, size)
            if reason:
                frames.append(Frame(BROKEN, head, reason))
                self._lost = True
                self._buffer = bytearray()
                self.partial_since_ns = None
                return frames
            need = self._need
            if not need or size - position < need:
                break
            frames.append(Frame(MESSAGE, bytes(buffer[position : position + need])))
            position += need
            self._inside = False
            self.partial_since_ns = None
            self._reset()
        if buffer is held:
            del held[:position]
        elif position < size:
            self._buffer = bytearray(data[position:] if position else data)
        if self._inside and self.partial_since_ns is None:
            self.partial_since_ns = now_ns
        return frames

    def _skip_gap(self, buffer: bytes | bytearray, position: int, frames: list[Frame]) -> int:
        """Past the CRs and LFs between messages; each CRLFCRLF among them is a ping."""
        found_gap = _GAP.match(buffer, position)
        if found_gap is None:
            return position
        end = found_gap.end()
        run = self._gap + bytes(buffer[position:end])
        last = 0
        found = run.find(_PING)
        while found >= 0:
            frames.append(_PING_FRAME)
            last = found + len(_PING)
            found = run.find(_PING, last)
        self._gap = run[last:][-3:]
        return end

    def _measure(self, buffer: bytes | bytearray, position: int, size: int) -> tuple[str, bytes]:
        """Set `_need` once the head of the message at `position` is complete; a reason and the head when the stream is lost."""
        if self._need:
            return "", b""
        limit = min(size, position + self.max_head)
        empty_line = _EMPTY_LINE.search(buffer, position + self._scanned, limit)
        if empty_line is None:
            self._scanned = max(0, limit - position - 2)
            if not self._started and not self._look_at_start(buffer, position, limit):
                return "bad-start-line", b""
            return ("head-too-large", b"") if limit - position >= self.max_head else ("", b"")
        end = empty_line.end()
        head = bytes(buffer[position:end])
        if not self._started and not _is_start(head):
            return "bad-start-line", b""
        length = _content_length(head)
        if length is None:
            return "bad-content-length", head
        if length > self.max_body:
            return "body-too-large", head
        self._need = end - position + length
        return "", b""

    def _look_at_start(self, buffer: bytes | bytearray, position: int, limit: int) -> bool:
        """False when the start line is complete and is none: a peer that talks something else is found out at its first line."""
        new = position + max(0, self._looked - 1)  # - 1: the byte after a line end may be what was missing
        self._looked = limit - position
        if buffer.find(b"\n", new, limit) < 0:
            return True
        end = buffer.find(b"\n", position, limit)
        if _is_start(bytes(buffer[position : end + 1])):
            self._started = True
            return True
        if end + 1 >= limit:
            return True
        if buffer[end + 1] not in b" \t":
            return False
        end = buffer.find(b"\n", end + 1, limit)
        if end < 0:
            return True
        self._started = _is_start(bytes(buffer[position : end + 1]))
        return self._started


def _is_start(data: bytes) -> bool:
    return request_method(data) is not None or is_response(data)


def _content_length(head: bytes) -> int | None:
    """The body's length: 0 without Content-Length, None when unreadable or contradictory (RFC 3261 20.14, RFC 4475 3.3.9)."""
    found = _CONTENT_LENGTH.findall(head)
    if len(found) == 1:
        number = read_number(found[0].strip())
        if number is not None:
            return number
    elif not found:
        return 0
    read = read_head(head)  # folded lines, several Content-Lengths: the careful reader
    return read.content_length if read.has_content_length else 0
