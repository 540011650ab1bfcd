"""The result in the terminal, for machines, and as a configuration file."""

from __future__ import annotations

import textwrap
from typing import Any, NamedTuple

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sipguard.core.policy import Policy
from sipguard.lab.tune import reasons as why
from sipguard.lab.tune.choice import Choice, thinned
from sipguard.lab.tune.figures import Figures, Load, Tried
from sipguard.lab.tune.space import NAMES

#: Rows of the front in the terminal.
MAX_ROWS = 12
_WIDTH = 100
#: Of LCDM, for narrow columns.
_SHORT: dict[int | str, str] = {"denial_to_drop": "to_drop", "denial_only": "denial", "drop_only": "drop"}


class Advice(NamedTuple):
    """A search's whole result. trials: asked for; tried: every candidate, in the order of trying."""

    load: Load
    choice: Choice
    reasons: list[why.Reason]
    trials: int
    seed: int
    tried: list[Tried]
    policy: Policy


def print_advice(advice: Advice, console: Console) -> None:
    """The front, the recommended set, what it would have done, and why."""
    choice = advice.choice
    for line in why.about(advice.load, choice.recommended):
        console.print(line, highlight=False)
    console.print(f"storms: {_storms(advice.load)}", highlight=False)
    console.print(_front(choice))
    console.print(Text.assemble(("recommended", "bold"), f", the best for {choice.objective}:"), highlight=False)
    console.print(_values(choice.recommended), highlight=False)
    console.print(_figures(choice.recommended.figures, advice.load.kind))
    table = Table("value", "why", box=box.SIMPLE_HEAD, title="why", title_justify="left")
    for reason in advice.reasons:
        table.add_row(f"{reason.name} {reason.value}", str(reason))
    console.print(table)
    for line in why.trades(choice):
        console.print(line, highlight=False)


def document(advice: Advice) -> dict[str, Any]:
    """The same for machines."""
    load, choice = advice.load, advice.choice
    return {
        "format": "sipguard-tune/1",
        "load": {
            "kind": load.kind,
            "name": load.name,
            "capacity": load.capacity,
            "duration_s": load.duration_s,
            "storms_s": [list(storm) for storm in load.storms],
        },
        "objective": choice.objective.value,
        "trials": advice.trials,
        "seed": advice.seed,
        "tried": len(advice.tried),
        "recommended": _tried(choice.recommended),
        "front": [_tried(each) for each in choice.front],
        "reasons": [{**reason._asdict(), "others": list(reason.others)} for reason in advice.reasons],
        "trades": why.trades(choice),
    }


def toml(advice: Advice) -> str:
    """A configuration that `sipguard check` accepts: the recommended law, its reasons as comments."""
    load, chosen = advice.load, advice.choice.recommended
    lines = _comment(
        f"The law for {load.name}, by sipguard tune: the best for {advice.choice.objective} of {len(advice.tried)} candidates "
        f"(seed {advice.seed}) before servers of {load.capacity:g}/s. There: {why.outcome_text(chosen.figures)}."
    )
    lines += [line for text in why.about(load, chosen) for line in _comment(text)]
    for reason in advice.reasons:
        value = f'"{reason.value}"' if isinstance(reason.value, str) else str(reason.value)
        lines += ["", *_comment(reason.means), f"{reason.name.lower()} = {value}"]
    for key, methods in (
        ("refuse_methods", advice.policy.refuse_methods),
        ("drop_methods", advice.policy.drop_methods),
    ):
        if methods != getattr(Policy(), key):
            lines += ["", f"{key} = [" + ", ".join(f'"{method}"' for method in sorted(methods)) + "]"]
    return "\n".join(lines) + "\n"


# -- inside ------------------------------------------------------------------------------------------------------------


def _tried(each: Tried) -> dict[str, Any]:
    return {"values": each.candidate.as_dict(), "figures": each.figures.as_dict()}


def _comment(text: str) -> list[str]:
    # A name may hold anything; a comment is one line.
    return textwrap.wrap(" ".join(text.split()), _WIDTH, initial_indent="# ", subsequent_indent="# ")


def _storms(load: Load) -> str:
    if not load.storms:
        return "none"
    shown = [
        f"from {begin:g} s, without end" if end is None else f"{begin:g} … {end:g} s" for begin, end in load.storms[:8]
    ]
    return ", ".join(shown) + (f" and {len(load.storms) - 8} more" if len(load.storms) > 8 else "")


def _front(choice: Choice) -> Table:
    rows = thinned(choice.front, MAX_ROWS)
    title = f"Pareto front ({len(rows)} of {len(choice.front)}): goodput, share shed, recovery"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 0, 0, 1), pad_edge=False)
    for column in ("good %", "shed %", "rec. s", "alarms", *NAMES):
        table.add_column(column, justify="right", no_wrap=True)
    for each in rows:
        figures, values = each.figures, each.candidate.as_dict()
        table.add_row(
            f"{100 * figures.goodput:.1f}",
            f"{100 * figures.shed:.1f}",
            "–" if figures.recover_s is None else f"{figures.recover_s:.1f}",
            str(figures.alarms),
            *(_SHORT.get(values[name], str(values[name])) for name in NAMES),
        )
    return table


def _values(chosen: Tried) -> str:
    return "  " + "  ".join(f"{name} {value}" for name, value in chosen.candidate.as_dict().items())


def _figures(figures: Figures, kind: str) -> Table:
    beyond = "overload: passed beyond capacity" if kind == "capture" else "wasted in the servers"
    wanted = "of what could be served" if kind == "capture" else "of what was wanted"
    rows = (
        ("offered", f"{figures.offered:,}"),
        ("refused with 503", f"{figures.refused:,}" + _by_lcps(figures)),
        ("dropped silently", f"{figures.dropped:,}"),
        ("passed", f"{figures.passed:,}"),
        ("served", f"{figures.served:,} ({100 * figures.served / max(figures.wanted, 1):.1f} % {wanted})"),
        (beyond, f"{figures.wasted:,}"),
        ("goodput, share shed", f"{100 * figures.goodput:.1f} %, {100 * figures.shed:.1f} %"),
        *([] if figures.setup_p99_s is None else [("set-up delay, 99 %", _seconds(figures.setup_p99_s))]),
        ("shed outside storms", f"{figures.needless:,}"),
        ("normal, 503, silent", f"{figures.normal_s:.1f} s, {figures.around_s:.1f} s, {figures.critical_s:.1f} s"),
        ("alarms, false ones", f"{figures.alarms}, {figures.false_alarms}"),
        ("time to detect", _seconds(figures.detect_s)),
        ("time to recover", _seconds(figures.recover_s)),
    )
    table = Table("it would have", "", box=box.SIMPLE_HEAD)
    for row in rows:
        table.add_row(*row)
    return table


def _by_lcps(figures: Figures) -> str:
    return f" (by LCPS {figures.by_lcps:,})" if figures.by_lcps else ""


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f} s"
