"""SIGINT where it must not come in the middle: processes being begun, libraries being loaded."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread


@contextmanager
def interrupts_wait() -> Iterator[None]:
    """An interrupt waits until the end; processes begun meanwhile never hear one: a terminal sends it to all at once."""
    if current_thread() is not main_thread():
        # Python tells the main thread alone.
        yield
        return
    heard: list[int] = []
    # The mask is what the processes inherit. Here it is not enough: threads of libraries hear it and hand it on.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    handler = signal.signal(signal.SIGINT, lambda number, _: heard.append(number))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, handler)
        if heard:
            signal.raise_signal(signal.SIGINT)
