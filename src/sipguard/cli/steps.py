"""How far a long computation is: a bar on a terminal, elsewhere a line now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer

from sipguard.shown import duration

#: Between the lines of a standard error that is no terminal; what is ready sooner says nothing.
LINE_EVERY_S = 15.0

#: Told how much is done and how much there will be, as far as that is known.
Told = Callable[[float, float], None]


@contextmanager
def steps(label: str) -> Iterator[Told]:
    """Progress on standard error while it lasts."""
    if sys.stderr is not None and sys.stderr.isatty():
        with _bar(label) as told:
            yield told
    else:
        yield Lines(label)


class Lines:
    """Progress as lines: how much, how long it took, how long it may still take."""

    def __init__(self, label: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._label = label
        self._clock = clock
        self._begun_s = self._said_s = clock()

    def __call__(self, done: float, total: float) -> None:
        now_s = self._clock()
        if now_s - self._said_s < LINE_EVERY_S or not done:
            return
        self._said_s = now_s
        taken_s = now_s - self._begun_s
        left_s = taken_s * max(total - done, 0) / done
        times = f"{_words(taken_s)} so far, about {_words(left_s)} left"
        typer.echo(f"{self._label}: {done:.0f} of {max(done, total):.0f}, {times}", err=True)


@contextmanager
def _bar(label: str) -> Iterator[Told]:
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = (*Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label)
        yield lambda done, total: bar.update(task, completed=round(done), total=round(total))


def _words(seconds: float) -> str:
    return duration(round(seconds) * 1_000_000_000)
