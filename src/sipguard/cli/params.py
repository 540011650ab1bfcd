"""`sipguard params`: the six parameters, in the words of the source."""

from __future__ import annotations

import json
from typing import Annotated, Literal, NamedTuple

import typer

from sipguard.core.parameters import TERMS, Lcdm, Term

Language = Literal["en", "ru"]


class Words(NamedTuple):
    """One parameter's name and what is counted by it."""

    term: str
    unit: str
    note: str


#: The customer's own terms and units; the notes are ours.
RUSSIAN = {
    "LC": Words(
        "Порог критического уровня",
        "количество запросов в секунду",
        "При превышении данного порога считается, что система перегружена",
    ),
    "LCDM": Words(
        "Режим сброса при критическом уровне",
        "режим",
        "Режим обработки входящей SIP-сигнализации при достижении порога критического уровня",
    ),
    "LCPS": Words(
        "Критический лимит в секунду",
        "количество запросов в секунду",
        "Жесткий порог прироста количества запросов в текущей секунде относительно предыдущей",
    ),
    "LRC": Words(
        "Коэффициент снятия ограничения",
        "коэффициент (или количество циклов)",
        "LRC * TR миллисекунд: сколько нагрузка должна находиться ниже порога LC до возврата в normal",
    ),
    "PC": Words(
        "Коэффициент времени терпения",
        "коэффициент (или количество циклов)",
        "PC * TR миллисекунд: сколько нагрузка должна непрерывно превышать LC до тихого drop; только denial_to_drop",
    ),
    "TR": Words(
        "Период опроса CPS", "миллисекунды", "С каким периодом проверяется текущее количество запросов в секунду"
    ),
}
ENGLISH = {
    "LC": "Past this rate the system is overloaded",
    "LCDM": "What becomes of requests past LC: 503 then silent drop, 503 only, silent drop only",
    "LCPS": "Growth over the last second past which requests get 503 at once, in the normal state",
    "LRC": "How long the rate must stay below LC before the critical state ends",
    "PC": "How long 503 lasts, with the rate above LC, before the silent drop; denial_to_drop only",
    "TR": "How often the rate is measured",
}
_HEADINGS = {
    "en": ("Name", "Term", "Unit", "Range", "Default", "Meaning"),
    "ru": ("Имя", "Термин", "Единица", "Диапазон значений", "По умолчанию", "Смысл"),
}


def register(app: typer.Typer) -> None:
    """Make it a command of `app`."""
    app.command("params", epilog="Example: sipguard params --lang ru")(params)


def params(
    lang: Annotated[Language, typer.Option(help="en, or ru: the customer's own terms.")] = "en",
    as_json: Annotated[bool, typer.Option("--json", help="JSON, for programs.")] = False,
) -> None:
    """Show LC, LCDM, LCPS, LRC, PC, TR: terms, ranges, units and defaults."""
    rows = [record(term, lang) for term in TERMS]
    if as_json:
        typer.echo(json.dumps(rows, ensure_ascii=False, indent=2))
        return
    _print_table(rows, lang)


def record(term: Term, lang: Language) -> dict[str, object]:
    """One parameter as plain values; `range` as the source writes it."""
    words = RUSSIAN[term.name] if lang == "ru" else Words(term.long_name, term.unit, ENGLISH[term.name])
    values = list(map(str, Lcdm)) if term.name == "LCDM" else [term.low, term.high]
    joined = (" | " if term.name == "LCDM" else ", ").join(map(str, values))
    return {
        "name": term.name,
        "long_name": term.long_name,
        "term": words.term,
        "unit": words.unit,
        "values" if term.name == "LCDM" else "bounds": values,
        "range": f"[{joined}]",
        "default": term.default,
        "meaning": words.note,
    }


def _print_table(rows: list[dict[str, object]], lang: Language) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(show_lines=True)
    for heading in _HEADINGS[lang]:
        table.add_column(heading, overflow="fold")
    for row in rows:
        name = f"{row['name']}\n{row['long_name']}" if lang == "ru" else row["name"]
        cells = (name, row["term"], row["unit"], row["range"], row["default"], row["meaning"])
        # Text, not markup: a range in brackets would read as a style.
        table.add_row(*(Text(str(cell)) for cell in cells))
    console = Console()
    # A pipe has no width to keep to: nothing is folded that a script may look for.
    console = console if console.is_terminal else Console(width=240)
    console.print(table)
