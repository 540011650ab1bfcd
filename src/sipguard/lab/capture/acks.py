"""ACKs to the 503s that a capture itself shows: a guard's own, where the capture was taken at a guard (SPEC M2)."""

from __future__ import annotations

from sipguard.wire.head import read_head

#: 64·T1, as the guard's own memory (RFC 3261 17.1.1.2).
MEMORY_NS = 32_000_000_000
MAX_FINALS = 65536

_Transaction = tuple[bytes | None, bytes | None, int | None]


class OwnFinals:
    """The 503s seen lately, by Call-ID, To tag and CSeq number; the oldest gives way."""

    __slots__ = ("_until_ns",)

    def __init__(self) -> None:
        self._until_ns: dict[_Transaction, int] = {}

    def __len__(self) -> int:
        return len(self._until_ns)

    def note(self, response: bytes, now_ns: int) -> None:
        """A response; remembered when it is a 503."""
        if response[:12].upper() != b"SIP/2.0 503 ":
            return
        until_ns = self._until_ns
        key = _transaction_of(response)
        until_ns.pop(key, None)
        until_ns[key] = now_ns + MEMORY_NS
        while len(until_ns) > MAX_FINALS:
            del until_ns[next(iter(until_ns))]

    def answers(self, ack: bytes, now_ns: int) -> bool:
        """Whether an ACK answers one of them."""
        until = self._until_ns.get(_transaction_of(ack))
        return until is not None and now_ns < until


def _transaction_of(message: bytes) -> _Transaction:
    head = read_head(message)
    return head.call_id, head.to_tag, head.cseq_number
