"""The stateless proxy (RFC 3261 16.11): requests in and out, responses back."""

from __future__ import annotations

from sipguard.guard.answers import Answers, back_to, source_of
from sipguard.guard.counters import Counters
from sipguard.guard.flows import SIP_PORT, Flow, Send
from sipguard.guard.keys import Keyring, transaction_of
from sipguard.guard.routing import OwnRoutes, Routing
from sipguard.guard.settings import GuardSettings
from sipguard.guard.stamps import COOKIE, Stamps, via_head
from sipguard.guard.tokens import NO_UPSTREAM, VIA, FlowTokens, token_in
from sipguard.wire.edits import forward_request, pop_via
from sipguard.wire.front import pop_front_via
from sipguard.wire.head import Head, read_head
from sipguard.wire.seal import seal
from sipguard.wire.strict import stream_problem
from sipguard.wire.values import read_uri

#: Requests that may form a dialog (RFC 3261 12.1, RFC 6665 4.4.1, RFC 3515 2.4.4): they carry our Record-Route.
DIALOG_FORMING = frozenset(("INVITE", "SUBSCRIBE", "REFER"))

#: An MTU of 1500 less the IPv4 and UDP headers: a datagram over it is cut into fragments.
MTU_PAYLOAD = 1472

_NO_ROUTES = OwnRoutes(0, None)


class Forwarder:
    """Turns a message into the one to send on, or into the guard's own answer."""

    __slots__ = (
        "_answers",
        "_counters",
        "_keyring",
        "_own_via",
        "_routing",
        "_settings",
        "_stamps",
        "_tokens",
    )

    def __init__(
        self,
        settings: GuardSettings,
        keyring: Keyring,
        tokens: FlowTokens,
        routing: Routing,
        answers: Answers,
        counters: Counters,
    ) -> None:
        self._settings = settings
        self._keyring = keyring
        self._tokens = tokens
        self._routing = routing
        self._answers = answers
        self._counters = counters
        self._stamps = Stamps(settings, tokens)
        #: How our Via begins in what an inside listener hears; from outside the long way reads every response whole.
        self._own_via = {
            listener.id: via_head(listener, "")
            for listener in settings.listeners
            if listener.inside and not listener.wildcard
        }

    # -- requests --------------------------------------------------------------------------------------------------

    def inward(self, head: Head, flow: Flow, now_ns: int) -> Send | None:
        """A request from outside that the law lets through: to an upstream only, never to its Request-URI (no open relay)."""
        ended = self._ended_here(head, flow)
        if ended is not None:
            return self._answer(head, *ended, flow, now_ns)
        routes = self._routing.own_routes(head, flow, now_ns) if head.routes else _NO_ROUTES
        upstream = self._routing.upstream_for(head, flow.listener.transport, routes.token)
        if upstream is None:
            return self._answer(head, 503, "no-upstream", flow, now_ns)
        if upstream.transport != "udp":
            problem = stream_problem(head)
            if problem is not None:
                return self._answer(head, 400, problem, flow, now_ns)
        via, transaction = head.top_via, transaction_of(head)
        assert via is not None
        assert transaction is not None  # a head without either has a problem, and ended above
        client = back_to(flow, via.host, via.port or SIP_PORT, asks=via.rport is not None)
        stamp = self._stamps.inward(flow, client, upstream)
        insert = stamp.via_head + self._keyring.current.branch(transaction) + stamp.via_tail
        if head.method == "INVITE":
            self._answers.let_through(transaction)
        if self._records(head):
            insert += stamp.record_routes
        elif head.method == "REGISTER":
            insert += stamp.path
        sent = self._counters.sent
        sent[upstream.id] = sent.get(upstream.id, 0) + 1
        received, rport = source_of(flow, via)
        data = forward_request(head, insert + stamp.source, received=received, rport=rport, drop_routes=routes.own)
        return self._sent(data, head, upstream.flow)

    def outward(self, head: Head, flow: Flow, now_ns: int) -> Send | None:
        """A request from an upstream: out by the flow its Route names, else to a numeric next hop."""
        ended = self._ended_here(head, flow)
        if ended is not None:
            return self._answer(head, *ended, flow, now_ns)
        routes = self._routing.own_routes(head, flow, now_ns) if head.routes else _NO_ROUTES
        client = self._routing.next_hop(head, routes)
        if client is None:
            return self._answer(head, 502, "no-next-hop", flow, now_ns)
        transaction = transaction_of(head)
        assert transaction is not None
        # The server that asks is the dialog's; a token may be a registration's, which another server took.
        server = self._routing.server_at(flow.listener.transport, flow.remote[0], flow.remote[1])
        upstream = server.id if server else routes.token.upstream if routes.token else NO_UPSTREAM
        stamp = self._stamps.outward(flow, client, upstream)
        insert = stamp.via_head + self._keyring.current.branch(transaction) + stamp.via_tail
        if self._records(head):
            insert += stamp.record_routes
        # The source header is for servers: it does not tell one client another's address.
        data = forward_request(head, insert, received=None, rport=None, drop_routes=routes.own)
        return self._sent(data, head, client)

    def _ended_here(self, head: Head, flow: Flow) -> tuple[int, str] | None:
        """The status and the reason when a request goes no further; None when it goes on (RFC 3261 16.3)."""
        problem = head.problem
        if problem is not None:
            return (505 if problem == "version" else 400), problem
        if head.method == "OPTIONS" and self._aims_here(head, flow):
            return 200, "options"
        return (483, "max-forwards") if head.max_forwards == 0 else None

    def _aims_here(self, head: Head, flow: Flow) -> bool:
        """OPTIONS to the guard's own address without a user (RFC 3261 11.1: a probe of this hop)."""
        if flow.listener.inside and head.routes:
            return False
        uri = read_uri(head.uri)
        return uri is not None and not uri.user and self._routing.is_own(uri, flow)

    def _answer(self, head: Head, status: int, reason: str, flow: Flow, now_ns: int) -> Send | None:
        # A server's requests are no verdict's: what ends them is kept apart from the outcomes of allow (DESIGN §5).
        side = "inside-" if flow.listener.inside else ""
        outcomes = self._counters.outcomes
        outcomes.add(side + reason)
        sent = self._answers.answer(head, status, flow, now_ns)
        if sent is None:
            outcomes.add(side + "unanswerable")
        return sent

    def _records(self, head: Head) -> bool:
        return self._settings.record_route and head.method in DIALOG_FORMING and head.to_tag is None

    def _sent(self, data: bytes, head: Head, flow: Flow) -> Send:
        if flow.listener.transport != "udp":
            return Send(seal(data), flow)
        if len(data) > MTU_PAYLOAD >= len(head.data):
            self._counters.outcomes.add("over-mtu")
        return Send(data, flow)

    # -- responses -------------------------------------------------------------------------------------------------

    def response(self, data: bytes, flow: Flow, now_ns: int) -> Send | None:
        """A response from either side: its top Via must be ours, and names the flow on the other side.

        `maddr` is ignored on purpose: it would make the guard a reflector (DESIGN §3).
        """
        start = self._own_via.get(flow.listener.id)
        if start is not None:
            popped = pop_front_via(data, start)
            if popped is not None:
                return self._back(popped[0], popped[1], None, flow, now_ns)
        head = read_head(data)
        via = head.top_via
        if head.problem is not None or via is None:
            return self._lost("response-malformed")
        if not (via.branch or b"").startswith(COOKIE):
            return self._lost("response-not-ours")
        if len(head.vias) < 2:
            return self._lost("response-no-via")
        return self._back(pop_via(head), head.vias[0], head, flow, now_ns)

    def _back(self, popped: bytes, via: bytes, head: Head | None, flow: Flow, now_ns: int) -> Send | None:
        """A response without our Via, to the flow that this Via names. head: as it came, where it has been read."""
        signed = token_in(via)
        token = self._tokens.read(signed, now_ns, VIA) if signed else None
        if token is None:
            return self._lost("response-not-ours")
        if token.flow.listener.inside is flow.listener.inside:
            # Ours, but for the other side: a request's own Via sent back to where it came from.
            return self._lost("response-wrong-side")
        if token.flow.listener.transport == "udp":
            return Send(popped, token.flow)
        # Toward the servers the stream is all clients' (a client's response is always read whole).
        if token.flow.listener.inside and head is not None and stream_problem(head) is not None:
            return self._lost("response-malformed")
        return Send(seal(popped), token.flow)

    def origin_of(self, data: bytes, now_ns: int) -> tuple[Head, Flow] | None:
        """The request as its sender wrote it, and the sender's flow, out of what was to be sent on; None for a response."""
        head = read_head(data)
        signed = token_in(head.vias[0]) if head.vias else None
        token = self._tokens.read(signed, now_ns, VIA) if signed else None
        if head.method is None or token is None:
            return None
        return read_head(pop_via(head)), token.flow

    def _lost(self, reason: str) -> Send | None:
        self._counters.discards.add(reason)
        return None
