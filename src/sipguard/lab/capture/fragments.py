"""IP fragments put together again (RFC 791 3.2, RFC 8200 4.5), in bounded memory."""

from __future__ import annotations

from collections import OrderedDict

from sipguard.lab.capture.ip import Datagram

#: How long a datagram waits for its missing fragments, by the capture's own time (Linux: 30 s).
TIMEOUT_NS = 30_000_000_000
MAX_DATAGRAMS = 4096
#: Load held back in all, bytes.
MAX_BYTES = 16 << 20
#: The longest load an IP packet can have.
MAX_LOAD = 65535

_Key = tuple[bytes, bytes, int, int]


class _Partial:
    __slots__ = ("parts", "protocol", "since_ns", "size", "total")

    def __init__(self, since_ns: int) -> None:
        self.since_ns = since_ns
        self.parts: dict[int, bytes] = {}
        self.size = 0
        self.total: int | None = None
        self.protocol = 0


class Reassembler:
    """Fragments in, whole loads out; the oldest unfinished datagram gives way when there are too many.

    incomplete: datagrams given up for time, space or nonsense.
    """

    __slots__ = ("_bytes", "_partials", "incomplete")

    def __init__(self) -> None:
        self._partials: OrderedDict[_Key, _Partial] = OrderedDict()
        self._bytes = 0
        self.incomplete = 0

    def __len__(self) -> int:
        return len(self._partials)

    def add(self, fragment: Datagram, load: bytes, now_ns: int) -> tuple[int, bytes] | None:
        """Protocol and load of the datagram that this fragment completes. A copy of a fragment changes nothing."""
        assert fragment.identity is not None
        self._expire(now_ns)
        # IPv6 fragments after the first name the protocol too, but of the first header: only the first one's counts.
        version_protocol = fragment.protocol if len(fragment.source) == 4 else -1
        key = (fragment.source, fragment.destination, fragment.identity, version_protocol)
        partial = self._partials.get(key)
        if partial is None:
            partial = self._partials[key] = _Partial(now_ns)
        if not self._accept(partial, fragment, load):
            self._drop(key)
            return None
        if partial.total is not None and partial.size >= partial.total:
            whole = _joined(partial)
            if whole is None:
                # As many bytes as it takes, and yet a gap: fragments that overlap. Linux gives such a datagram up as well.
                self._drop(key)
                return None
            self._forget(key)
            return partial.protocol, whole
        while len(self._partials) > MAX_DATAGRAMS or self._bytes > MAX_BYTES:
            self._drop(next(iter(self._partials)))
        return None

    def _accept(self, partial: _Partial, fragment: Datagram, load: bytes) -> bool:
        """Keep the fragment; False when it cannot belong to any datagram."""
        end = fragment.first + len(load)
        if end > MAX_LOAD or (fragment.more and not load):
            return False
        if not fragment.more:
            if partial.total is not None and partial.total != end:
                return False
            partial.total = end
        if partial.total is not None and end > partial.total:
            return False
        if fragment.first == 0:
            partial.protocol = fragment.protocol
        held = partial.parts.get(fragment.first)
        if held is None or len(held) < len(load):
            grown = len(load) - (len(held) if held else 0)
            partial.parts[fragment.first] = load
            partial.size += grown
            self._bytes += grown
        return True

    def _expire(self, now_ns: int) -> None:
        while self._partials:
            key, partial = next(iter(self._partials.items()))
            if now_ns - partial.since_ns < TIMEOUT_NS:
                return
            self._drop(key)

    def _drop(self, key: _Key) -> None:
        self.incomplete += 1
        self._forget(key)

    def _forget(self, key: _Key) -> None:
        self._bytes -= self._partials.pop(key).size


def _joined(partial: _Partial) -> bytes | None:
    """The load, when nothing is missing; where fragments overlap the one that begins earlier stands."""
    parts: list[bytes] = []
    reached = 0
    for first in sorted(partial.parts):
        if first > reached:
            return None
        part = partial.parts[first][reached - first :]
        parts.append(part)
        reached += len(part)
    return b"".join(parts) if reached == partial.total else None
