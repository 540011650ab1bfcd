"""The guard's own answers: 503, 400, 483, 505, 200 to OPTIONS, 502; stateless (RFC 3261 8.2.6, 8.2.7)."""

from __future__ import annotations

from sipguard.guard.flows import MAX_PORT, SIP_PORT, Flow, Send
from sipguard.guard.keys import Keyring, transaction_of
from sipguard.guard.refused import RefusedInvites
from sipguard.guard.settings import GuardSettings
from sipguard.wire.head import Head
from sipguard.wire.plain import plain_reply, read_plain
from sipguard.wire.replies import reply
from sipguard.wire.values import Via

REASONS = {
    200: b"OK",
    400: b"Bad Request",
    483: b"Too Many Hops",
    502: b"Bad Gateway",
    503: b"Service Unavailable",
    505: b"Version Not Supported",
}


_REFUSED = b"SIP/2.0 503 %b\r\n" % REASONS[503]


def source_of(flow: Flow, via: Via) -> tuple[bytes | None, int | None]:
    """What to write into the top Via: `received` (RFC 3261 18.2.1, RFC 3581 4) and the value of `rport`.

    Also where the client itself wrote a received: that one is never believed.
    """
    host, port = flow.remote[0], flow.remote[1]
    text = b"[%b]" % host.encode() if ":" in host else host.encode()
    asked = via.rport is not None
    if not asked and via.received is None and via.host == text:
        return None, None
    return text.strip(b"[]"), port if asked else None


def back_to(flow: Flow, host: bytes, port: int, *, asks: bool) -> Flow:
    """Where answers and later requests for this client go. On datagrams without rport that is the port in its Via
    (RFC 3261 18.2.2): some phones send from one port and listen on another.

    host, port: of its top Via; asks: it has rport. A Via host that is not the source tells of a NAT: then only the source
    port leads back, as if rport had been asked for.
    """
    remote = flow.remote
    if (
        asks
        or port == remote[1]
        or not 0 < port <= MAX_PORT
        or flow.listener.transport != "udp"
        or host.strip(b"[]") != remote[0].encode()
    ):
        return flow
    return flow._replace(remote=(remote[0], port, *remote[2:]))


def _identity_of(head: Head, via: Via) -> bytes:
    """The transaction of what is answered; answerable without a CSeq number or the like, what the message has must do."""
    return transaction_of(head) or b"%b\0%b" % (via.branch or b"", head.call_id or b"")


class Answers:
    """Builds the answers and recognises the ACKs they cause."""

    __slots__ = ("_keyring", "_refused", "_settings", "_tail")

    def __init__(self, settings: GuardSettings, keyring: Keyring, refused: RefusedInvites) -> None:
        self._settings = settings
        self._keyring = keyring
        self._refused = refused
        server = b"" if settings.server is None else b"Server: %b\r\n" % settings.server
        self._tail = server + b"Content-Length: 0\r\n\r\n"

    def answer(self, head: Head, status: int, flow: Flow, now_ns: int) -> Send | None:
        """A response on the flow the request came on; None when none can be built or none may be (ACK)."""
        via = head.top_via
        if via is None or not head.answerable:
            return None
        transaction = _identity_of(head, via)
        tag = self._keyring.current.tag(transaction)
        if head.method == "INVITE" and head.to_tag is not None and status >= 300:
            self._refused.remember(transaction, now_ns)
        received = rport = None
        if not flow.listener.inside:
            received, rport = source_of(flow, via)
            flow = back_to(flow, via.host, via.port or SIP_PORT, asks=via.rport is not None)
        data = reply(
            head,
            status,
            REASONS[status],
            to_tag=tag,
            received=received,
            rport=rport,
            server=self._settings.server,
            retry_after=self._retry_after(head, tag) if status == 503 else None,
        )
        return Send(data, flow)

    def refuse_plain(self, data: bytes, method: str, flow: Flow) -> Send | None:
        """503 to a plain request from outside (`wire.plain`), the same as `answer` gives; None: go the long way."""
        plain = read_plain(data)
        if plain is None or method == "ACK":
            return None
        sent_by, asks, branch, call_id, number = plain[5:]
        # As `transaction_of` names it, since the ACK is read the long way.
        tag = self._keyring.current.tag(b"\0".join((branch, sent_by, call_id, number)))
        host, port = flow.remote[0], flow.remote[1]
        source = host.encode()
        text = b"[%b]" % source if b":" in source else source
        known = False
        if not asks and sent_by.startswith(text):
            rest = sent_by[len(text) :]
            known = rest[:1] in (b"", b":")
            if known:
                flow = back_to(flow, text, int(rest[1:] or SIP_PORT), asks=False)
        tail = self._tail
        if method in self._settings.retry_after_methods and len(plain[0]) == 1 and self._settings.retry_after_s:
            tail = b"Retry-After: %d\r\n%b" % (self._spread(tag), tail)
        return Send(plain_reply(plain, _REFUSED, tag, None if known else source, port, tail), flow)

    def let_through(self, transaction: bytes) -> None:
        """A copy of an INVITE that was refused before goes on to the server: the ACK is the server's now."""
        self._refused.forget(transaction)

    def is_own_ack(self, head: Head, now_ns: int) -> bool:
        """Whether this ACK answers a final response of the guard: by our To tag, else by memory (SPEC M2)."""
        via = head.top_via
        if via is None or head.to_tag is None:
            return False
        transaction = _identity_of(head, via)
        tags = (key.tag(transaction) for key in self._keyring.accepted(now_ns))
        return head.to_tag in tags or self._refused.knows(transaction, now_ns)

    def _retry_after(self, head: Head, tag: bytes) -> int | None:
        """Seconds, spread over the range by the tag's hash: each client its own, each copy of a request the same."""
        settings = self._settings
        if settings.retry_after_s is None or head.method not in settings.retry_after_methods or len(head.vias) != 1:
            return None
        return self._spread(tag)

    def _spread(self, tag: bytes) -> int:
        assert self._settings.retry_after_s is not None
        low, high = self._settings.retry_after_s
        return low + int.from_bytes(tag[:4]) % (high - low + 1)
