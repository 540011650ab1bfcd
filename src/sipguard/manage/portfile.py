"""The inside ports the guard took by itself, kept in the state directory: they stand in Record-Route and Path, so a restart
must come back on them (DESIGN §3: a restart breaks nothing)."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

_FILE = "inside-ports.json"

#: Entries kept; guards that share a state directory have one each per transport and address.
MAX_ENTRIES = 256


def load_ports(directory: Path) -> dict[str, int]:
    """Port by name of the socket. What is not there or not readable is an empty answer: then free ports are taken."""
    with contextlib.suppress(OSError, ValueError):
        found = json.loads((directory / _FILE).read_text(encoding="utf-8"))
        if isinstance(found, dict):
            return {
                name: port
                for name, port in found.items()
                if isinstance(port, int) and not isinstance(port, bool) and 0 < port < 65536
            }
    return {}


def save_ports(directory: Path, ports: Mapping[str, int]) -> str | None:
    """Keep these beside what is kept already; None, or why it cannot be done, in a sentence."""
    known = load_ports(directory)
    kept = {**{name: port for name, port in known.items() if name not in ports}, **ports}
    if kept == known:
        return None
    while len(kept) > MAX_ENTRIES:
        del kept[next(iter(kept))]
    fresh = directory / f"{_FILE}.{os.getpid()}.new"
    try:
        fresh.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
        fresh.replace(directory / _FILE)
    except OSError as error:
        return (
            f"state_dir = {directory}: {error.strerror}; the next start takes other inside ports, and open dialogs end"
        )
    return None
