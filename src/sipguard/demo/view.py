"""What is seen while it runs: a live panel in a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections import deque
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from sipguard.core.levels import State
from sipguard.demo.performance import Moment
from sipguard.demo.walk import OVERLOAD, PARAMETERS, WALK, Step

_COLORS = {State.NORMAL.value: "green", State.AROUND.value: "yellow", State.CRITICAL.value: "red"}
_DOES = {
    State.NORMAL.value: "everything is served",
    State.AROUND.value: "refused with 503",
    State.CRITICAL.value: "dropped silently",
}
_BLOCKS = " ▁▂▃▄▅▆▇█"
_WIDTH = 56
# The right end of the bars: the overload with some room.
_FULL = OVERLOAD * 1.15


class View(Protocol):
    """Told of each step and each moment; a context, so that the terminal is left as it was found."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def step(self, step: Step, at_s: float) -> None:
        """A step begins. at_s: since the guard's start."""

    def moment(self, moment: Moment) -> None:
        """A new reading."""


class PlainView:
    """A line for each step, each change of state and each second."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._state = State.NORMAL.value
        self._next_s = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def step(self, step: Step, at_s: float) -> None:
        """One line with the step's title and rate."""
        self._say(f"{at_s:5.1f} s  == {step.title} ({step.rate}/s)")

    def moment(self, moment: Moment) -> None:
        """One line a second, and one at each change."""
        state = moment.reading.state
        if state == self._state and moment.elapsed_s < self._next_s:
            return
        self._state = state
        self._next_s = moment.elapsed_s + 1.0
        sample = moment.sample
        self._say(
            f"{moment.elapsed_s:5.1f} s  {state:<21} RPS {moment.reading.rps:>4} (LC {PARAMETERS.LC})  "
            f"admitted {sample.admitted:4.0f}/s  503 {sample.refused:4.0f}/s  dropped {sample.dropped:4.0f}/s"
        )

    def _say(self, line: str) -> None:
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)


class LiveView:
    """A panel that is drawn anew at each reading; no thread of its own."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._history: deque[tuple[float, str]] = deque(maxlen=_WIDTH)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def step(self, step: Step, at_s: float) -> None:
        """Shown with the next moment."""

    def moment(self, moment: Moment) -> None:
        """Draw."""
        self._history.append((moment.sample.offered, moment.reading.state))
        self._live.update(self._panel(moment), refresh=True)

    def _panel(self, moment: Moment) -> RenderableType:
        color = _COLORS[moment.reading.state]
        state = Text.assemble(
            ("  ", ""),
            (f" {moment.reading.state} ", f"bold black on {color}"),
            (f"  {_DOES[moment.reading.state]}", color),
            (_run(moment), "dim"),
        )
        parts: list[RenderableType] = [
            _steps(moment.step),
            Text(),
            state,
            Text(),
            self._rates(moment),
            Text(),
            _clients(moment),
        ]
        return Panel(
            Group(*parts),
            title=f"[bold]sipguard demo[/bold]  {moment.elapsed_s:.1f} s",
            subtitle="[dim]Ctrl-C ends it[/dim]",
            border_style=color,
            width=88,
        )

    def _rates(self, moment: Moment) -> Table:
        table = Table.grid(padding=(0, 1))
        table.add_column(width=12, justify="right")
        table.add_column(width=_WIDTH)
        table.add_column(justify="right")
        sample, rps = moment.sample, moment.reading.rps
        over = rps > PARAMETERS.LC
        table.add_row("last 11 s", self._sparkline(), "")
        table.add_row("RPS", _bar(rps, "red" if over else "green"), f"{rps}/s")
        table.add_row("", Text(" " * (_place(PARAMETERS.LC) - 1) + f"^ LC {PARAMETERS.LC}", "magenta"), "")
        table.add_row("admitted", _bar(sample.admitted, "green", limit=False), f"{sample.admitted:.0f}/s")
        table.add_row("503", _bar(sample.refused, "yellow", limit=False), f"{sample.refused:.0f}/s")
        table.add_row("dropped", _bar(sample.dropped, "red", limit=False), f"{sample.dropped:.0f}/s")
        return table

    def _sparkline(self) -> Text:
        line = Text()
        for rate, state in self._history:
            level = min(len(_BLOCKS) - 1, round(rate / _FULL * (len(_BLOCKS) - 1)))
            line.append(_BLOCKS[max(1, level)], _COLORS[state])
        return line


def _place(rate: float) -> int:
    return max(0, min(_WIDTH, round(rate / _FULL * _WIDTH)))


def _bar(rate: float, color: str, *, limit: bool = True) -> Text:
    filled = _place(rate) or (1 if rate > 0 else 0)
    bar = Text("█" * filled, color)
    bar.append("·" * (_WIDTH - filled), "dim")
    if limit:
        bar.stylize("magenta", _place(PARAMETERS.LC) - 1, _place(PARAMETERS.LC))
    return bar


def _run(moment: Moment) -> str:
    reading = moment.reading
    if reading.relax_run:
        return f"   calm: relax run {reading.relax_run} of LRC {PARAMETERS.LRC}"
    if reading.state == State.AROUND.value:
        return f"   patience run {reading.patience_run} of PC {PARAMETERS.PC}"
    return ""


def _steps(current: Step) -> Text:
    text = Text()
    at = WALK.index(current)
    for i, step in enumerate(WALK):
        mark, style = ("✓", "dim") if i < at else ("▶", "bold") if i == at else ("·", "dim")
        text.append(f"  {mark} {step.title}\n", style)
    text.rstrip()
    return text


def _clients(moment: Moment) -> Text:
    tally = moment.tally
    kernel = moment.reading.kernel_dropped
    text = Text.assemble(
        ("  clients: ", "dim"),
        f"{tally.total('sent')} sent   {tally.total('ok')} × 2xx   {tally.total('refused')} × 503   ",
        f"{tally.total('none')} unanswered",
    )
    if kernel:
        text.append(f"\n  the kernel's filter dropped {kernel} of {moment.reading.dropped}", "dim")
    return text
