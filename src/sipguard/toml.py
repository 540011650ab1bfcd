"""TOML from outside: whatever is wrong with it is one kind of error."""

from __future__ import annotations

import tomllib
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

#: A file of settings is a few KiB; an endless one (a device) must not fill the memory.
MAX_BYTES = 16 << 20


class TomlError(ValueError):
    """The text is no TOML that can be used; why, in words."""


def read_toml(path: Path | Traversable) -> dict[str, Any]:
    """The tables of a file. Raises OSError when it cannot be read, TomlError when it is no TOML."""
    with path.open("rb") as file:
        data = file.read(MAX_BYTES + 1)
    try:
        if len(data) > MAX_BYTES:
            raise ValueError(f"more than {MAX_BYTES} bytes")
        return tomllib.loads(data.decode())
    except RecursionError:
        raise TomlError("nested too deeply") from None
    except ValueError as error:
        # TOMLDecodeError, UnicodeDecodeError, and Python's own limit on the digits of an integer.
        raise TomlError(str(error)) from None
