"""Heads made to be slow to read: they count and are judged by their request line, and are not read."""

from __future__ import annotations

#: Messages up to this many bytes are read without a look at how costly they are: at most a millisecond.
EASY_BYTES = 8192

#: A longer message with more header lines, commas or semicolons than these is not read: its milliseconds would be taken
#: from the evaluation's grid. It counts and is judged by its request line like any other.
MAX_LINES = 512
MAX_SEPARATORS = 1024


def is_costly(data: bytes) -> bool:
    """More lines, list values or parameters than any real message of its size has; for data over EASY_BYTES."""
    end = data.find(b"\r\n\r\n")
    if end < 0:
        end = len(data)
    return (
        data.count(b"\n", 0, end) > MAX_LINES
        or data.count(b",", 0, end) > MAX_SEPARATORS
        or data.count(b";", 0, end) > MAX_SEPARATORS
    )
