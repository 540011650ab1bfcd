"""Files that a command leaves: told beforehand when they cannot be written, and no result lost for half a new one."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
from collections.abc import Iterable
from pathlib import Path

from sipguard.manage.config import Problem, SettingsError


def hindrance(name: str) -> str | None:
    """Why this file cannot be written, in the system's words; None when nothing is in the way. Nothing is touched."""
    path = Path(name)
    try:
        if path.is_dir():
            return os.strerror(errno.EISDIR)
        if path.exists():
            return None if os.access(path, os.W_OK) else os.strerror(errno.EACCES)
        parent = path.resolve().parent
        if not parent.is_dir():
            return os.strerror(errno.ENOTDIR if parent.exists() else errno.ENOENT)
        if not os.access(parent, os.W_OK | os.X_OK):
            return os.strerror(errno.EACCES)
        # A name that is too long is found by asking.
        os.lstat(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        return error.strerror or str(error)
    except RuntimeError as error:  # symbolic links in a circle
        return str(error)
    return None


def write_whole(name: str, content: bytes) -> None:
    """Write a file at once. A regular one is replaced when all of it is written: a full disk costs no old result.

    Raises OSError.
    """
    path = Path(name)
    place = path.resolve()
    if path.exists() and not (path.is_file() and os.access(place.parent, os.W_OK | os.X_OK)):
        # A pipe or a device, or a file that may be written where none may be made.
        try:
            path.write_bytes(content)
        except OSError as error:
            error.filename = name
            raise
        return
    beside = place.with_name(f".sipguard-{secrets.token_hex(8)}")
    try:
        with beside.open("xb") as file:
            file.write(content)
        if place.exists():
            shutil.copymode(place, beside)
        beside.replace(place)
    except BaseException as error:
        with contextlib.suppress(OSError):
            beside.unlink()
        if isinstance(error, OSError):
            error.filename, error.filename2 = name, None
        raise


def make_directory(out: Path, names: Iterable[str]) -> None:
    """What --out says, for files of these names, before the work is done. Raises SettingsError when they cannot be written."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        why = next(filter(None, (hindrance(str(out / name)) for name in names)), None)
    except OSError as error:
        why = error.strerror or str(error)
    if why is not None:
        raise SettingsError((Problem("out", str(out), f"a directory that can be written ({why})", by_flag=True),))
