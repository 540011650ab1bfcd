"""The law on recorded events: CSV rows in, cycles and verdicts out, by the same controller that runs live (SPEC §3–§5)."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from sipguard.core.controller import OverloadController
from sipguard.core.parameters import Parameters
from sipguard.core.policy import Policy
from sipguard.core.verdicts import Change, Cycle, Verdict
from sipguard.shown import echo

INPUT_COLUMNS = ("time_ms", "method", "count")
TICK_COLUMNS = ("time_ms", "requests", "rps", "state")
VERDICT_COLUMNS = ("time_ms", "method", "allow", "reject", "drop")

TIME_FORM = "milliseconds from the origin, 0 or more, at most 15 digits and 6 decimals"
METHOD_FORM = "a SIP method name (RFC 3261 token)"
COUNT_FORM = "how many at that instant, an integer 0 … 999999999"
COLUMNS_FORM = "the columns time_ms,method[,count]"

_NS_PER_MS = 1_000_000
_TIME = re.compile(r"([0-9]{1,15})(?:\.([0-9]{1,6}))?", re.ASCII)
_METHOD = re.compile(r"[A-Za-z0-9\-.!%*_+`'~]+", re.ASCII)
_COUNT = re.compile(r"[0-9]{1,9}", re.ASCII)
#: More silent windows than any calm needs (LRC ≤ 100): after them the state is normal and nothing changes any more.
_SETTLED_WINDOWS = 200


class RowError(ValueError):
    """A row that cannot be used: its file where that is known, its line (from 1), what it says and what is allowed."""

    def __init__(self, line: int, what: str, value: object, allowed: str) -> None:
        super().__init__(f"line {line}: {what} = {echo(value)}: allowed is {allowed}")
        self.line = line
        self.file: str | None = None

    def __str__(self) -> str:
        text = super().__str__()
        return text if self.file is None else f"{self.file}: {text}"


class Event(NamedTuple):
    """So many requests of one method at one instant.

    time_text: the time as the row spells it, for the row's answer. source: who sent them, as the row says; "" when not.
    """

    time_ns: int
    method: str
    requests: int
    time_text: str
    source: str = ""


class Judged(NamedTuple):
    """One event's answer: the cycles that ended before it, and its verdicts as counts."""

    event: Event
    cycles: list[Cycle]
    allow: int
    reject: int
    drop: int


def parse_ms(text: str) -> int | None:
    """Nanoseconds of a time in ms, decimals allowed; None when it is not `TIME_FORM`."""
    found = _TIME.fullmatch(text)
    if found is None:
        return None
    whole, decimals = found.groups()
    return int(whole) * _NS_PER_MS + (int(decimals.ljust(6, "0")) if decimals else 0)


def is_method(text: str) -> bool:
    """Whether it can be a SIP method's name (RFC 3261 25.1 token)."""
    return _METHOD.fullmatch(text) is not None


def read_events(lines: Iterable[str]) -> Iterator[Event]:
    """Events of CSV text, streamed. Empty lines are passed over; without a header the columns are as `INPUT_COLUMNS`.

    Raises RowError at the first row that cannot be used.
    """
    rows = csv.reader(lines, skipinitialspace=True)
    columns: list[int | None] | None = None
    while True:
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            raise RowError(rows.line_num, "row", str(error), COLUMNS_FORM) from None
        row = [cell.strip() for cell in row]
        if not any(row):
            continue
        if columns is None:
            columns = _columns(row, rows.line_num)
            if row[0] in INPUT_COLUMNS:
                continue
        yield _event(row, columns, rows.line_num)


class Replay:
    """A controller fed from records. Its time is the records' time from origin 0.

    allowed, rejected, dropped, shadow counts: see `controller`. Changes of state come by `changes`.
    """

    __slots__ = ("controller",)

    def __init__(self, parameters: Parameters, policy: Policy | None = None) -> None:
        self.controller = OverloadController(parameters, policy, origin_ns=0)

    def __repr__(self) -> str:
        return f"<Replay {self.controller!r}>"

    def run(self, events: Iterable[Event]) -> Iterator[Judged]:
        """Each event in the order given; a time earlier than one already seen counts as that one (SPEC M4)."""
        controller = self.controller
        for event in events:
            cycles = self.advance(event.time_ns)
            counts = {Verdict.ALLOW: 0, Verdict.REJECT: 0, Verdict.DROP: 0}
            for verdict, n in controller.admit_many(event.method, event.requests, now_ns=event.time_ns):
                counts[verdict] += n
            yield Judged(event, cycles, counts[Verdict.ALLOW], counts[Verdict.REJECT], counts[Verdict.DROP])

    def advance(self, now_ns: int) -> list[Cycle]:
        """The cycles that end by now_ns, all but the ones of a long silence that change nothing (DESIGN §5)."""
        controller = self.controller
        # In two steps: the controller keeps 1,000 cycles, and a calm and the silence after it may be more together.
        settled_ns = controller.next_deadline_ns + _SETTLED_WINDOWS * controller.parameters.window_ns
        cycles = controller.advance(now_ns=min(now_ns, settled_ns))
        if now_ns > settled_ns:
            cycles += controller.advance(now_ns=now_ns)
        return cycles

    def changes(self) -> list[Change]:
        """The changes of state since the last call."""
        return self.controller.changes()


def tick_row(cycle: Cycle) -> tuple[str, int, int, str]:
    """A cycle as `TICK_COLUMNS`."""
    return ms_text(cycle.time_ns), cycle.requests, cycle.rps, cycle.state.value


def verdict_row(judged: Judged) -> tuple[str, str, int, int, int]:
    """An event's verdicts as `VERDICT_COLUMNS`."""
    return judged.event.time_text, judged.event.method, judged.allow, judged.reject, judged.drop


def ms_text(time_ns: int) -> str:
    """Milliseconds, with decimals only where there are some."""
    whole, rest = divmod(time_ns, _NS_PER_MS)
    return f"{whole}.{rest:06d}".rstrip("0") if rest else str(whole)


# -- inside ------------------------------------------------------------------------------------------------------------


def _columns(row: list[str], line: int) -> list[int | None]:
    """Where time_ms, method and count stand: by the header, or in that order when the first row is data."""
    if row[0] not in INPUT_COLUMNS:
        if _TIME.fullmatch(row[0]) is None:
            raise RowError(line, "header", ",".join(row), COLUMNS_FORM)
        return [0, 1, 2 if len(row) > 2 else None]
    unknown = [name for name in row if name not in INPUT_COLUMNS]
    if unknown or len(set(row)) != len(row) or not {"time_ms", "method"} <= set(row):
        raise RowError(line, "header", ",".join(row), COLUMNS_FORM)
    return [row.index(name) if name in row else None for name in INPUT_COLUMNS]


def _event(row: list[str], columns: list[int | None], line: int) -> Event:
    width = len(columns) - columns.count(None)
    if len(row) != width:
        raise RowError(line, "row", ",".join(row), f"{width} cells, as in the first line")
    time_at, method_at, count_at = columns
    assert time_at is not None
    assert method_at is not None
    time_ns = parse_ms(row[time_at])
    if time_ns is None:
        raise RowError(line, "time_ms", row[time_at], TIME_FORM)
    method = row[method_at]
    if not is_method(method):
        raise RowError(line, "method", method, METHOD_FORM)
    if count_at is None:
        return Event(time_ns, method, 1, row[time_at])
    if _COUNT.fullmatch(row[count_at]) is None:
        raise RowError(line, "count", row[count_at], COUNT_FORM)
    return Event(time_ns, method, int(row[count_at]), row[time_at])
