"""The traffic of the demonstration, sans-IO: clients that register, probe, call, acknowledge, hang up and send messages."""

from __future__ import annotations

from collections import deque
from itertools import cycle
from typing import NamedTuple

from sipguard.demo.tally import Tally
from sipguard.uas.fields import read_fields
from sipguard.wire.head import Head, read_head
from sipguard.wire.lists import inside_brackets
from sipguard.wire.scan import is_response

ANSWER_WITHIN_NS = 2_000_000_000
"""A request without a final answer for so long counts as unanswered. It is not repeated: what is offered stays known."""
TALK_NS = 1_500_000_000
"""From a call's 200 to its BYE."""
MAX_WAITING = 20_000
MAX_CALLS = 2_000

# What twenty requests in a row are: as at a trunk in the daytime, registrations and probes beside calls.
_MIX = "ROIRMORIORMROIRORIOM"
_METHODS = {"R": "REGISTER", "O": "OPTIONS", "I": "INVITE", "M": "MESSAGE"}

_OFFER = (
    b"v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n"
    b"m=audio 40000 RTP/AVP 8 0 101\r\na=rtpmap:101 telephone-event/8000\r\na=sendrecv\r\n"
)


class _Waiting(NamedTuple):
    """A request sent and not finally answered."""

    method: str
    branch: bytes
    uri: bytes
    sent_ns: int


class _Call(NamedTuple):
    """A call set up: what ACK and BYE are made from."""

    uri: bytes
    routes: bytes
    to: bytes
    hang_up_ns: int


class Traffic:
    """Requests to send, one after the other, and what their answers ask for in turn.

    local: our host:port. domain: whom the requests are for. `tally` counts what came of them.
    """

    def __init__(self, local: bytes, domain: bytes) -> None:
        self.tally = Tally()
        self._local = local
        self._domain = domain
        self._mix = cycle([_METHODS[letter] for letter in _MIX])
        self._numbers = 0
        self._waiting: dict[bytes, _Waiting] = {}
        self._calls: dict[bytes, _Call] = {}
        self._hang_ups: deque[tuple[int, bytes]] = deque()

    def __repr__(self) -> str:
        return f"<Traffic waiting={len(self._waiting)} calls={len(self._calls)} {self.tally!r}>"

    def new_request(self, now_ns: int) -> bytes:
        """The next request of the mix, outside of any dialog."""
        method = next(self._mix)
        self._numbers += 1
        number = b"%d" % self._numbers
        call_id = b"%b-demo@127.0.0.1" % number
        uri = b"sip:user%d@%b" % (self._numbers % 500, self._domain)
        body, extra = b"", b""
        if method == "REGISTER":
            to, uri = uri, b"sip:" + self._domain
            extra = b"Expires: 300\r\n"
        else:
            to = uri
            if method == "INVITE":
                body, extra = _OFFER, b"Content-Type: application/sdp\r\n"
            elif method == "MESSAGE":
                body, extra = b"Good morning", b"Content-Type: text/plain\r\n"
        if method != "MESSAGE":
            extra += b"Contact: <sip:load@%b>\r\n" % self._local
        return self._send(method, uri, call_id, b"<%b>" % to, 1, now_ns, extra, body)

    def due(self, now_ns: int) -> list[bytes]:
        """The BYEs of calls that have lasted long enough."""
        byes: list[bytes] = []
        while self._hang_ups and self._hang_ups[0][0] <= now_ns:
            call_id = self._hang_ups.popleft()[1]
            call = self._calls.get(call_id)
            if call is not None:
                byes.append(self._send("BYE", call.uri, call_id, call.to, 2, now_ns, call.routes, b""))
        return byes

    def receive(self, data: bytes, now_ns: int) -> tuple[list[bytes], int]:
        """One datagram: the ACK it asks for, if any, and how many of what is returned the guard counts (SPEC M2).

        The ACK to a final answer above 299 is hop by hop: when the guard made that answer, its ACK is not counted.
        """
        head = read_head(data)
        if not is_response(data) or head.call_id is None or head.cseq_method is None or head.status < 200:
            return [], 0
        method = head.cseq_method.decode("latin-1")
        invite = method == "INVITE"
        waiting = self._waiting.pop(head.call_id + head.cseq_method, None)
        if waiting is not None:
            self.tally.answered(method, head.status)
        if method == "BYE":
            self._calls.pop(head.call_id, None)
        if not invite:
            return [], 0
        if head.status >= 300:
            return ([self._ack_refusal(head, waiting)], 0) if waiting is not None else ([], 0)
        call = self._calls.get(head.call_id)
        if call is None:
            if waiting is None:
                return [], 0
            call = self._open_call(head, now_ns)
        return [self._ack_call(head, call)], 1

    def forget_unanswered(self, now_ns: int, within_ns: int = ANSWER_WITHIN_NS) -> None:
        """Count as unanswered what has waited too long; the oldest first, in order of sending."""
        waiting = self._waiting
        while waiting:
            key = next(iter(waiting))
            if now_ns - waiting[key].sent_ns < within_ns and len(waiting) <= MAX_WAITING:
                return
            self.tally.unanswered(waiting.pop(key).method)

    # -- inside ----------------------------------------------------------------------------------------------------

    def _send(
        self, method: str, uri: bytes, call_id: bytes, to: bytes, cseq: int, now_ns: int, extra: bytes, body: bytes
    ) -> bytes:
        name = method.encode()
        branch = b"z9hG4bK-%b-%b" % (name, call_id.partition(b"@")[0])
        self._waiting[call_id + name] = _Waiting(method, branch, uri, now_ns)
        self.tally.sent(method)
        return self._message(name, uri, branch, call_id, to, cseq, extra, body)

    def _message(
        self, name: bytes, uri: bytes, branch: bytes, call_id: bytes, to: bytes, cseq: int, extra: bytes, body: bytes
    ) -> bytes:
        return (
            b"%b %b SIP/2.0\r\nVia: SIP/2.0/UDP %b;rport;branch=%b\r\nMax-Forwards: 70\r\n"
            b"From: <sip:load@%b>;tag=%b\r\nTo: %b\r\nCall-ID: %b\r\nCSeq: %d %b\r\nUser-Agent: sipguard-demo\r\n"
            b"%bContent-Length: %d\r\n\r\n%b"
            % (
                *(name, uri, self._local, branch),
                *(self._domain, call_id.partition(b"@")[0], to, call_id, cseq, name),
                *(extra, len(body), body),
            )
        )

    def _open_call(self, head: Head, now_ns: int) -> _Call:
        contact = read_fields(head.data, head.body_offset).get(b"contact", [b""])[0]
        # RFC 3261 12.1.2: the route set is the Record-Route of the answer, last first.
        routes = b"".join(b"Route: %b\r\n" % route for route in reversed(head.record_routes))
        call = _Call(inside_brackets(contact) or contact, routes, head.to or b"", now_ns + TALK_NS)
        assert head.call_id is not None
        if len(self._calls) >= MAX_CALLS:
            del self._calls[next(iter(self._calls))]
        self._calls[head.call_id] = call
        self._hang_ups.append((call.hang_up_ns, head.call_id))
        return call

    def _ack_call(self, head: Head, call: _Call) -> bytes:
        assert head.call_id is not None
        branch = b"z9hG4bK-ACK-" + head.call_id.partition(b"@")[0]
        self.tally.sent("ACK")
        return self._message(b"ACK", call.uri, branch, head.call_id, call.to, 1, call.routes, b"")

    def _ack_refusal(self, head: Head, waiting: _Waiting) -> bytes:
        # RFC 3261 17.1.1.3: the INVITE's Request-URI and branch, the answer's To.
        assert head.call_id is not None
        return self._message(b"ACK", waiting.uri, waiting.branch, head.call_id, head.to or b"", 1, b"", b"")
