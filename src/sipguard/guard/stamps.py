"""The header lines the guard adds: Via, Record-Route, Path, the source header; made once per flow and kept."""

from __future__ import annotations

from sipguard.guard.bounded import BoundedMap
from sipguard.guard.flows import Flow, Listener, Upstream
from sipguard.guard.settings import GuardSettings
from sipguard.guard.tokens import PARAMETER, VIA, FlowTokens

#: RFC 3261 8.1.1.7.
COOKIE = b"z9hG4bK"

_SIGNED = b";" + PARAMETER + b"="


class Stamp:
    """The lines for one pair of flows. The Via is via_head + branch + via_tail; the rest are whole lines, each with CRLF.

    record_routes: both addresses (RFC 5658 double Record-Routing), the sending side's on top; b"" when off. path: RFC 3327.
    source: the source header, b"" when off or toward the outside.
    """

    __slots__ = ("path", "record_routes", "source", "via_head", "via_tail")

    def __init__(self, via_head: bytes, via_tail: bytes, record_routes: bytes, path: bytes, source: bytes) -> None:
        self.via_head = via_head
        self.via_tail = via_tail
        self.record_routes = record_routes
        self.path = path
        self.source = source


class Stamps:
    """Stamps by flow and upstream, in a bounded map."""

    __slots__ = ("_inward", "_outward", "_settings", "_tokens")

    def __init__(self, settings: GuardSettings, tokens: FlowTokens, cap: int = 65536) -> None:
        self._settings = settings
        self._tokens = tokens
        self._inward: BoundedMap[tuple[Flow, int, Upstream], Stamp] = BoundedMap(cap)
        self._outward: BoundedMap[tuple[Flow, Flow, bytes], Stamp] = BoundedMap(cap)

    def inward(self, source: Flow, client: Flow, upstream: Upstream) -> Stamp:
        """For a request from a client to an upstream. source: where it came from; client: where the client is reached."""
        key = (source, client.remote[1], upstream)
        stamp = self._inward.get(key)
        if stamp is None:
            token = self._tokens.write(client, upstream.id)
            inner, outer = upstream.flow.listener, client.listener
            inner_uri = _uri(inner, "", token)
            stamp = Stamp(
                via_head(inner, ""),
                self._way_back(client),
                b"Record-Route: %b\r\nRecord-Route: %b\r\n" % (inner_uri, _uri(outer, client.local, b"")),
                b"Path: %b\r\n" % inner_uri if self._settings.path else b"",
                self._source(source),
            )
            self._inward.put(key, stamp)
        return stamp

    def outward(self, inside: Flow, client: Flow, upstream: bytes) -> Stamp:
        """For a request from an upstream (its flow, its id) to a client."""
        stamp = self._outward.get((inside, client, upstream))
        if stamp is None:
            outer_uri = _uri(client.listener, client.local, b"")
            inner_uri = _uri(inside.listener, inside.local, self._tokens.write(client, upstream))
            stamp = Stamp(
                via_head(client.listener, client.local),
                self._way_back(inside),
                b"Record-Route: %b\r\nRecord-Route: %b\r\n" % (outer_uri, inner_uri),
                b"",
                b"",
            )
            self._outward.put((inside, client, upstream), stamp)
        return stamp

    def _way_back(self, flow: Flow) -> bytes:
        """The end of our Via: the flow that the response goes to. A stream is found by its number, without a local address."""
        answered = flow._replace(local="") if flow.stream else flow
        return _SIGNED + self._tokens.write(answered, use=VIA) + b"\r\n"

    def _source(self, client: Flow) -> bytes:
        """`X-Guard-Source: ip;port;transport`: every request comes to the upstream from the guard's address."""
        if not self._settings.source_header:
            return b""
        host, port = client.remote[0], client.remote[1]
        return b"%b: %b;%d;%b\r\n" % (
            self._settings.source_header,
            host.encode(),
            port,
            client.listener.transport.encode(),
        )


def via_head(listener: Listener, local: str) -> bytes:
    """Our Via line up to and with the branch's magic cookie."""
    transport = listener.transport.upper().encode()
    return b"Via: SIP/2.0/%b %b;branch=%b" % (transport, listener.sent_by(local), COOKIE)


def _uri(listener: Listener, local: str, token: bytes) -> bytes:
    transport = b"" if listener.transport == "udp" else b";transport=" + listener.transport.encode()
    signed = _SIGNED + token if token else b""
    return b"<sip:%b%b;lr%b>" % (listener.sent_by(local), transport, signed)
