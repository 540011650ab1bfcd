"""Two meters on one clock: the window of TR ms that the level reads, the second that LCPS reads (SPEC §3)."""

from __future__ import annotations

SECOND_NS = 1_000_000_000

#: Requests that arrive before their window's predecessor was evaluated wait in at most this many windows; so many steps
#: of late reports are kept.
MAX_AHEAD = 1000


class Window:
    """The open window [start_ns, end_ns) and its requests (SPEC M1).

    On a live edge a request may come after `end_ns` but before the timer has evaluated the window. It belongs to a later
    window (M1): `count_ahead` keeps it until that one opens. A report that comes late is spread by `count_late` as steps,
    not window by window, so that its cost does not grow with its lateness.
    """

    __slots__ = ("_ahead", "_late", "_late_ends", "end_ns", "length_ns", "requests")

    def __init__(self, start_ns: int, length_ns: int) -> None:
        self.length_ns = length_ns
        self.end_ns = start_ns + length_ns
        self.requests = 0
        # By the end of the window: its requests. Times never go back (SPEC M4), so the first key is the earliest.
        self._ahead: dict[int, int] = {}
        # What late reports add to every window from the open one on; by the end of a window: how much stops before it.
        self._late = 0
        self._late_ends: dict[int, int] = {}

    def __repr__(self) -> str:
        return f"<window to {self.end_ns} ns, {self.requests} requests, {sum(self._ahead.values())} ahead>"

    def ended_by(self, now_ns: int) -> int:
        """How many windows, this one first, have ended by now and are not evaluated."""
        return (now_ns - self.end_ns) // self.length_ns + 1 if now_ns >= self.end_ns else 0

    def silent_by(self, now_ns: int) -> int:
        """How many windows in a row, this one first, have ended by now, are not evaluated and hold no request."""
        if self.requests or self._late:
            return 0
        ended = self.ended_by(now_ns)
        if self._ahead:
            return min(ended, (next(iter(self._ahead)) - self.end_ns) // self.length_ns)
        return ended

    def count_ahead(self, n: int, now_ns: int) -> None:
        """Count n requests into the window that now_ns is in: the open one or one not opened yet."""
        ended = self.ended_by(now_ns)
        if not ended:
            self.requests += n
            return
        end_ns = self.end_ns + ended * self.length_ns
        if end_ns not in self._ahead and len(self._ahead) >= MAX_AHEAD:
            end_ns = next(reversed(self._ahead))
        self._ahead[end_ns] = self._ahead.get(end_ns, 0) + n

    def count_late(self, n: int, ended: int) -> None:
        """Count n requests evenly into the first `ended` windows (>= 1), this one first; the remainder goes to the first."""
        if ended == 1 or len(self._late_ends) + 2 > MAX_AHEAD:
            self.requests += n
            return
        share, extra = divmod(n, ended)
        for part, windows in ((1, extra), (share, ended)):
            if part and windows:
                end_ns = self.end_ns + windows * self.length_ns
                self.requests += part
                self._late += part
                self._late_ends[end_ns] = self._late_ends.get(end_ns, 0) + part

    def next(self) -> None:
        """Close this window and open the next."""
        self.end_ns += self.length_ns
        if self._late:
            self._late -= self._late_ends.pop(self.end_ns, 0)
        self.requests = self._late
        if self._ahead:
            self.requests += self._ahead.pop(self.end_ns, 0)

    def skip(self, windows: int) -> None:
        """Leave out that many windows, all silent (`silent_by`)."""
        self.end_ns += windows * self.length_ns


class Second:
    """This second's running total and the whole total of the one before (SPEC M3), both from the same origin."""

    __slots__ = ("end_ns", "last", "total")

    def __init__(self, origin_ns: int) -> None:
        self.end_ns = origin_ns + SECOND_NS
        self.total = 0
        self.last = 0

    def __repr__(self) -> str:
        return f"<second to {self.end_ns} ns, {self.total} after {self.last}>"

    def roll(self, now_ns: int) -> None:
        """Move to the second that now_ns is in; a second nothing came in has total 0."""
        passed = (now_ns - self.end_ns) // SECOND_NS + 1
        if passed <= 0:
            return
        self.last = self.total if passed == 1 else 0
        self.total = 0
        self.end_ns += passed * SECOND_NS

    def count_at(self, n: int, time_ns: int) -> None:
        """Count n requests that came at time_ns: in this second or, for a late report, the one before."""
        self.roll(time_ns)
        behind = (self.end_ns - 1 - time_ns) // SECOND_NS
        if behind == 0:
            self.total += n
        elif behind == 1:
            self.last += n
        # Older seconds are compared with no more: nothing to add.
