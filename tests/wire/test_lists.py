"""Comma lists, parameters, quotes and brackets. RFC 3261 7.3.1, 20, 25.1."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sipguard.wire.lists import close_quote, commas, cut_params, header_tag, inside_brackets, open_bracket, split_list

TEXTS = st.text(st.sampled_from('ab,;=<>"\\ '), max_size=40).map(str.encode)


def test_close_quote() -> None:
    assert close_quote(b'"abc" x', 0) == 5
    assert close_quote(rb'"a\"b\\" x', 0) == 8
    assert close_quote(rb'"a\"', 0) == -1
    assert close_quote(rb'\"a"', 1) == 4  # the escape before the opening quote is none of its own


@pytest.mark.parametrize(
    ("text", "elements"),
    [
        (b"a", [b"a"]),
        (b" a ,b\t,  c", [b"a", b"b", b"c"]),
        (b'"a,b" <c,d>, e', [b'"a,b" <c,d>', b"e"]),
        (rb'"a\",b", c', [rb'"a\",b"', b"c"]),
        (b'a, "b, c', [b"a", b'"b, c']),
        (b"a, <b, c", [b"a", b"<b, c"]),
        (b"a,,b", [b"a,,b"]),
        (b" a, ", [b"a,"]),
        (b"", [b""]),
    ],
)
def test_split_list(text: bytes, elements: list[bytes]) -> None:
    assert split_list(text) == elements


def test_params_and_brackets() -> None:
    assert cut_params(b'a;b=";c";<d;e>;f') == [b"a", b'b=";c"', b"<d;e>", b"f"]
    assert inside_brackets(b'"<a>" <b>') == b"b"
    assert inside_brackets(b'"<a> <b>') == b"a"  # an unclosed quote hides nothing
    assert inside_brackets(b"<b") is None
    assert inside_brackets(b"b>") is None
    assert open_bracket(b'"<" "<" <') == 8
    assert open_bracket(b'"<" "<"') == -1


@pytest.mark.parametrize(
    ("value", "tag"),
    [
        (b"<sip:a@b>;tag=1", b"1"),
        (b"<sip:a@b> ; x ; TaG = 1 ;y", b"1"),
        (b"sip:a@b;tag=1", b"1"),
        (b"<sip:a@b;tag=1>", None),
        (b'";tag=1" <sip:a@b>', None),
        (b'"a" <sip:a@b>;x=";tag=1"', None),
        (b'"a" <sip:a@b>;x="<y>";tag=2', b"2"),
        (b"<sip:a@b>;x=<y>;tag=3", b"3"),
        (b"<sip:a@b>;tag=4;x=<y>", b"4"),
        (b"<sip:a@b>;tag", None),
        (b"<sip:a@b>;tag=", b""),
        (b"<sip:a@b>;tagx=1", None),
        (b"<sip:a@b>;tag=1;tag=2", b"1"),
    ],
)
def test_header_tag(value: bytes, tag: bytes | None) -> None:
    assert header_tag(value) == tag


@given(TEXTS)
def test_cuts_lose_nothing(text: bytes) -> None:
    assert b";".join(cut_params(text)) == text
    assert all(text[offset : offset + 1] == b"," for offset in commas(text))
    elements = split_list(text)
    assert len(elements) in (1, len(commas(text)) + 1)
    assert b"".join(b",".join(elements).split()) == b"".join(text.split())
    assert (header_tag(text) or b"") in text


@given(st.binary(max_size=60))
def test_any_bytes(text: bytes) -> None:
    for reader in (commas, split_list, cut_params, header_tag, inside_brackets):
        reader(text)
