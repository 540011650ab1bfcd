"""What the edge counts: what could not be read, sent, accepted or kept. One name each, a closed set."""

from __future__ import annotations


class EdgeCounters(dict[str, int]):
    """Counts by name."""

    def add(self, name: str, n: int = 1) -> None:
        self[name] = self.get(name, 0) + n
