"""A table keyed by remote data: it has a cap on entries and on bytes, and forgets the oldest first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class BoundedTable(Generic[K, V]):
    """Insertion-ordered mapping of at most max_entries entries that weigh at most max_bytes together.

    `evicted`: entries forgotten to make room, whole life. The newest entry always stays, even when it alone is over
    max_bytes (a message is at most 64 KiB).
    """

    __slots__ = ("_entries", "_weight", "_weights", "evicted", "max_bytes", "max_entries")

    def __init__(self, max_entries: int, max_bytes: int) -> None:
        if max_entries < 1 or max_bytes < 1:
            raise ValueError(f"max_entries = {max_entries}, max_bytes = {max_bytes}: both are at least 1")
        self.max_entries = max_entries
        self.max_bytes = max_bytes
        self.evicted = 0
        # Not a dict: the first key of one that lost many is found by walking over what they left behind.
        self._entries: OrderedDict[K, V] = OrderedDict()
        self._weights: dict[K, int] = {}
        self._weight = 0

    def __repr__(self) -> str:
        return f"<BoundedTable {len(self._entries)}/{self.max_entries} {self._weight}/{self.max_bytes} B>"

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[V]:
        return iter(self._entries.values())

    def get(self, key: K) -> V | None:
        """The entry, or None."""
        return self._entries.get(key)

    def put(self, key: K, value: V, weight: int) -> list[V]:
        """Add or replace an entry of `weight` bytes as the newest; returns those forgotten for it, oldest first."""
        self.pop(key)
        self._entries[key] = value
        self._weights[key] = weight
        self._weight += weight
        forgotten: list[V] = []
        while len(self._entries) > self.max_entries or (self._weight > self.max_bytes and len(self._entries) > 1):
            oldest = self.pop(next(iter(self._entries)))
            assert oldest is not None
            forgotten.append(oldest)
        self.evicted += len(forgotten)
        return forgotten

    def pop(self, key: K) -> V | None:
        """Take an entry out; None when there is none."""
        value = self._entries.pop(key, None)
        if value is not None:
            self._weight -= self._weights.pop(key)
        return value

    def oldest(self) -> tuple[K, V] | None:
        """The entry that would be forgotten next."""
        return next(iter(self._entries.items()), None)
