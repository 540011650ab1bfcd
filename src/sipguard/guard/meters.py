"""What each outside listener saw in this cycle: how many of its datagrams were requests (DESIGN §3, receive-buffer overflow)."""

from __future__ import annotations


class ListenerMeter:
    """Datagrams read from one listener in this cycle, and how many of them were requests."""

    __slots__ = ("datagrams", "requests")

    def __init__(self) -> None:
        self.datagrams = 0
        self.requests = 0

    def requests_among(self, lost: int) -> int:
        """How many of `lost` datagrams were requests, by this cycle's proportion.

        With nothing read all are taken for requests: the guard was too busy to look, and RPS must not read low.
        """
        return lost if not self.datagrams else round(lost * self.requests / self.datagrams)

    def clear(self) -> None:
        """The next cycle begins."""
        self.datagrams = self.requests = 0
