"""Descriptors: what a guard needs besides its clients' connections, and how many connections that leaves (getrlimit(2))."""

from __future__ import annotations

import resource

from sipguard.manage.settings import Settings

#: For the process itself (about 14: loop, signals, output, spare), the admin address's connections, and connections that are
#: being closed when the next ones are accepted.
OWN = 32

#: For each stream upstream: the guard's pool of connections to it, twice: one that ends is replaced before it is closed, and
#: the embedded server holds the other ends in this process.
PER_STREAM_UPSTREAM = 8


def reserved(settings: Settings) -> int:
    """Descriptors that no accepted connection may take."""
    inside = len(settings.inside) or len(settings.upstream) or 2
    streams = sum(upstream.transport != "udp" for upstream in settings.upstream) or not settings.upstream
    # Two for an inside socket: edge.udp watches it through one more.
    return OWN + len(settings.listen) + 2 * inside + PER_STREAM_UPSTREAM * streams


def places(settings: Settings, descriptors: int) -> int:
    """Stream connections that fit, at least one. descriptors: RLIMIT_NOFILE, RLIM_INFINITY for none."""
    if descriptors == resource.RLIM_INFINITY:
        descriptors = 1 << 30
    return max(1, descriptors - reserved(settings))
