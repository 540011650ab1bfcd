"""Which way a request goes: our own Routes, the upstream of a Call-ID, a numeric next hop (DESIGN §3)."""

from __future__ import annotations

from hashlib import blake2b
from ipaddress import ip_address
from math import log
from typing import NamedTuple

from sipguard.guard.flows import SIP_PORT, Flow, Listener, SocketAddress, Upstream, host_port
from sipguard.guard.tokens import PARAMETER, FlowTokens, Token
from sipguard.wire.head import Head
from sipguard.wire.values import Uri, read_uri


class OwnRoutes(NamedTuple):
    """The guard's Routes at the front of a request: how many, and the token in them (None: none, or not signed by us)."""

    own: int
    token: Token | None


class Routing:
    """Knows the guard's own addresses and the upstreams."""

    __slots__ = ("_by_id", "_by_place", "_by_transport", "_listeners", "_own", "_tokens")

    def __init__(self, listeners: tuple[Listener, ...], upstreams: tuple[Upstream, ...], tokens: FlowTokens) -> None:
        self._listeners = listeners
        self._own = {host_port(listener.host, listener.port) for listener in listeners}
        self._own |= {listener.advertise.lower() for listener in listeners if listener.advertise}
        self._by_id = {upstream.id: upstream for upstream in upstreams}
        self._by_transport: dict[str, list[Upstream]] = {}
        # By transport, host and port; by transport, host and 0 where only one stands there.
        self._by_place: dict[tuple[str, str, int], Upstream | None] = {}
        for upstream in upstreams:
            transport, host = upstream.transport, upstream.host
            self._by_transport.setdefault(transport, []).append(upstream)
            self._by_place[transport, host, upstream.port] = upstream
            self._by_place[transport, host, 0] = None if (transport, host, 0) in self._by_place else upstream
        self._tokens = tokens

    def is_own(self, uri: Uri, flow: Flow) -> bool:
        """Whether a URI names the guard: a listener's address, bound or advertised, or on a wildcard bind the one asked."""
        text = b"%b:%d" % (uri.host, uri.port or SIP_PORT)
        if text in self._own:
            return True
        listener = flow.listener
        return listener.wildcard and flow.local != "" and text == host_port(flow.local, listener.port)

    def server_at(self, transport: str, host: str, port: int) -> Upstream | None:
        """The upstream of a transport at an address; another port will do (a connection it made) where only one is there."""
        exact = self._by_place.get((transport, host, port))
        return exact if exact is not None else self._by_place.get((transport, host, 0))

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
            # Behind our inner Route stands our outer one: on a wildcard bind the local address that the token holds.
            behind = token is not None and self.is_own(uri, token.flow)
            if read is None and not self.is_own(uri, flow) and not behind:
                break
            count += 1
        return OwnRoutes(count, token)

    def upstream_for(self, head: Head, transport: str, token: Token | None) -> Upstream | None:
        """The upstream of the dialog, else of the Call-ID (weighted rendezvous hash); None when there is none.

        A client may change to a stream for a long request (RFC 3261 18.1.1): the dialog stays on its server all the same.
        """
        if token is not None:
            known = self._by_id.get(token.upstream)
            if known is not None and known.transport != transport:
                known = self.server_at(transport, known.host, known.port)
            if known is not None:
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
        # To ourselves it would come back, and again, until Max-Forwards ends it.
        if remote is None or host_port(remote[0], remote[1]) in self._own:
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
