"""What the guard counts: everything, once each, by reason. Nothing is lost silently."""

from __future__ import annotations

from sipguard.wire.scan import KNOWN_METHODS

#: Method names come from remote bytes: beyond this many, and when longer than this, new ones are counted together.
MAX_METHODS = 64
MAX_METHOD_LENGTH = 32
OTHER_METHODS = "OTHER"

_KNOWN = frozenset(KNOWN_METHODS)


class Tally(dict[str, int]):
    """Counts by a name from a closed set, or capped by `count_method`."""

    def add(self, name: str, n: int = 1) -> None:
        self[name] = self.get(name, 0) + n


class Counters:
    """Whole-life counters.

    requests: offered, by method (kernel-dropped ones estimated by method, exact in total). discards: datagrams that are no
    request and lead to nothing, by reason. outcomes: what happened to messages beyond their verdict, by reason: requests the
    law allowed and the guard itself ended (`inside-` before it for a server's, which have no verdict), what could not be
    answered or sent, what grew over the MTU, a drop refused on a stream, and every request `from-inside`. sent: requests, by
    upstream id. checks: requests ended by a named check (SPEC V5). absorbed: ACKs to own finals (SPEC M2). kernel_dropped:
    exact; kernel_sampled: what the filter let through to be dropped here. overflowed: requests lost in a receive buffer,
    estimated. lcps_refused: 503s of the normal state (SPEC V3). responses_outside, responses_inside: by the side they came from.
    """

    __slots__ = (
        "absorbed",
        "checks",
        "discards",
        "kernel_dropped",
        "kernel_sampled",
        "lcps_refused",
        "outcomes",
        "overflowed",
        "requests",
        "responses_inside",
        "responses_outside",
        "sent",
    )

    def __init__(self) -> None:
        self.requests = Tally()
        self.discards = Tally()
        self.outcomes = Tally()
        self.checks = Tally()
        self.sent: dict[bytes, int] = {}
        self.absorbed = 0
        self.kernel_dropped = 0
        self.kernel_sampled = 0
        self.overflowed = 0
        self.lcps_refused = 0
        self.responses_outside = 0
        self.responses_inside = 0

    def count_method(self, method: str, n: int = 1) -> None:
        """Requests of one method; names are capped, but for the known ones: invented names must not hide them."""
        requests = self.requests
        if (
            method not in requests
            and (len(requests) >= MAX_METHODS or len(method) > MAX_METHOD_LENGTH)
            and method not in _KNOWN
        ):
            method = OTHER_METHODS
        requests[method] = requests.get(method, 0) + n
