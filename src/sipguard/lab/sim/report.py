"""A comparison for people: rows of figures in words, and one HTML page that needs no other file."""

from __future__ import annotations

import base64
from collections.abc import Callable
from html import escape

from sipguard.lab.sim.compare import Variant, parameters_of
from sipguard.lab.sim.scenario import Scenario
from sipguard.lab.sim.summary import Summary

Row = tuple[str, Callable[[Summary], str]]


def _count(n: float) -> str:
    return f"{n:,.0f}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g} s"


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "–"


#: What a table shows, from top to bottom.
ROWS: tuple[Row, ...] = (
    ("wanted", lambda s: _count(s.wanted)),
    ("served of it", lambda s: _share(s.served, s.wanted)),
    ("goodput in storm", lambda s: f"{s.goodput:.1f} /s"),
    ("set-up delay p50", lambda s: _seconds(s.setup_p50_s)),
    ("set-up delay p99", lambda s: _seconds(s.setup_p99_s)),
    ("messages offered", lambda s: _count(s.offered)),
    ("most in a second", lambda s: _count(s.offered_peak)),
    ("retransmissions", lambda s: f"{100 * s.retransmissions:.1f} %"),
    ("refused with 503", lambda s: _count(s.refused)),
    ("dropped silently", lambda s: _count(s.dropped)),
    ("no room in server", lambda s: _count(s.overflow)),
    ("served for nobody", lambda s: _count(s.wasted)),
    ("attempts timed out", lambda s: _count(s.timed_out)),
    ("given up for good", lambda s: _count(s.given_up)),
    ("undecided at the end", lambda s: _count(s.pending)),
    ("servers at work", lambda s: f"{100 * s.capacity_used:.1f} %"),
    ("shed before the storm", lambda s: _count(s.early)),
    ("time to detect", lambda s: _seconds(s.detect_s)),
    ("time to recover", lambda s: _seconds(s.recover_s)),
    ("oscillations", lambda s: _count(s.oscillations)),
)


def cells(variants: list[Variant]) -> list[list[str]]:
    """The table's rows: what, then one text per policy."""
    return [[label, *(text(variant.summary) for variant in variants)] for label, text in ROWS]


def caption(scenario: Scenario, variants: list[Variant], seed: int) -> str:
    """The settings in one line; the law's where there is a guard."""
    parts = [f"{scenario.duration_s:g} s", f"capacity {scenario.capacity:g}/s", f"seed {seed}"]
    law = parameters_of(variants)
    if law is not None:
        parts += [f"{name} {value}" for name, value in law.as_dict().items()]
    return ", ".join(parts)


def html(scenario: Scenario, variants: list[Variant], seed: int, png: bytes | None) -> str:
    """One page, picture inside; None: no picture (matplotlib is not installed)."""
    head = "".join(f"<th>{escape(variant.policy)}</th>" for variant in variants)
    body = "\n".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in cells(variants))
    picture = ""
    if png is not None:
        picture = f'<img alt="rates, goodput and delay over time" src="data:image/png;base64,{base64.b64encode(png).decode()}">'
    return _PAGE.format(
        title=escape(scenario.title),
        about=escape(scenario.about),
        caption=escape(caption(scenario, variants, seed)),
        head=head,
        body=body,
        picture=picture,
    )


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{title}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; color: #22303c; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; }}
table {{ border-collapse: collapse; margin: 1rem 0; }}
th, td {{ text-align: right; padding: .25rem .9rem; border-bottom: 1px solid #d9dee2; }}
th:first-child, td:first-child {{ text-align: left; }}
img {{ max-width: 100%; }}
small {{ color: #5a6772; }}
</style>
</head>
<body>
<h1>{title}</h1>
<p>{about}</p>
<p><small>{caption}</small></p>
<table><thead><tr><th></th>{head}</tr></thead>
<tbody>
{body}
</tbody></table>
{picture}
</body>
</html>
"""
