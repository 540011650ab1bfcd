"""Why the kernel dropped: filter or full buffer, told apart by arithmetic (DESIGN §3). Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from sipguard.edge.kernel.socketfilter import Memory
from sipguard.edge.kernel.udp_errors import ErrorCounts

# The most receive buffer that one datagram of at most 1 KiB, or one more KiB of a longer one, is taken to hold: the
# kernel charges a datagram what its driver allocated for it, up to a few pages of 4 KiB.
_MOST_HELD_BYTES: Final = 16 * 1024


class Drops(NamedTuple):
    """Datagrams that the kernel dropped at one socket, by cause."""

    filtered: int = 0
    """By the filter: each one a sheddable request (or, of more than 76 octets and with a broken checksum, a forgery)."""
    overflowed: int = 0
    """For want of room, whatever they were."""


class Taken(NamedTuple):
    """What the process has read from one socket since the last reading of the plane."""

    datagrams: int
    octets: int


@dataclass(slots=True)
class Tally:
    """One socket's drops over an interval, not yet told apart."""

    families: tuple[int, ...]
    """The host's counters that its losses appear in: (4,), (6,), or both for a dual-stack socket."""
    unfiltered: int = 0
    """Dropped while no filter was on: all of them overflow."""
    screened: int = 0
    """Dropped while the filter was on."""
    may_overflow: bool = True
    """False if it is certain that the receive buffer was never full."""


def may_have_overflowed(memory: Memory, taken: Taken) -> bool:
    """False only if the socket's buffer cannot have been full since the last reading.

    What stood in it at any moment was read since, or stands there still. Half of the limit is the margin: the kernel
    gives read memory back in batches of up to a quarter of it.
    """
    held_bytes = memory.queued_bytes + _MOST_HELD_BYTES * (taken.datagrams + taken.octets // 1024)
    return held_bytes >= memory.limit_bytes // 2


def attribute(tallies: Sequence[Tally], lost: Mapping[int, ErrorCounts]) -> list[Drops]:
    """Each socket's drops by cause, in the order given. Nothing is lost: the sum of a socket's two is its drops.

    `lost`: by family, how far the host's counters went in the interval. They bound the overflow and are drawn on by
    the unfiltered sockets first, then by the filtered ones, largest count first. Since sockets of others raise them
    too, a socket that cannot have overflowed draws nothing. A family that is absent counts 0: its screened drops are
    all `filtered`.
    """
    overflow = {family: counts.full + counts.memory for family, counts in lost.items()}
    for tally in tallies:
        _draw(overflow, tally.families, tally.unfiltered)
    drops = [Drops()] * len(tallies)
    for index in sorted(range(len(tallies)), key=lambda index: -tallies[index].screened):
        tally = tallies[index]
        full = _draw(overflow, tally.families, tally.screened) if tally.may_overflow else 0
        drops[index] = Drops(tally.screened - full, tally.unfiltered + full)
    return drops


def _draw(pool: dict[int, int], families: tuple[int, ...], wanted: int) -> int:
    """Take up to `wanted` out of the pool's entries; how many there were."""
    drawn = 0
    for family in families:
        part = min(pool.get(family, 0), wanted - drawn)
        if part > 0:
            pool[family] -= part
            drawn += part
    return drawn
