"""INVITE server transactions and their timers (RFC 3261 13.3.1.4, 17.2.1)."""

from __future__ import annotations

import heapq
from enum import Enum

from sipguard.uas.peer import Peer, Send
from sipguard.uas.request import DialogKey, Request, TransactionKey
from sipguard.uas.table import BoundedTable

T1_NS = 500_000_000
T2_NS = 4_000_000_000
T4_NS = 5_000_000_000
LIFE_NS = 64 * T1_NS
"""Timers H, J and L, and how long a 2xx waits for its ACK."""


class Phase(Enum):
    """Where an INVITE stands."""

    RINGING = "ringing"
    """180 sent; the deadline is the moment to answer."""
    ACCEPTED = "accepted"
    """200 sent, repeated over every transport until its ACK (13.3.1.4)."""
    REFUSED = "refused"
    """A final answer of 300 or more sent, repeated over UDP until its ACK (timers G and H)."""
    ACKED = "acked"
    """The ACK came; what comes now is absorbed until the deadline."""


class Invite:
    """One INVITE server transaction.

    cseq: its CSeq number. last: the last response sent, b"" once nothing is owed. session: the description its 200 carries.
    """

    __slots__ = (
        "cseq",
        "deadline_ns",
        "destination",
        "dialog_key",
        "give_up_ns",
        "interval_ns",
        "key",
        "last",
        "local_tag",
        "phase",
        "request",
        "session",
    )

    def __init__(self, key: TransactionKey, request: Request, local_tag: bytes) -> None:
        self.key = key
        self.request: Request | None = request
        self.destination: Peer = request.destination
        self.cseq = request.head.cseq_number or 0
        self.local_tag = local_tag
        self.dialog_key = request.dialog_key_with(local_tag)
        self.phase = Phase.RINGING
        self.last = b""
        self.session = b""
        self.deadline_ns = 0
        self.give_up_ns = 0
        self.interval_ns = T1_NS

    def __repr__(self) -> str:
        return f"<Invite {self.phase.value} cseq={self.cseq} deadline_ns={self.deadline_ns}>"

    def release(self) -> None:
        """Hold no message any more."""
        self.request = None
        self.last = self.session = b""
        self.phase = Phase.ACKED


class InviteTable:
    """The INVITE transactions, at most max_entries and max_bytes, the oldest forgotten first; one heap of timers."""

    __slots__ = ("_heap", "_pushes", "_table")

    def __init__(self, max_entries: int, max_bytes: int) -> None:
        self._table: BoundedTable[TransactionKey, Invite] = BoundedTable(max_entries, max_bytes)
        self._heap: list[tuple[int, int, Invite]] = []
        self._pushes = 0

    def __len__(self) -> int:
        return len(self._table)

    def get(self, key: TransactionKey) -> Invite | None:
        """The transaction of this key."""
        return self._table.get(key)

    def open(self, invite: Invite) -> None:
        """Enter a new transaction."""
        # The request is kept until it is answered, then an answer of about the same size.
        size = len(invite.request.head.data) if invite.request is not None else 0
        for forgotten in self._table.put(invite.key, invite, size + 1024):
            forgotten.release()

    def ring(self, invite: Invite, until_ns: int) -> None:
        """Ring until then; `due` tells when it is over."""
        self._schedule(invite, until_ns)

    def finish(self, invite: Invite, response: bytes, *, accepted: bool, now_ns: int) -> None:
        """A final response was sent: repeat it until its ACK."""
        invite.phase = Phase.ACCEPTED if accepted else Phase.REFUSED
        invite.last = response
        invite.request = None
        invite.session = b""
        invite.give_up_ns = now_ns + LIFE_NS
        invite.interval_ns = T1_NS
        repeats = accepted or not invite.destination.reliable
        self._schedule(invite, now_ns + T1_NS if repeats else invite.give_up_ns)

    def acknowledge(self, invite: Invite, now_ns: int) -> None:
        """The ACK came: fall silent, and absorb stragglers (timer I for a refusal, RFC 6026 timer L for a 2xx)."""
        if invite.phase is Phase.REFUSED:
            until_ns = now_ns + (0 if invite.destination.reliable else T4_NS)
        elif invite.phase is Phase.ACCEPTED:
            until_ns = invite.give_up_ns
        else:
            return
        invite.release()
        self._schedule(invite, until_ns)

    def due(self, now_ns: int) -> tuple[list[Invite], list[DialogKey], list[Send]]:
        """What time has brought: INVITEs whose ringing is over, dialogs whose 2xx was never acknowledged, finals to repeat."""
        answered: list[Invite] = []
        abandoned: list[DialogKey] = []
        sends: list[Send] = []
        heap = self._heap
        while heap and heap[0][0] <= now_ns:
            deadline_ns, _, invite = heapq.heappop(heap)
            if deadline_ns != invite.deadline_ns or self._table.get(invite.key) is not invite:
                continue  # overtaken by a CANCEL or an ACK, or forgotten
            if invite.phase is Phase.RINGING:
                answered.append(invite)
            elif invite.phase is Phase.ACKED or now_ns >= invite.give_up_ns:
                if invite.phase is Phase.ACCEPTED:
                    abandoned.append(invite.dialog_key)
                self._table.pop(invite.key)
                invite.release()
            else:
                sends.append(Send(invite.last, invite.destination))
                invite.interval_ns = min(2 * invite.interval_ns, T2_NS)
                self._schedule(invite, min(now_ns + invite.interval_ns, invite.give_up_ns))
        return answered, abandoned, sends

    def next_deadline(self) -> int | None:
        """When `due` has something to say (or sooner)."""
        return self._heap[0][0] if self._heap else None

    def _schedule(self, invite: Invite, deadline_ns: int) -> None:
        invite.deadline_ns = deadline_ns
        self._pushes += 1
        heapq.heappush(self._heap, (deadline_ns, self._pushes, invite))
        if len(self._heap) > 4 * self._table.max_entries + 64:
            # Overtaken timers of forgotten INVITEs: a flood must not grow the heap for as long as a phone may ring.
            self._heap = [(live.deadline_ns, n, live) for n, live in enumerate(self._table)]
            heapq.heapify(self._heap)
