"""The lines of a source of text, in bounded memory."""

from __future__ import annotations

import io
from collections.abc import Iterator

from sipguard.lab.capture.source import Source
from sipguard.lab.replay import RowError

#: A longer line is no row of events; to look for its end could cost any memory.
MAX_LINE = 65536
LINE_FORM = f"a line of at most {MAX_LINE} bytes"

_BOM = b"\xef\xbb\xbf"


def text_lines(source: Source) -> Iterator[str]:
    """Lines with their ends (LF, CR LF or CR), as UTF-8: bytes that are none become characters that no method has.

    Where the source breaks off, a line that is not whole is left out: what it would have said is not known. Raises RowError at
    a line longer than MAX_LINE.
    """
    number, rest = 0, source.read().removeprefix(_BOM)
    while rest:
        end = max(rest.rfind(b"\n"), rest.rfind(b"\r", 0, -1)) + 1
        whole, rest = rest[:end], rest[end:]
        for line in io.StringIO(whole.decode("utf-8", "surrogateescape"), newline=""):
            number += 1
            if len(line) > MAX_LINE:
                raise RowError(number, "line", line, LINE_FORM)
            yield line
        if len(rest) > MAX_LINE:
            raise RowError(number + 1, "line", rest[:MAX_LINE].decode("utf-8", "surrogateescape"), LINE_FORM)
        chunk = source.read()
        if not chunk:
            break
        rest += chunk
    if rest and (not source.broken or rest.endswith(b"\r")):
        yield rest.decode("utf-8", "surrogateescape")
