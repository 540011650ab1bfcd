"""The bytes of a file, compressed or not, in pieces of bounded size, with the place where they stop being good."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from typing import IO, Protocol, cast

from sipguard.lab.capture.records import CaptureError, Damage
from sipguard.lab.capture.zstd import Zstd, is_zstd

#: What is read at once, bytes.
CHUNK = 1 << 19
#: How much of a file's beginning tells its kind, bytes.
PEEK = 512
MAX_DAMAGES = 100

_GZIP = b"\x1f\x8b"


class _Readable(Protocol):
    """What one call decompresses comes out of it: `read` of more would lose it all at the first bad byte.

    More than `size` may come, as much as one piece of compressed data holds.
    """

    def read1(self, size: int = -1, /) -> bytes: ...


class Source:
    """A file's content as a stream that never raises while it is read.

    name: for messages. offset: of the content, what was read so far. damages: the places that could not be read, the first
    MAX_DAMAGES of them. broken: the content ends before its time, at compressed data that is damaged or cut.
    on_read: called with the position in the file itself (compressed bytes) after each piece.
    """

    __slots__ = ("_ahead", "_file", "_stream", "broken", "damages", "name", "offset", "on_read")

    def __init__(self, file: IO[bytes], name: str, on_read: Callable[[int], None] | None = None) -> None:
        """Takes over `file`, positioned at its start. Raises CaptureError when what decompresses it is not installed."""
        self.name = name
        self.offset = 0
        self.damages: list[Damage] = []
        self.broken = False
        self.on_read = on_read
        self._file = _Counting(file)
        head = self._file.read(4)
        raw = _Rejoined(head, self._file)
        self._stream: _Readable = _decompressed(head, raw, name)
        self._ahead = b""

    def __repr__(self) -> str:
        return f"<Source {self.name} at {self.offset}>"

    def peek(self) -> bytes:
        """The first bytes of the content, up to PEEK, still to be read."""
        if not self._ahead:
            self._ahead = self._pull(CHUNK)
        return self._ahead[:PEEK]

    def read(self) -> bytes:
        """The next piece; b"" at the end, or where the compressed data is broken (see `damages`)."""
        data, self._ahead = self._ahead or self._pull(CHUNK), b""
        self.offset += len(data)
        if self.on_read is not None:
            self.on_read(self._file.position)
        return data

    def spoil(self, offset: int, reason: str) -> None:
        """The content is no use at `offset`."""
        if len(self.damages) < MAX_DAMAGES:
            self.damages.append(Damage(self.name, offset, reason))

    def cut_off(self, offset: int, within: str) -> None:
        """The content ends within something. Where the file is broken that is told already, and this follows from it."""
        if not self.broken:
            self.spoil(offset, f"cut off within {within}")

    def close(self) -> None:
        self._file.close()

    def _pull(self, size: int) -> bytes:
        """`size` bytes where there are so many (a pipe gives less at once), or a little more."""
        parts: list[bytes] = []
        while size > 0 and not self.broken:
            try:
                part = self._stream.read1(size)
            except (OSError, EOFError, zlib.error) as error:
                self._spoil_here(parts, str(error))
                break
            if not part:
                break
            parts.append(part)
            size -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _spoil_here(self, parts: list[bytes], reason: str) -> None:
        self.broken = True
        self.spoil(self.offset + sum(map(len, parts)), f"the file breaks off or is damaged ({reason})")


# -- inside ------------------------------------------------------------------------------------------------------------


class _Counting:
    """How far the file itself was read: a pipe cannot tell."""

    __slots__ = ("_file", "position")

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.position = 0

    def read(self, size: int = -1, /) -> bytes:
        data = self._file.read(size)
        self.position += len(data)
        return data

    def close(self) -> None:
        self._file.close()


class _Rejoined:
    """The bytes already read, then the rest of the file."""

    __slots__ = ("_head", "_rest")

    def __init__(self, head: bytes, rest: _Counting) -> None:
        self._head = head
        self._rest = rest

    def read(self, size: int = -1, /) -> bytes:
        if self._head:
            head, self._head = (self._head, b"") if size < 0 else (self._head[:size], self._head[size:])
            return head
        return self._rest.read(size)

    read1 = read


def _decompressed(head: bytes, raw: _Rejoined, name: str) -> _Readable:
    if head and _GZIP.startswith(head[:2]):
        return gzip.GzipFile(fileobj=cast(IO[bytes], raw))
    if is_zstd(head):
        try:
            return Zstd(raw)
        except ImportError:
            raise CaptureError(name, "zstd needs the package zstandard: pip install 'sipguard[lab]'") from None
    return raw
