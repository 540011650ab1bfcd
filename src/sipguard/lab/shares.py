"""Verdicts by method and by source, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_address
from typing import NamedTuple

from sipguard.wire.scan import KNOWN_METHODS

#: Methods told apart besides the known ones: a flood may invent one for each request.
MAX_OTHER_METHODS = 50
OTHER_METHODS = "(other)"
#: Sources told apart at any time; when there are more the smaller half is put together.
MAX_SOURCES = 50_000
#: Sources in a report.
TOP = 20


class Share(NamedTuple):
    """What became of the requests of one method or one source."""

    name: str
    allow: int
    reject: int
    drop: int

    @property
    def requests(self) -> int:
        return self.allow + self.reject + self.drop


class MethodShares:
    """By method: a row [allow, reject, drop] each, to be counted up by the caller."""

    __slots__ = ("_rows",)

    def __init__(self) -> None:
        self._rows: dict[str, list[int]] = {}

    def row(self, method: str) -> list[int]:
        """The method's row, or that of the others when there are too many."""
        row = self._rows.get(method)
        if row is None:
            if method not in KNOWN_METHODS and len(self._rows) >= MAX_OTHER_METHODS + len(KNOWN_METHODS):
                method = OTHER_METHODS
            row = self._rows.setdefault(method, [0, 0, 0])
        return row

    def top(self) -> list[Share]:
        """The most frequent first."""
        return _ordered(self._rows, str)


class SourceShares:
    """By source address: as MethodShares.

    exact: no source was ever put together with others. others: what was.
    """

    __slots__ = ("_max", "_rows", "others")

    def __init__(self, max_sources: int = MAX_SOURCES) -> None:
        self._max = max_sources
        self._rows: dict[bytes | str, list[int]] = {}
        self.others = [0, 0, 0]

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def exact(self) -> bool:
        return not any(self.others)

    def row(self, source: bytes | str) -> list[int]:
        """The source's row."""
        row = self._rows.get(source)
        if row is None:
            if len(self._rows) >= self._max:
                self._prune()
            row = self._rows[source] = [0, 0, 0]
        return row

    def top(self, n: int = TOP) -> list[Share]:
        """The n that sent most, the first first."""
        return _ordered(self._rows, address_text)[:n]

    def _prune(self) -> None:
        order = sorted(self._rows.items(), key=lambda item: sum(item[1]), reverse=True)
        self._rows = dict(order[: self._max // 2])
        for _, row in order[self._max // 2 :]:
            for i in range(3):
                self.others[i] += row[i]


def address_text(source: bytes | str) -> str:
    """An address of 4 or 16 bytes as text; a text as it is."""
    return source if isinstance(source, str) else str(ip_address(source))


def _ordered(rows: dict[str, list[int]] | dict[bytes | str, list[int]], name: Callable[..., str]) -> list[Share]:
    order = sorted(rows.items(), key=lambda item: (-sum(item[1]), str(item[0])))
    return [Share(name(key), *row) for key, row in order if any(row)]
