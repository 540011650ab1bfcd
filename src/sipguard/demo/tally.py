"""What became of the requests that were sent, by method."""

from __future__ import annotations

from collections.abc import Mapping

COLUMNS = ("sent", "ok", "refused", "other", "none")
"""sent; ok: 2xx; refused: 503; other: any other final answer; none: no final answer in time (ACK has none by nature)."""


class Tally:
    """Counters by method, whole life; see COLUMNS. The methods are those we send, so the table is small."""

    __slots__ = ("_rows",)

    def __init__(self, rows: Mapping[str, Mapping[str, int]] | None = None) -> None:
        self._rows: dict[str, dict[str, int]] = {
            method: {column: int(row.get(column, 0)) for column in COLUMNS} for method, row in (rows or {}).items()
        }

    def __repr__(self) -> str:
        return f"Tally({self._rows!r})"

    def sent(self, method: str) -> None:
        """One more was sent."""
        self._row(method)["sent"] += 1

    def answered(self, method: str, status: int) -> None:
        """A final answer came."""
        column = "ok" if status < 300 else "refused" if status == 503 else "other"
        self._row(method)[column] += 1

    def unanswered(self, method: str) -> None:
        """No final answer came in time."""
        self._row(method)["none"] += 1

    def total(self, column: str) -> int:
        """Over all methods."""
        return sum(row[column] for row in self._rows.values())

    def rows(self) -> dict[str, dict[str, int]]:
        """Method to its counters: plain values, fit for JSON and for `Tally(rows)`."""
        return {method: dict(row) for method, row in self._rows.items()}

    def _row(self, method: str) -> dict[str, int]:
        row = self._rows.get(method)
        if row is None:
            row = self._rows[method] = dict.fromkeys(COLUMNS, 0)
        return row
