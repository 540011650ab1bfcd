"""A study's result as one HTML file that needs nothing else: the picture is in it, no script, no address."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from sipguard.core.levels import State
from sipguard.lab.course import MAX_CHANGES, Course
from sipguard.lab.outcome import metrics_of, setting, varied
from sipguard.lab.plots import PlotError, draw_run
from sipguard.lab.shares import Share
from sipguard.lab.study import Study
from sipguard.shown import cut, duration, shown

#: Incidents in the page.
MAX_INCIDENTS = 200
#: More changes than this are drawn from the timeline.
_MAX_DRAWN = min(400, MAX_CHANGES)

_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;color:#22303c;max-width:72rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.5rem}h2{font-size:1.1rem;margin-top:2rem}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{padding:.25rem .8rem;border-bottom:1px solid #d9dee2;text-align:right}
th:first-child,td:first-child{text-align:left}th{color:#5a6772;font-weight:600}
figure{margin:1rem 0}figure svg{width:100%;height:auto}.note{color:#5a6772}.scroll{overflow-x:auto}
@media(prefers-color-scheme:dark){body{background:#10161b;color:#dfe6ec}th,.note{color:#9aa7b2}th,td{border-color:#2c3842}
figure{background:#fff;border-radius:6px}}
"""


def page(
    study: Study,
    title: str,
    facts: Sequence[tuple[str, str]],
    damages: Sequence[str],
    remarks: Sequence[str] = (),
) -> str:
    """The report. facts: name and value of what is to be said of the input. remarks: what is to be read first."""
    course = study.main
    parts = [
        f"<h1>{_text(title)}</h1>",
        *(f"<p><strong>{_text(remark)}</strong></p>" for remark in remarks),
        _table(("input", ""), facts),
        "<h2>Over time</h2>",
        _picture(course, title),
        "<h2>Totals</h2>",
        _table(("", ""), _totals(course)),
    ]
    if len(study.courses) > 1:
        parts += ["<h2>What if</h2>", _what_if(study.courses)]
    parts += ["<h2>By method</h2>", _shares("method", course.methods.top())]
    assert course.sources is not None
    sources = [share for share in course.sources.top() if share.name]
    if sources:
        note = "" if course.sources.exact else '<p class="note">Very many sources: the counts are approximate.</p>'
        parts += ["<h2>By source</h2>", note, _shares("source", sources)]
    parts += ["<h2>Incidents</h2>", _incidents(course)]
    if damages:
        parts += ["<h2>Not readable</h2>", _table(("where and why",), [(text,) for text in damages])]
    body = "\n".join(parts)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{_text(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>\n<body>\n{body}\n</body></html>\n'
    )


def picture(course: Course, suffix: str, title: str) -> bytes:
    """A course's picture. suffix: .png or .svg. Raises PlotError, OSError."""
    changes = course.changes if course.changes_total <= _MAX_DRAWN else course.timeline.changes()
    # A character that the font lacks is a box, and no reason to write to the terminal.
    with tempfile.TemporaryDirectory() as directory, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        path = Path(directory) / f"run{suffix}"
        draw_run(course.timeline.samples(), changes, course.parameters, path, title)
        return path.read_bytes()


def _picture(course: Course, title: str) -> str:
    try:
        text = picture(course, ".svg", title).decode("utf-8")
    except PlotError as error:
        return f'<p class="note">{_text(str(error))}</p>'
    # From the element on: the XML and DTD lines before it have no place within HTML.
    return f"<figure>{text[text.index('<svg') :]}</figure>"


def _totals(course: Course) -> Iterable[tuple[str, str]]:
    values = metrics_of(course)
    would = "" if course.policy.enforce else " (shadow: would have been)"
    yield "requests", f"{course.requests:,}"
    yield "admitted" + would, f"{int(values['allowed']):,}"
    yield "refused with 503" + would, f"{int(values['refused']):,} ({values['refused_percent']:.2f} %)"
    yield "of these by LCPS, in the normal state", f"{course.lcps_refused:,}"
    yield "dropped silently" + would, f"{int(values['dropped']):,} ({values['dropped_percent']:.2f} %)"
    yield "highest RPS of a cycle", f"{course.peak_rps:,}"
    for state in State:
        yield f"time in {state.value}", f"{duration(course.state_ns[state])}"
    yield "state at the end", course.state.value


def _what_if(courses: Sequence[Course]) -> str:
    names = varied(courses)
    head = (*names, "admitted", "refused", "dropped", "incidents", "peak RPS", "503, s", "drop, s", "state at the end")
    rows = []
    for course in courses:
        values = metrics_of(course)
        counts = (f"{int(values[name]):,}" for name in ("allowed", "refused", "dropped", "incidents", "peak_rps"))
        times = (f"{values[name]:.1f}" for name in ("around_s", "critical_s"))
        rows.append((*(str(setting(course, name)) for name in names), *counts, *times, course.state.value))
    return _table(head, rows)


def _shares(what: str, shares: Iterable[Share]) -> str:
    rows = [(cut(shown(s.name)), f"{s.requests:,}", f"{s.allow:,}", f"{s.reject:,}", f"{s.drop:,}") for s in shares]
    return _table((what, "requests", "admitted", "refused", "dropped"), rows)


def _incidents(course: Course) -> str:
    found = course.incidents.all()
    if not found:
        return '<p class="note">None: the state was normal throughout.</p>'
    rows = [
        (
            f"{each.start_ns / 1e9:.1f}",
            "goes on" if each.end_ns is None else f"{each.end_ns / 1e9:.1f}",
            f"{each.peak_rps:,}",
            f"{each.refused:,}",
            f"{each.dropped:,}",
            each.worst.value,
        )
        for each in found[:MAX_INCIDENTS]
    ]
    more = course.incidents.total - len(rows)
    note = f'<p class="note">{more:,} more are not shown.</p>' if more > 0 else ""
    return _table(("from, s", "to, s", "peak RPS", "refused", "dropped", "worst state"), rows) + note


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    top = "".join(f"<th>{_text(cell)}</th>" for cell in head)
    body = "\n".join("<tr>" + "".join(f"<td>{_text(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    header = f"<thead><tr>{top}</tr></thead>" if any(head) else ""
    return f'<div class="scroll"><table>{header}<tbody>\n{body}\n</tbody></table></div>'


def _text(text: str) -> str:
    """As text of the page, whatever it is."""
    return escape(shown(text))
