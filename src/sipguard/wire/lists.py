"""Cutting header values: comma lists, parameters, quoted strings and angle brackets (RFC 3261 7.3.1, 20, 25.1).

Every function walks its text once: linear in its length, no recursion, no regular expression that can go back.
A quote or a `<` that is never closed makes the rest of the text one opaque piece.
"""

from __future__ import annotations

import re

_LIST_SPECIAL = re.compile(rb'[",<]')
_PARAM_SPECIAL = re.compile(rb'[";<]')


def close_quote(text: bytes, quote: int) -> int:
    """The offset after the quoted string that opens at `quote` (RFC 3261 25.1 `quoted-string`); -1 when it never closes."""
    start = quote + 1
    while True:
        end = text.find(b'"', start)
        if end < 0:
            return -1
        slashes = end
        while slashes > start and text[slashes - 1] == 0x5C:
            slashes -= 1
        if (end - slashes) % 2 == 0:
            return end + 1
        start = end + 1


def open_bracket(text: bytes) -> int:
    """The offset of the first `<` outside quoted strings; -1 when there is none. An unclosed quote hides nothing here."""
    opening = text.find(b"<")
    position = 0
    while opening >= 0:
        quote = text.find(b'"', position, opening)
        if quote < 0:
            return opening
        position = close_quote(text, quote)
        if position < 0:
            return opening
        if position > opening:
            opening = text.find(b"<", position)
    return -1


def inside_brackets(text: bytes) -> bytes | None:
    """What stands between the first `<` outside quotes and its `>`; None when there is no such pair."""
    opening = open_bracket(text)
    closing = text.find(b">", opening) if opening >= 0 else -1
    return text[opening + 1 : closing] if closing >= 0 else None


def commas(text: bytes) -> list[int]:
    """Offsets of the commas that separate list elements: those outside quotes and angle brackets."""
    return _tops(text, _LIST_SPECIAL, 0x2C)


def split_list(text: bytes) -> list[bytes]:
    """The elements of a comma list in order, outer white space stripped.

    A list with an empty element is no list by the grammar (RFC 3261 25.1): it is kept as one value, so that an echo repeats it
    exactly.
    """
    if b'"' in text or b"<" in text:
        pieces = _cut(text, commas(text))
    else:
        pieces = text.split(b",")
    stripped = [piece.strip() for piece in pieces]
    return stripped if b"" not in stripped else [text.strip()]


def cut_params(text: bytes) -> list[bytes]:
    """`a;b="x;y";c` cut at the semicolons outside quotes and angle brackets; pieces as written."""
    if b'"' not in text and b"<" not in text:
        return text.split(b";")
    return _cut(text, _tops(text, _PARAM_SPECIAL, 0x3B))


def header_tag(value: bytes) -> bytes | None:
    """The `tag` parameter of a From or To value: a header parameter, never one inside quotes or angle brackets (RFC 3261 20).

    Without brackets every parameter is the header's (20.10). None when there is no tag, b"" when it is there but empty.
    """
    rest = value[value.rfind(b">") + 1 :]  # all of it when there is no bracket
    if b'"' in rest or value.count(b"<") > 1:
        # A quote may hold brackets: find the pair that counts. An unclosed bracket is undecidable by the grammar; reading all of
        # it at least never puts a second tag on a To that has one.
        rest = value[value.find(b">", max(0, open_bracket(value))) + 1 :]
    if not rest:
        return None
    if b'"' not in rest:
        at = rest.find(b";tag=")
        if at >= 0:
            end = rest.find(b";", at + 5)
            return rest[at + 5 : end if end >= 0 else len(rest)].strip()
    if b";" not in rest:
        return None
    for param in cut_params(rest)[1:]:
        name, equals, text = param.partition(b"=")
        if equals and name.strip().lower() == b"tag":
            return text.strip()
    return None


def _cut(text: bytes, offsets: list[int]) -> list[bytes]:
    pieces = []
    start = 0
    for offset in offsets:
        pieces.append(text[start:offset])
        start = offset + 1
    pieces.append(text[start:])
    return pieces


def _tops(text: bytes, special: re.Pattern[bytes], separator: int) -> list[int]:
    offsets: list[int] = []
    found = special.search(text)
    while found is not None:
        position = found.start()
        byte = text[position]
        if byte == separator:
            offsets.append(position)
            position += 1
        elif byte == 0x22:
            position = close_quote(text, position)
            if position < 0:
                break
        else:
            position = text.find(b">", position) + 1
            if position == 0:
                break
        found = special.search(text, position)
    return offsets
