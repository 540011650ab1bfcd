"""SIGINT while code is still being loaded: the process ends at once, without a traceback; nothing is begun yet."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from typing import NoReturn

#: 128 + SIGINT, as a shell tells it.
INTERRUPTED = 130


@contextmanager
def loading() -> Iterator[None]:
    """For imports only. No exception: some compiled modules lose one that comes while they begin."""
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler or current_thread() is not main_thread():
        # Ignored, or somebody else's; Python tells the main thread alone.
        yield
        return
    signal.signal(signal.SIGINT, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _end(*_: object) -> NoReturn:
    os._exit(INTERRUPTED)
