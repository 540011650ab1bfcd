"""zstd (RFC 8878) of any number of frames, which says so when it breaks off.

Not zstandard's own stream reader: it takes a frame that is cut for one that has ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from zstandard import ZstdDecompressionObj

#: RFC 8878 3.1.1, 3.1.2: a frame; a skippable one, whose first byte is 0x50 … 0x5f.
_FRAME, _SKIPPABLE = b"\x28\xb5\x2f\xfd", b"\x2a\x4d\x18"
#: Compressed bytes taken at once. A block of 4 bytes may hold 128 KiB of one byte (RFC 8878 3.1.1.2): 16 MiB come at most.
_PIECE = 512


class _File(Protocol):
    def read(self, size: int = -1, /) -> bytes: ...


class Zstd:
    """The content of a file of frames. read1 raises EOFError where a frame is cut, OSError at what is none."""

    __slots__ = ("_decoder", "_file", "_left", "_make", "_within")

    def __init__(self, file: _File) -> None:
        """file: from its start. Raises ImportError when zstandard is not installed."""
        import zstandard

        self._make = zstandard.ZstdDecompressor().decompressobj
        self._decoder: ZstdDecompressionObj = self._make()
        self._file = file
        self._left = b""
        self._within = False

    def read1(self, size: int = -1, /) -> bytes:  # noqa: ARG002  what one piece holds comes whole
        """What the next piece holds; b"" at the end."""
        import zstandard

        while True:
            piece = self._left or self._file.read(_PIECE)
            if not piece:
                if self._within:
                    raise EOFError("zstd frame ended before its end mark was reached")
                return b""
            self._left = b""
            try:
                data = self._decoder.decompress(piece)
            except zstandard.ZstdError as error:
                raise OSError(str(error)) from None
            self._within = not self._decoder.eof
            if self._decoder.eof:
                self._left = self._decoder.unused_data
                self._decoder = self._make()
            if data:
                return data


def is_zstd(head: bytes) -> bool:
    """Whether a file that begins with these 4 bytes is one; fewer are all it has: one that is cut within them."""
    if not head:
        return False
    if head[0] & 0xF0 == 0x50:
        return len(head) > 1 and _SKIPPABLE.startswith(head[1:4])
    return _FRAME.startswith(head[:4])
