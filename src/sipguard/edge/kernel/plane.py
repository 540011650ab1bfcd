"""The kernel drop plane: filters on the outside UDP sockets, switched together, and what they dropped (DESIGN §3).

It fails open. Whatever the system refuses (another system than Linux, a locked filter, no memory for it) is counted in
`KernelDropPlane.failures`, and the process goes on shedding by itself; no method raises for it. No clock, no thread:
the edge calls `apply` when the guard wants the filter or no longer wants it, and `read` at each window's end, before it counts.
"""

from __future__ import annotations

import errno
import socket
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sipguard.edge.kernel.attribution import Drops, Taken, Tally, attribute, may_have_overflowed
from sipguard.edge.kernel.bpf import Instruction
from sipguard.edge.kernel.socketfilter import Memory, attach, detach, drops_between, memory
from sipguard.edge.kernel.udp_errors import ErrorCounts, UdpErrors

_IPV4: Final = 4
_IPV6: Final = 6


@dataclass(frozen=True, slots=True)
class Reading:
    """What the kernel dropped since the last reading, by cause."""

    filtered: int
    """By the filter: sheddable requests, exactly."""
    overflowed: int
    """For want of room in a receive buffer: requests and all else, in unknown proportion."""
    sockets: tuple[Drops, ...] = ()
    """The same for each socket, in the order in which the plane was given them."""


@dataclass(slots=True)
class _Guarded:
    """One socket: whether the filter is on, its counter as last seen, and the drops since the last reading."""

    sock: socket.socket
    tally: Tally
    filtering: bool = False
    seen: Memory | None = None


class KernelDropPlane:
    """The filters of some UDP sockets. The sockets stay the caller's; he closes them after the plane.

    `failures` counts what went wrong, under "attach", "detach", "counter" (SO_MEMINFO) and "host" (/proc/net);
    `last_failure` says the latest in words. Without a readable counter no filter is put on: unseen drops would make the
    rate look calm.
    """

    __slots__ = ("_errors", "_guarded", "_lost_before", "_program", "failures", "last_failure")

    def __init__(
        self, sockets: Sequence[socket.socket], program: Sequence[Instruction], errors: UdpErrors | None = None
    ) -> None:
        """Take the sockets over: a filter that came with one (a descriptor handed over) goes, its counter's value is the base.

        `errors`: where the host's counters come from; owned from here on. ValueError: a socket that is not UDP.
        """
        self.failures: Counter[str] = Counter()
        self.last_failure: str | None = None
        self._program = tuple(program)
        self._guarded = [_Guarded(sock, Tally(_families(sock))) for sock in sockets]
        self._errors = errors or UdpErrors()
        self._lost_before: dict[int, ErrorCounts] = {}
        for guarded in self._guarded:
            # Taken for on until detached: one that is locked (EPERM) goes on dropping, and its drops are a filter's.
            guarded.filtering = True
            self._detach(guarded)
            guarded.tally.screened = 0
        self._host_losses()

    def __repr__(self) -> str:
        on = sum(guarded.filtering for guarded in self._guarded)
        return f"<KernelDropPlane {on}/{len(self._guarded)} filtering, failures {dict(self.failures)}>"

    @property
    def filtering(self) -> bool:
        """Whether at least one socket has the filter on."""
        return any(guarded.filtering for guarded in self._guarded)

    def apply(self, wanted: bool) -> bool:
        """Put the filters on or take them off; a call that changes nothing costs nothing. True: all are as wanted."""
        for guarded in self._guarded:
            if guarded.filtering != wanted:
                if wanted:
                    self._attach(guarded)
                else:
                    self._detach(guarded)
        return all(guarded.filtering == wanted for guarded in self._guarded)

    def load(self, program: Sequence[Instruction]) -> bool:
        """Use another program from now on (new drop methods or exemptions); where a filter is on, it is swapped in one step.

        True: no socket runs the old one. A socket that the kernel refuses it on loses its filter.
        """
        self._program = tuple(program)
        swapped = True
        for guarded in self._guarded:
            if guarded.filtering and not self._attach(guarded):
                # The old program may drop what is now to pass.
                swapped = self._detach(guarded) and swapped
        return swapped

    def read(self, taken: Sequence[Taken] | None = None) -> Reading:
        """What was dropped since the last reading, filter and overflow told apart.

        `taken`: for each socket, in the order given at the start, what the process read from it since then. With it
        a socket that cannot have been full has no overflow, so that another socket's overflow, somewhere on the host,
        is not taken for ours. Without it our overflow is bounded by the host's alone. ValueError: not one for each.
        """
        if taken is not None and len(taken) != len(self._guarded):
            raise ValueError(f"{len(taken)} figures for {len(self._guarded)} sockets")
        for guarded in self._guarded:
            if not self._note(guarded) and guarded.filtering:
                self._detach(guarded)
        lost = self._host_losses()
        if taken is not None:
            # The limit of all UDP sockets together strikes however empty our own buffer is.
            crowded = any(counts.memory for counts in lost.values())
            for guarded, part in zip(self._guarded, taken, strict=True):
                certain = guarded.seen is not None and not may_have_overflowed(guarded.seen, part)
                guarded.tally.may_overflow = crowded or not certain
        drops = attribute([guarded.tally for guarded in self._guarded], lost)
        for guarded in self._guarded:
            guarded.tally = Tally(guarded.tally.families)
        return Reading(sum(part.filtered for part in drops), sum(part.overflowed for part in drops), tuple(drops))

    def close(self) -> None:
        """Take all filters off and give the plane's descriptors back. Read before, or the last drops are lost."""
        self.apply(False)
        self._errors.close()

    def _attach(self, guarded: _Guarded) -> bool:
        # What was dropped up to here is overflow; noted first, so that none of it is taken for the filter's.
        if not self._note(guarded):
            return False
        try:
            attach(guarded.sock, self._program)
        except OSError as error:
            return self._failed("attach", error)
        guarded.filtering = True
        return True

    def _detach(self, guarded: _Guarded) -> bool:
        try:
            detach(guarded.sock)
        except OSError as error:
            self._note(guarded)
            guarded.filtering = guarded.filtering and error.errno == errno.EPERM
            return self._failed("detach", error)
        self._note(guarded)  # after the filter is off: else its last drops would count as overflow
        guarded.filtering = False
        return True

    def _note(self, guarded: _Guarded) -> bool:
        """Book the drops since the counter was last seen under the filter's present position. False: unreadable; a
        later reading catches up."""
        try:
            now = memory(guarded.sock)
        except OSError as error:
            return self._failed("counter", error)
        before, guarded.seen = guarded.seen, now
        if before is not None:
            dropped = drops_between(before.drops, now.drops)
            if guarded.filtering:
                guarded.tally.screened += dropped
            else:
                guarded.tally.unfiltered += dropped
        return True

    def _host_losses(self) -> dict[int, ErrorCounts]:
        """By family, how far the host's counters went since the last call; a family without a figure is absent."""
        lost: dict[int, ErrorCounts] = {}
        for family in sorted({family for guarded in self._guarded for family in guarded.tally.families}):
            try:
                now = self._errors.read_ipv4() if family == _IPV4 else self._errors.read_ipv6()
            except OSError as error:
                self._failed("host", error)
                continue
            if family in self._lost_before:
                lost[family] = now.since(self._lost_before[family])
            self._lost_before[family] = now
        return lost

    def _failed(self, what: str, error: OSError) -> bool:
        self.failures[what] += 1
        self.last_failure = f"{what}: {error}"
        return False


def _families(sock: socket.socket) -> tuple[int, ...]:
    if sock.type != socket.SOCK_DGRAM or sock.family not in (socket.AF_INET, socket.AF_INET6):
        raise ValueError(f"the kernel drop plane is for UDP sockets, not {sock!r}")
    if sock.family == socket.AF_INET:
        return (_IPV4,)
    # Datagrams from IPv4 peers to a dual-stack socket are counted as IPv4.
    only_ipv6 = sock.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)
    return (_IPV6,) if only_ipv6 else (_IPV4, _IPV6)
