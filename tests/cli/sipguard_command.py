"""The command as a user runs it: a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple


class Ran(NamedTuple):
    """How it ended and what it said."""

    code: int
    out: str
    err: str


def sipguard(*arguments: str | Path, stdin: bytes = b"") -> Ran:
    """Run `python -m sipguard` with these arguments, without colours, bounded in time."""
    done = subprocess.run(
        [sys.executable, "-m", "sipguard", *map(str, arguments)],
        input=stdin,
        capture_output=True,
        timeout=60,
        check=False,
        env={**os.environ, "NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "100", "PYTHONIOENCODING": "utf-8"},
    )
    return Ran(done.returncode, done.stdout.decode("utf-8"), done.stderr.decode("utf-8"))
