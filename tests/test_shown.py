"""What came from outside, as a person is shown it."""

from __future__ import annotations

import os
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sipguard.shown import MAX_ECHO, cut, duration, echo, line, shown


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("INVITE [/red] :smile: ütf…", "INVITE [/red] :smile: ütf…"),
        ("\x1b[31m\r\n\t\0\x7f", r"\x1b[31m\r\n\t\x00\x7f"),
        ("a\x85b\x9b31m", r"a\x85b\x9b31m"),
        ("\u202eevil\u2066\u200f\u2028", r"\u202eevil\u2066\u200f\u2028"),
        ("\ud800" + os.fsdecode(b"\xff"), r"\ud800\udcff"),
        ("\U000e0041", r"\U000e0041"),
    ],
)
def test_what_is_no_visible_character_is_an_escape(text: str, told: str) -> None:
    assert shown(text) == told


@given(st.text(st.characters(), max_size=50))
def test_nothing_is_left_that_a_terminal_or_a_file_would_not_take(text: str) -> None:
    told = shown(text)
    assert not {unicodedata.category(char) for char in told} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    assert told.encode("utf-8").decode("utf-8") == told
    assert shown(told) == told


def test_an_error_repeats_no_more_than_a_line_holds() -> None:
    assert echo("x") == "'x'"
    assert echo(5) == "5"
    for value in ("9" * 5000, "\x1b" * 5000, ["x" * 5000], {"a": "b" * 5000}):
        told = echo(value)
        assert len(told) == MAX_ECHO
        assert told.endswith("…")
        assert told.isprintable()
    # Python spells no integer of so many digits.
    assert echo(1 << 20_000) == "an integer of 20001 bits"
    assert cut("12345", 5) == "12345"
    assert cut("123456", 5) == "1234…"
    assert len(line("x" * 10**6)) == 2000


@pytest.mark.parametrize(
    ("ns", "words"),
    [
        (0, "0 s"),
        (400_000, "0.4 ms"),
        (999_000_000, "999 ms"),
        (1_000_000_000, "1.0 s"),
        (3_599_900_000_000, "3599.9 s"),
        (7_500 * 10**9, "2 h 5 min"),
        (74_003 * 10**9, "20 h 33 min"),
        (100_000_000_000 * 10**9, "1,157,407 d 9 h"),
    ],
)
def test_lengths_of_time_are_words(ns: int, words: str) -> None:
    assert duration(ns) == words
