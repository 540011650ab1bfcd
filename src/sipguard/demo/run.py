"""`sipguard demo`: the guard's main job, visible, in about half a minute, on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import tempfile
from pathlib import Path

from rich.console import Console

from sipguard.demo.performance import Performance
from sipguard.demo.report import clients_table, draw, missing, states_table
from sipguard.demo.subject import DemoError
from sipguard.demo.view import LiveView, PlainView, View
from sipguard.lab.plots import PlotError

PICTURE = "demo.png"
LOG = "guard.log"
_PLAIN_WIDTH = 110


def run_demo(out: Path, live: bool = True) -> int:
    """Play the walk, show it, draw it, judge it.

    out: directory for the picture and the guard's log, made when missing. live: the moving view where there is a terminal.
    Returns the exit code: 0; 1 when the run did not show what it should, with what is missing said; 2 when out cannot be
    written; 128 + the signal that ended it. No child process is left in any case.
    """
    console = Console()
    if not console.is_terminal:
        console = Console(width=_PLAIN_WIDTH)
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / LOG).write_text("")
    except OSError as error:
        console.print(f"sipguard demo: out = {out}: {error.strerror}", markup=False)
        return 2
    view: View = LiveView(console) if live and console.is_terminal else PlainView(console)
    with tempfile.TemporaryDirectory(prefix="sipguard-demo-") as state_dir:
        performance = Performance(Path(state_dir), out / LOG, on_step=view.step, on_moment=view.moment)
        try:
            with view:
                ended_by = asyncio.run(_play(performance))
        except DemoError as error:
            console.print(f"sipguard demo: {error}", markup=False, highlight=False)
            return 1
    if ended_by is not None:
        console.print("sipguard demo: ended before its time; nothing is left running")
        return 128 + ended_by
    return _conclude(performance, out, console)


async def _play(performance: Performance) -> int | None:
    """The signal that ended it, or None when it came to its end."""
    received: list[int] = []
    playing = asyncio.ensure_future(performance.play())

    def end(number: int) -> None:
        received.append(number)
        playing.cancel()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # Not in the main thread: then signals are another's business.
        with contextlib.suppress(ValueError, RuntimeError):
            loop.add_signal_handler(number, end, number)
    try:
        await playing
    except asyncio.CancelledError:
        if not received:
            raise
        return received[0]
    return None


def _conclude(performance: Performance, out: Path, console: Console) -> int:
    subject, recorder = performance.subject, performance.recorder
    last = recorder.last
    end_ns = last.now_ns if last is not None else subject.origin_ns
    lcps_refused = recorder.lcps_refused_between(performance.began_ns("jump"), performance.began_ns("overload"))
    console.print()
    console.print(states_table(subject.changes, subject.origin_ns, end_ns))
    console.print(clients_table(performance.tally))
    console.print(
        f"LCPS: {lcps_refused} requests of the jump refused with 503, the state stayed normal", highlight=False
    )
    if last is not None and last.dropped:
        console.print(
            f"critical_limit: {last.dropped} dropped without an answer, {last.kernel_dropped} of them by the kernel's filter",
            highlight=False,
        )
    try:
        draw(performance, out / PICTURE)
    except (PlotError, OSError) as error:
        console.print(f"no picture: {error}", markup=False)
    else:
        console.print(f"picture: {(out / PICTURE).resolve()}", markup=False, highlight=False, soft_wrap=True)
    problems = missing(subject.changes, lcps_refused)
    for problem in problems:
        console.print(f"missing: {problem}", style="bold red", markup=False, soft_wrap=True)
    return 1 if problems else 0
