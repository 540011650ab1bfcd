"""What the edge counts: what could not be read, sent, accepted or kept. One name each, a closed set."""

from __future__ import annotations

#: Addresses whose refusals are counted apart.
MAX_REFUSED = 1024


class EdgeCounters(dict[str, int]):
    """Counts by name; refused: ICMP refusals by the upstream address (host, port) they came for."""

    def __init__(self) -> None:
        super().__init__()
        self.refused: dict[tuple[str, int], int] = {}

    def add(self, name: str, n: int = 1) -> None:
        self[name] = self.get(name, 0) + n

    def add_refused(self, address: tuple[str, int]) -> None:
        """One refusal. Inside sockets send to upstreams and numeric next hops of theirs only, so the map stays small."""
        self.add("udp-refused")
        if address in self.refused or len(self.refused) < MAX_REFUSED:
            self.refused[address] = self.refused.get(address, 0) + 1
