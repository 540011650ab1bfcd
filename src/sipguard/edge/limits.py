"""What stream connections may take: places, bytes, time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

#: Connections that one upstream host may have made to us. A server makes one, or one a worker of its own.
MAX_PER_INSIDE_HOST = 64


class UnsentLimits(NamedTuple):
    """Of one connection. high_water_bytes: above this much unsent the writers into it stop reading; under a quarter they go
    on. max_bytes: a peer that leaves more unread is closed (outside), or is sent nothing more (inside)."""

    high_water_bytes: int
    max_bytes: int


#: There may be many clients, so each gets little; an upstream's few connections carry everybody's messages.
OUTSIDE_UNSENT = UnsentLimits(65_536, 262_144)
INSIDE_UNSENT = UnsentLimits(262_144, 1_048_576)


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """Limits of all stream connections together and of each. Times in ns.

    max_connections: from outside. places: accepted ones of both sides, and those made outward: what the descriptors of the
    process allow. idle_ns: nothing has come. partial_ns: a message has begun and is not whole, or the first byte has not come.
    half_closed_ns: the peer sends no more and waits for answers; with a sweep a second, the end comes within 5 s.
    """

    max_connections: int = 10_000
    max_body_bytes: int = 65_536
    idle_ns: int = 600_000_000_000
    partial_ns: int = 10_000_000_000
    half_closed_ns: int = 4_000_000_000
    places: int = 1_000_000
