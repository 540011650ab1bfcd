"""Final responses of the guard's own inside dialogs, remembered until their ACK can come no more (DESIGN §3)."""

from __future__ import annotations

from sipguard.guard.bounded import BoundedMap

#: 64·T1: a client transaction is over after it, and so are its copies and its ACKs (RFC 3261 17.1.1.2, 17.1.2.2: timers B, F).
MEMORY_NS = 32_000_000_000


class RefusedInvites:
    """INVITEs with a To tag that the guard ended itself: the tag is the server's, so only memory knows their ACK."""

    __slots__ = ("_until_ns",)

    def __init__(self, cap: int = 65536) -> None:
        self._until_ns: BoundedMap[bytes, int] = BoundedMap(cap)

    def __len__(self) -> int:
        return len(self._until_ns)

    def remember(self, transaction: bytes, now_ns: int) -> None:
        """A final response went out for this transaction."""
        self._until_ns.put(transaction, now_ns + MEMORY_NS)

    def knows(self, transaction: bytes, now_ns: int) -> bool:
        """Whether an ACK of this transaction answers the guard."""
        until_ns = self._until_ns.get(transaction)
        return until_ns is not None and now_ns < until_ns

    def forget(self, transaction: bytes) -> None:
        """Its ACK, should one come, is not for the guard."""
        if len(self._until_ns):
            self._until_ns.remove(transaction)

    def forget_old(self, now_ns: int) -> None:
        """Drop what is over; entries lie in the order of their times."""
        while (oldest := self._until_ns.oldest()) is not None and oldest[1] <= now_ns:
            self._until_ns.remove(oldest[0])
