"""Which way a request goes: our own Routes, the upstream of a Call-ID, a numeric next hop (DESIGN §3)."""

from __future__ import annotations

from hashlib import blake2b
from ipaddress import ip_address
from math import log
from typing import NamedTuple

from sipguard.guard.flows import Flow, Listener, SocketAddress, Upstream
from sipguard.guard.tokens import PARAMETER, FlowTokens, Token
from sipguard.wire.head import Head
from sipguard.wire.values import Uri, read_uri

SIP_PORT = 5060


class OwnRoutes(NamedTuple):
    """The guard's Routes at the front of a request: how many, and the token in them (None: none, or not signed by us)."""

    own: int
    token: Token | None


class Routing:
    """Knows the guard's own addresses and the upstreams."""

    __slots__ = ("_by_id", "_by_transport", "_listeners", "_own", "_tokens")

    def __init__(self, listeners: tuple[Listener, ...], upstreams: tuple[Upstream, ...], tokens: FlowTokens) -> None:
        self._listeners = listeners
        self._own = {listener.sent_by("").lower() for listener in listeners if not listener.wildcard}
        self._own |= {listener.advertise.lower() for listener in listeners if listener.advertise}
        self._by_id = {upstream.id: upstream for upstream in upstreams}
        self._by_transport: dict[str, list[Upstream]] = {}
        for upstream in upstreams:
            self._by_transport.setdefault(upstream.transport, []).append(upstream)
        self._tokens = tokens

    def is_own(self, uri: Uri, flow: Flow) -> bool:
        """Whether a URI names the guard: a listener's address, or on a wildcard bind the one this packet came to."""
        text = b"%b:%d" % (uri.host, uri.port or SIP_PORT)
        return text in self._own or (flow.listener.wildcard and text == flow.listener.sent_by(flow.local))

    def own_routes(self, head: Head, flow: Flow, now_ns: int) -> OwnRoutes:
        """Our Routes at the front of this request."""
        count, token = 0, None
        for value in head.routes:
            uri = read_uri(value)
            if uri is None:
                break
            signed = uri.params.get(PARAMETER)
            read = self._tokens.read(signed, now_ns) if signed else None
            token = token or read
            # Behind our inner Route stands our outer one; on a wildcard bind only its port is known for sure.
            behind = token is not None and token.flow.listener.wildcard and uri.port == token.flow.listener.port
            if read is None and not self.is_own(uri, flow) and not behind:
                break
            count += 1
        return OwnRoutes(count, token)

    def upstream_for(self, head: Head, transport: str, token: Token | None) -> Upstream | None:
        """The upstream of the dialog, else of the Call-ID (weighted rendezvous hash); None when there is none."""
        if token is not None:
            known = self._by_id.get(token.upstream)
            if known is not None and known.transport == transport:
                return known
        candidates = self._by_transport.get(transport)
        if not candidates:
            return None
        if len(candidates) == 1:
            return candidates[0]
        call_id = head.call_id or b""
        return max(candidates, key=lambda upstream: _score(upstream, call_id))

    def next_hop(self, head: Head, routes: OwnRoutes) -> Flow | None:
        """Where a request from inside goes: the flow our Route names, else a numeric next hop; None when neither is there."""
        if routes.token is not None and not routes.token.flow.listener.inside:
            return routes.token.flow
        rest = head.routes[routes.own :]
        uri = read_uri(rest[0] if rest else head.uri)
        if uri is None or uri.scheme != b"sip":
            return None
        transport = (uri.params.get(b"transport") or b"udp").lower()
        remote = _socket_address(uri)
        if remote is None:
            return None
        for listener in self._listeners:
            if (
                not listener.inside
                and listener.transport.encode() == transport
                and (":" in listener.host) == (":" in remote[0])
            ):
                return Flow(listener, remote)
        return None


def _socket_address(uri: Uri) -> SocketAddress | None:
    """The numeric address a URI names; None for a name (no DNS here) or a port that is none."""
    try:
        address = ip_address(uri.host.strip(b"[]").decode("ascii"))
    except ValueError:
        return None
    port = uri.port or SIP_PORT
    return (str(address), port) if address.version == 4 else (str(address), port, 0, 0)


def _score(upstream: Upstream, call_id: bytes) -> float:
    """Weighted rendezvous hash: -w / ln(h), h uniform in (0, 1) (Schindelhauer & Schomaker 2005)."""
    digest = blake2b(call_id, digest_size=8, key=upstream.id).digest()
    uniform = (int.from_bytes(digest) + 1) / (2**64 + 1)
    return -upstream.weight / log(uniform)
