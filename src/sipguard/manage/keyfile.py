"""The key that signs branches, tags and tokens, kept in the state directory so that a restart breaks nothing (DESIGN §3)."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import time
from pathlib import Path
from typing import NamedTuple

KEY_BYTES = 32

#: How long the previous key is still accepted, from the moment its file was renamed.
PREVIOUS_ACCEPTED_S = 3600


class KeyFileError(Exception):
    """A key file that is there and cannot be used; the text names the file and what is allowed."""


class Secrets(NamedTuple):
    """current: 32 bytes. previous: the key before it, None when there is none or its hour is over. previous_for_s: what is
    left of that hour. warnings: sentences for the operator."""

    current: bytes
    previous: bytes | None
    previous_for_s: float
    warnings: tuple[str, ...]


def load_secrets(directory: Path) -> Secrets:
    """Read `key` (made when absent, mode 0600) and `key.previous` from the state directory.

    To change the key: rename `key` to `key.previous` and restart. A directory that cannot be written is no reason not to
    protect: then the key lives as long as the process, and a warning says so. Raises KeyFileError for a file that is
    there and is no key.
    """
    warnings: list[str] = []
    path = directory / "key"
    try:
        current = _read(path)
        if current is None:
            _make(path)
            current = _read(path)
        assert current is not None
    except OSError as error:
        warnings.append(
            f"state_dir = {directory}: {error.strerror}; the key is lost at the next restart, and with it open dialogs"
        )
        return Secrets(secrets.token_bytes(KEY_BYTES), None, 0.0, tuple(warnings))
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        warnings.append(f"{path}: others may read it; it should have mode 0600")
    previous, left_s = None, 0.0
    old = directory / "key.previous"
    with contextlib.suppress(OSError):
        # A rename changes the inode's ctime, not its mtime.
        left_s = PREVIOUS_ACCEPTED_S - (time.time() - old.stat().st_ctime)
        previous = _read(old) if left_s > 0 else None
    return Secrets(current, previous, max(0.0, left_s) if previous else 0.0, tuple(warnings))


def _read(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            found = file.read(KEY_BYTES + 1)
    except FileNotFoundError:
        return None
    if len(found) != KEY_BYTES:
        raise KeyFileError(
            f"{path}: allowed is exactly {KEY_BYTES} bytes, found {len(found)}{'+' * (len(found) > KEY_BYTES)}"
        )
    return found


def _make(path: Path) -> None:
    """Write whole, then link into place: two guards that start together end with one key."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_name(f"key.{os.getpid()}.new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(fresh, path)
    finally:
        fresh.unlink(missing_ok=True)
