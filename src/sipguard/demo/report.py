"""What came of it: the states visited and when, what the clients saw, what is missing, and the picture."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from sipguard.core.levels import State
from sipguard.core.meters import SECOND_NS
from sipguard.core.parameters import Parameters
from sipguard.core.verdicts import Change
from sipguard.demo.performance import Performance
from sipguard.demo.tally import Tally
from sipguard.demo.walk import EXPECTED, PARAMETERS
from sipguard.lab.plots import Mark, Sample, draw_run


def missing(changes: Sequence[Change], lcps_refused: int) -> list[str]:
    """What the run should have shown and did not, in sentences; empty when all was there."""
    visited = [State.NORMAL, *(change.after for change in changes)]
    problems = []
    wanted = list(EXPECTED)
    for state in visited:
        if wanted and state is wanted[0]:
            wanted.pop(0)
    if wanted:
        expected = " → ".join(state.value for state in EXPECTED)
        seen = " → ".join(state.value for state in visited)
        problems.append(f"states: {expected} was to be visited; visited: {seen}")
    if lcps_refused <= 0:
        problems.append("LCPS: the jump in load brought no 503 in the normal state")
    return problems


def states_table(changes: Sequence[Change], origin_ns: int, end_ns: int, parameters: Parameters = PARAMETERS) -> Table:
    """Each state visited: when it was entered, how long it lasted, and the rule that led there; from the guard's own log."""
    table = Table(title="states, by the guard's own log", title_justify="left", title_style="bold")
    table.add_column("state")
    table.add_column("entered, s", justify="right")
    table.add_column("lasted, s", justify="right")
    table.add_column("because")
    entries = [(State.NORMAL, origin_ns, "start")]
    entries += [(change.after, change.time_ns, _because(change, parameters)) for change in changes]
    ends = [entry[1] for entry in entries[1:]] + [max(end_ns, entries[-1][1])]
    for (state, start_ns, because), finish_ns in zip(entries, ends, strict=True):
        entered_s, lasted_s = (start_ns - origin_ns) / SECOND_NS, (finish_ns - start_ns) / SECOND_NS
        table.add_row(state.value, f"{entered_s:.1f}", f"{lasted_s:.1f}", because)
    return table


def clients_table(tally: Tally) -> Table:
    """What the clients sent and got, by method."""
    table = Table(title="what the clients saw", title_justify="left", title_style="bold")
    for heading in ("method", "sent", "2xx", "503", "other", "no answer"):
        table.add_column(heading, justify="left" if heading == "method" else "right")
    for method, row in sorted(tally.rows().items()):
        silent = "–" if method == "ACK" else str(row["none"])
        table.add_row(method, str(row["sent"]), str(row["ok"]), str(row["refused"]), str(row["other"]), silent)
    return table


def draw(performance: Performance, path: Path) -> None:
    """The picture. Raises PlotError, OSError."""
    samples = performance.recorder.samples
    jump_ns, overload_ns = performance.began_ns("jump"), performance.began_ns("overload")
    draw_run(
        samples,
        performance.subject.changes,
        PARAMETERS,
        path,
        "sipguard: calm, a jump, an overload, and the way back",
        marks=_lcps_marks(samples, jump_ns, overload_ns) + _state_marks(samples, performance.subject.changes),
        origin_ns=performance.subject.origin_ns,
    )


def _lcps_marks(samples: Sequence[Sample], jump_ns: int, overload_ns: int) -> list[Mark]:
    """Points at the 503s of the jump."""
    refused = [s for s in samples if s.refused > 0 and jump_ns <= s.start_ns and s.end_ns <= overload_ns]
    if not refused:
        return []
    middle_ns = (refused[0].start_ns + refused[-1].end_ns) // 2
    top = max(sample.offered for sample in refused)
    return [Mark(middle_ns, top, "growth over LCPS:\n503, the state stays normal")]


def _state_marks(samples: Sequence[Sample], changes: Sequence[Change]) -> list[Mark]:
    """Points at what passes in a critical state, and at the calm that has to be proven."""
    marks = []
    for change, after in itertools.pairwise(changes):
        within = [s for s in samples if change.time_ns <= s.start_ns and s.end_ns <= after.time_ns]
        # The first samples still hold answers to what was admitted before.
        passed = max(within[3:], key=lambda sample: sample.admitted, default=None)
        if change.after is State.AROUND and passed is not None and passed.admitted:
            middle_ns = (passed.start_ns + passed.end_ns) // 2
            marks.append(Mark(middle_ns, passed.admitted, "ACK and BYE of running\ncalls always pass"))
        calm = [s for s in within if s.offered < change.lc]
        if after.after is State.NORMAL and calm:
            middle_ns = (calm[0].start_ns + calm[-1].end_ns) // 2
            marks.append(Mark(middle_ns, calm[-1].offered, "calm has to last\nLRC·TR first"))
    return marks


def _because(change: Change, parameters: Parameters) -> str:
    if change.after is State.NORMAL:
        return f"RPS below LC for LRC = {parameters.LRC} cycles (now {change.rps})"
    if change.before is State.AROUND:
        return f"RPS {change.rps} > LC {change.lc} for PC = {parameters.PC} cycles more"
    return f"RPS {change.rps} > LC {change.lc}"
