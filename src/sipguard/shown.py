"""What came from outside, made fit to be shown to a person: on a terminal, in a page, in an error."""

from __future__ import annotations

#: Characters of a value that an error repeats; the rest says nothing more and would bury the sentence.
MAX_ECHO = 80
#: Characters of a whole line.
_MAX_LINE = 2000

_SECOND_NS = 1_000_000_000
_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86_400


def shown(text: str) -> str:
    """The text with everything that is no visible character as an escape: control characters (ESC and C1 would be orders to a
    terminal), line ends, marks of the writing direction, lone surrogates (bytes of a file name that are no UTF-8)."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def line(text: str) -> str:
    """As `shown`, of bounded length: a line of a terminal or a log."""
    return cut(shown(text), _MAX_LINE)


def echo(value: object) -> str:
    """A value as an error repeats it: its repr, at most MAX_ECHO characters."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        # Python refuses to spell an integer of more than 4300 digits, and what is nested too deeply.
        text = f"an integer of {value.bit_length()} bits" if isinstance(value, int) else f"a {type(value).__name__}"
    return cut(shown(text))


def cut(text: str, most: int = MAX_ECHO) -> str:
    """The text, its end as … where it is longer than `most`."""
    return text if len(text) <= most else text[: most - 1] + "…"


def duration(ns: int) -> str:
    """A length of time in words: 0.4 ms, 12.5 s, 2 h 5 min, 1,157 d 9 h."""
    seconds = ns // _SECOND_NS
    if ns < _SECOND_NS:
        return f"{ns / 1e6:g} ms" if ns else "0 s"
    if seconds < _HOUR_S:
        return f"{ns / 1e9:.1f} s"
    if seconds < _DAY_S:
        return f"{seconds // _HOUR_S} h {seconds % _HOUR_S // _MINUTE_S} min"
    return f"{seconds // _DAY_S:,} d {seconds % _DAY_S // _HOUR_S} h"
