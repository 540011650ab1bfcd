"""The entry point of `sipguard` and `python -m sipguard`."""

from __future__ import annotations

from sipguard.cli.loading import loading


def main() -> None:
    """Load the commands, then run the one asked for."""
    with loading():
        from sipguard.cli.main import main as run
    run()
