"""What the guard is told once, at its start."""

from __future__ import annotations

from dataclasses import dataclass

from sipguard.guard.flows import Listener, Upstream


@dataclass(frozen=True, slots=True)
class GuardSettings:
    """The guard's own settings; the six parameters and the policy are the controller's.

    listeners: outside and inside. upstreams: at least one, or every allowed request is answered 503.
    server: the Server header's value, None for none. source_header: the name of the header that tells the upstream the
    client's address, b"" for none. retry_after_s: (lowest, highest) seconds, None for none; retry_after_methods: on
    these only, and only with a single Via (RFC 7339 5.10.2: else it blanks a whole trunk).
    reply_budget: bytes of 503 per window at most the bytes of requests received in it. exempt_uris: Request-URI prefixes
    that are always passed. stream_drop: what a silent drop is on a stream. kernel_drop: the kernel may drop for us.
    one_verdict: a retransmission gets its first copy's verdict in every state (SPEC X3); then the kernel drops nothing.
    """

    listeners: tuple[Listener, ...]
    upstreams: tuple[Upstream, ...]
    server: bytes | None = b"sipguard"
    source_header: bytes = b"X-Guard-Source"
    record_route: bool = True
    path: bool = True
    retry_after_s: tuple[int, int] | None = (10, 30)
    retry_after_methods: frozenset[str] = frozenset(("REGISTER", "SUBSCRIBE"))
    reply_budget: bool = False
    exempt_uris: tuple[str, ...] = ()
    stream_drop: str = "drop"
    kernel_drop: bool = True
    one_verdict: bool = False
