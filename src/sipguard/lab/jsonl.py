"""Events as JSON Lines: an object a line with time_ms, method and, if wanted, count and source."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from sipguard.lab.replay import COUNT_FORM, METHOD_FORM, TIME_FORM, Event, RowError, is_method, parse_ms

KEYS = ("time_ms", "method", "count", "source")
LINE_FORM = "a JSON object with the keys " + ", ".join(KEYS) + " (the first two required)"
SOURCE_FORM = "a text of at most 64 characters"

_MAX_COUNT = 999_999_999
_MAX_SOURCE = 64
_MAX_LINE = 65536


def read_jsonl(lines: Iterable[str]) -> Iterator[Event]:
    """Events of JSON Lines, streamed; empty lines are passed over. Raises RowError at the first line that cannot be used."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        yield _event(line, number)


def _event(line: str, number: int) -> Event:
    try:
        if len(line) > _MAX_LINE:
            raise ValueError
        # Numbers as they are written: a time in ms has up to 6 decimals, and no float keeps them all.
        row = json.loads(line, parse_float=_Number, parse_int=_Number)
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict) or not {"time_ms", "method"} <= set(row) <= set(KEYS):
        raise RowError(number, "line", line.strip(), LINE_FORM)
    time_text, method = row["time_ms"], row["method"]
    time_ns = parse_ms(time_text) if isinstance(time_text, str) else None
    if time_ns is None:
        raise RowError(number, "time_ms", time_text, TIME_FORM)
    if not isinstance(method, str) or isinstance(method, _Number) or not is_method(method):
        raise RowError(number, "method", method, METHOD_FORM)
    count = row.get("count", _Number("1"))
    if not isinstance(count, _Number) or not count.isdecimal() or len(count) > len(str(_MAX_COUNT)):
        raise RowError(number, "count", count, COUNT_FORM)
    source = row.get("source", "")
    if not isinstance(source, str) or isinstance(source, _Number) or len(source) > _MAX_SOURCE:
        raise RowError(number, "source", source, SOURCE_FORM)
    return Event(time_ns, method, int(count), str(time_text), source)


class _Number(str):
    """A number as its digits."""

    __slots__ = ()
