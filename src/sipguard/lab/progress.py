"""How far a long reading is: a bar with rate and time left, on a terminal only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(total: int | None, label: str) -> Iterator[Callable[[int], None] | None]:
    """A bar on standard error while it lasts. total: bytes, None when unknown. Gives what is to be told the bytes so far.

    Where standard error is no terminal there is no bar, and None to tell.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(label, total=total)

        def tell(position: int) -> None:
            bar.update(task, completed=position)

        yield tell
