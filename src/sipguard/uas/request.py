"""One request as a server sees it: what it says, who is to be answered, and the answers' common shape."""

from __future__ import annotations

from sipguard.uas.fields import read_fields
from sipguard.uas.peer import Peer, Send
from sipguard.wire.head import Head
from sipguard.wire.replies import reply
from sipguard.wire.values import Via

ALLOW = b"Allow: INVITE, ACK, BYE, CANCEL, OPTIONS, REGISTER, MESSAGE, SUBSCRIBE, NOTIFY, PUBLISH, INFO, UPDATE, REFER, PRACK\r\n"
_NO_BODY = b"Content-Length: 0\r\n\r\n"
_COOKIE = b"z9hG4bK"

TransactionKey = tuple[bytes, ...]
DialogKey = tuple[bytes, bytes, bytes]
"""Call-ID, local tag, remote tag (RFC 3261 12)."""


class Request:
    """An answerable request (or an ACK) from `source`.

    destination: where its responses go (RFC 3261 18.2.2, RFC 3581 4). Without `rport` that is the sent-by port at the
    source address; `maddr` is not obeyed, it would let a stranger aim answers at a third host.
    """

    __slots__ = ("_fields", "_rport", "destination", "head", "method", "received", "source")

    def __init__(self, head: Head, method: str, via: Via, source: Peer) -> None:
        self.head = head
        self.method = method
        self.source = source
        self._fields: dict[bytes, list[bytes]] | None = None
        wants_port = via.rport is not None
        address = b"[%b]" % source.host.encode() if ":" in source.host else source.host.encode()
        self._rport = source.port if wants_port else None
        # RFC 3261 18.2.1: added when the sent-by host differs; RFC 3581 4: always when rport is asked.
        self.received = address.strip(b"[]") if wants_port or via.host != address else None
        if source.reliable or wants_port:
            self.destination = source
        else:
            self.destination = Peer(source.transport, source.host, via.port or 5060)

    def field(self, name: bytes) -> bytes | None:
        """The first value of a header `fields` knows by its long lower-case name."""
        values = self.fields(name)
        return values[0] if values else None

    def fields(self, name: bytes) -> list[bytes]:
        """All values of a header `fields` knows, comma lists whole."""
        if self._fields is None:
            self._fields = read_fields(self.head.data, self.head.body_offset)
        return self._fields.get(name, [])

    @property
    def body(self) -> bytes:
        """The body, cut at Content-Length when there is one (RFC 3261 18.3)."""
        head = self.head
        end = len(head.data) if head.content_length is None else head.body_offset + head.content_length
        return head.data[head.body_offset : end]

    def answer(
        self,
        status: int,
        reason: bytes,
        *,
        to_tag: bytes | None,
        extra: bytes = b"",
        body: bytes = b"",
        content_type: bytes = b"",
        retry_after: int | None = None,
    ) -> bytes:
        """A response of RFC 3261 8.2.6 with a body if there is one; extra: complete header lines."""
        response = reply(
            self.head,
            status,
            reason,
            to_tag=to_tag,
            received=self.received,
            rport=self._rport,
            retry_after=retry_after,
            extra=extra,
        )
        if not body:
            return response
        lines = b"Content-Type: %b\r\nContent-Length: %d\r\n\r\n" % (content_type, len(body))
        return response.removesuffix(_NO_BODY) + lines + body

    def send(self, data: bytes) -> list[Send]:
        """The response on its way."""
        return [Send(data, self.destination)]

    # -- identity --------------------------------------------------------------------------------------------------

    def transaction_key(self, method: str) -> TransactionKey:
        """What retransmissions of this request share; CANCEL and ACK ask for the INVITE's (RFC 3261 17.2.3, 9.2)."""
        head = self.head
        via = head.top_via
        assert via is not None
        branch = via.branch or b""
        if branch.startswith(_COOKIE) and len(branch) > len(_COOKIE):
            return (branch, via.sent_by, method.encode("latin-1"))
        # An RFC 2543 client: the request itself is the identity; ACK and CANCEL repeat all of it but the To tag.
        return (
            head.uri,
            head.from_tag or b"",
            head.call_id or b"",
            b"%d" % (head.cseq_number or 0),
            head.vias[0],
            method.encode("latin-1"),
        )

    @property
    def dialog_key(self) -> DialogKey | None:
        """The dialog an in-dialog request names; None outside of one (no To tag)."""
        local_tag = self.head.to_tag
        return self.dialog_key_with(local_tag) if local_tag else None

    def dialog_key_with(self, local_tag: bytes) -> DialogKey:
        """The dialog this request makes, or is in, under our tag."""
        return (self.head.call_id or b"", local_tag, self.head.from_tag or b"")

    @property
    def secure(self) -> bool:
        """A SIPS URI in the Request-URI, the top Record-Route, or without one the Contact (RFC 3261 12.1.1)."""
        if self.head.uri[:5].lower() == b"sips:":
            return True
        contact = self.field(b"contact")
        first = self.head.record_routes[:1] or ([contact] if contact else [])
        return bool(first) and b"<sips:" in first[0].lower()

    def record_route_lines(self) -> bytes:
        """Every Record-Route value of the request, in order, unchanged (RFC 3261 12.1.1)."""
        return b"".join(
            b"Record-Route: %b\r\n" % value for value in self.head.record_routes if not _breaks_lines(value)
        )


def _breaks_lines(value: bytes) -> bool:
    return b"\r" in value or b"\n" in value or b"\x00" in value
