"""One verdict for all copies of a request (SPEC X3): what the law said of the first one, remembered."""

from __future__ import annotations

from sipguard.core.verdicts import Verdict
from sipguard.guard.bounded import BoundedMap
from sipguard.guard.keys import Key, transaction_of
from sipguard.guard.refused import MEMORY_NS
from sipguard.guard.stamps import COOKIE
from sipguard.wire.head import Head

#: Transactions remembered at once: 32 s of 8,000 new ones a second, 68 MB when full.
MAX_TRANSACTIONS = 262_144

#: Copies that get the first one's verdict. A client sends a request at most 11 times (RFC 3261 17.1.2.2 with T1 = 500 ms),
#: more only with a shorter T1. What goes on far beyond is a flood under one branch, and one allowed request would open the
#: door to all of it: the rest is judged like any other.
MAX_COPIES = 64


class _First:
    """The first copy. verdict: what the law said of it. until_ns: when it is forgotten. copies: seen after it."""

    __slots__ = ("copies", "until_ns", "verdict")

    def __init__(self, verdict: Verdict, until_ns: int) -> None:
        self.verdict = verdict
        self.until_ns = until_ns
        self.copies = 0


class Transactions:
    """Verdicts by transaction, for 32 s from the first copy; bounded, the oldest makes room.

    copies: requests given an earlier copy's verdict. evicted: transactions forgotten before their time, for room; their
    later copies are judged as new requests.
    """

    __slots__ = ("_cap", "_firsts", "_key", "copies", "evicted")

    def __init__(self, key: Key, cap: int = MAX_TRANSACTIONS) -> None:
        self._key = key
        self._cap = cap
        self._firsts: BoundedMap[bytes, _First] = BoundedMap(cap)
        self.copies = self.evicted = 0

    def __len__(self) -> int:
        return len(self._firsts)

    def figures(self) -> dict[str, int]:
        """remembered: now; copies, evicted: since the start."""
        return {"remembered": len(self), "copies": self.copies, "evicted": self.evicted}

    def name_of(self, head: Head, method: str) -> bytes | None:
        """What all copies of a request share, as 12 bytes whatever the message's length.

        Top branch, sent-by and method (RFC 3261 17.2.3, SPEC X3); a branch without the magic cookie names no transaction by
        itself (RFC 3261 8.1.1.7), so Call-ID and CSeq number are added. None when there is nothing to go by: then each copy
        stands for itself.
        """
        via = head.top_via
        if via is None:
            return None
        branch = via.branch or b""
        if branch.startswith(COOKIE) and branch != COOKIE:
            identity: bytes | None = b"%b\0%b" % (branch, via.sent_by)
        else:
            identity = transaction_of(head)
        return None if identity is None else self._key.memory(b"%b\0%b" % (method.encode(), identity))

    def repeated(self, name: bytes | None, now_ns: int) -> Verdict | None:
        """The first copy's verdict for one more copy of it; None when this one is to be judged."""
        first = None if name is None else self._firsts.get(name)
        if first is None or now_ns >= first.until_ns or first.copies >= MAX_COPIES:
            return None
        first.copies += 1
        self.copies += 1
        return first.verdict

    def remember(self, name: bytes, verdict: Verdict, now_ns: int) -> None:
        """The verdict of a first copy. now_ns never goes back, so entries lie in the order of their ends."""
        firsts = self._firsts
        known = firsts.get(name)
        if known is not None and now_ns < known.until_ns:
            return
        # Two for one: what is over goes as fast as anything can come, without a walk over all of it at any one time.
        for _ in range(2):
            oldest = firsts.oldest()
            if oldest is None or now_ns < oldest[1].until_ns:
                break
            firsts.remove(oldest[0])
        if len(firsts) >= self._cap:
            self.evicted += 1
        firsts.put(name, _First(verdict, now_ns + MEMORY_NS))
