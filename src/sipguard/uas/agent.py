"""A SIP server that answers by itself, sans-IO: bytes and time in, messages to send out (RFC 3261 8.2, 12, 13.3, 15.1.2, 17.2).

It is there so that a guard without an upstream can be tried by any SIP client, and so that a demonstration has a real
server to protect. It keeps no bindings and sends no requests: a call whose 200 is never acknowledged is forgotten after
64·T1, without the BYE of 13.3.1.4.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import NamedTuple

from sipguard.uas import answers, sdp
from sipguard.uas.answers import Refusal
from sipguard.uas.invites import LIFE_NS, Invite, InviteTable, Phase
from sipguard.uas.peer import Peer, Send
from sipguard.uas.request import DialogKey, Request, TransactionKey
from sipguard.uas.table import BoundedTable
from sipguard.wire.head import Head, read_head
from sipguard.wire.scan import request_method
from sipguard.wire.values import read_uri

LONG_RING_NS = 60_000_000_000
"""How long the user `ring` rings: long enough for a person to try CANCEL."""


class Dialog:
    """What a server must remember of a dialog: the peer's CSeq number, the INVITE in progress, its description's version."""

    __slots__ = ("invite", "remote_cseq", "version")

    def __init__(self, remote_cseq: int) -> None:
        self.remote_cseq = remote_cseq
        self.invite: Invite | None = None
        self.version = 0

    def __repr__(self) -> str:
        return f"<Dialog remote_cseq={self.remote_cseq} {self.invite!r}>"


class _Answer(NamedTuple):
    data: bytes
    until_ns: int


class UserAgentServer:
    """Answers requests; `receive` and `tick` return what to send, `next_deadline` says when to call `tick`.

    ring_ns: from 180 to 200. key: secret bytes (at most 64) that make its tags unguessable (RFC 3261 19.3).
    addresses: transport to our `host:port`, for Contact and SDP. Every table forgets its oldest entry beyond its cap:
    max_invites, max_dialogs and max_answers entries, max_bytes in each. Counters, whole life: requests, ignored (no
    request, or one that cannot be answered), repeated (retransmissions received), abandoned (calls never acknowledged).
    """

    def __init__(
        self,
        *,
        ring_ns: int = 200_000_000,
        key: bytes = b"",
        addresses: Mapping[str, bytes] | None = None,
        max_invites: int = 10_000,
        max_dialogs: int = 10_000,
        max_answers: int = 16_384,
        max_bytes: int = 32 * 1024 * 1024,
    ) -> None:
        if len(key) > blake2b.MAX_KEY_SIZE:
            raise ValueError(f"key: {len(key)} bytes, allowed are at most {blake2b.MAX_KEY_SIZE}")
        self.ring_ns = ring_ns
        self.addresses = dict(addresses or {})
        self.requests = self.ignored = self.repeated = self.abandoned = 0
        self._key = key
        self._invites = InviteTable(max_invites, max_bytes)
        self._dialogs: BoundedTable[DialogKey, Dialog] = BoundedTable(max_dialogs, max_bytes)
        self._answers: BoundedTable[TransactionKey, _Answer] = BoundedTable(max_answers, max_bytes)

    def __repr__(self) -> str:
        return (
            f"<UserAgentServer invites={len(self._invites)} dialogs={len(self._dialogs)} answers={len(self._answers)}>"
        )

    def receive(self, data: bytes, source: Peer, now_ns: int) -> list[Send]:
        """One datagram, or one message of a stream. Never raises on any bytes; what is no request is ignored."""
        method = request_method(data)
        head = read_head(data) if method is not None else None
        via = head.top_via if head is not None else None
        if method is None or head is None or via is None or not (head.answerable or method == "ACK"):
            self.ignored += 1
            return []
        self.requests += 1
        request = Request(head, method, via, source)
        problem = head.problem
        if method == "ACK":
            if problem is None:
                self._acknowledge(request, now_ns)
            return []
        if problem is not None:
            status, reason = (505, b"Version Not Supported") if problem == "version" else (400, b"Bad Request")
            return request.send(request.answer(status, reason, to_tag=self._tag(head)))
        if method == "INVITE":
            return self._invite(request, now_ns)
        return self._other(request, now_ns)

    def tick(self, now_ns: int) -> list[Send]:
        """What time has brought by now_ns: calls answered, finals repeated."""
        answered, abandoned, sends = self._invites.due(now_ns)
        for invite in answered:
            sends += self._accept(invite, now_ns)
        for key in abandoned:
            self.abandoned += 1
            self._dialogs.pop(key)
        return sends

    def next_deadline(self) -> int | None:
        """When `tick` is due next; None: nothing is waited for."""
        return self._invites.next_deadline()

    # -- INVITE ----------------------------------------------------------------------------------------------------

    def _invite(self, request: Request, now_ns: int) -> list[Send]:
        key = request.transaction_key("INVITE")
        known = self._invites.get(key)
        if known is not None:
            self.repeated += 1
            return request.send(known.last) if known.last else []
        head = request.head
        dialog_key = request.dialog_key
        dialog = self._dialogs.get(dialog_key) if dialog_key is not None else None
        invite = Invite(key, request, head.to_tag or self._tag(head))
        self._invites.open(invite)
        refusal = self._judge(request, dialog) or answers.refuse_content(request) or _judge_pending(dialog)
        if refusal is None:
            version = dialog.version + 1 if dialog is not None else 1
            session = self._session(request, version)
            refusal = answers.NOT_ACCEPTABLE if session is None else None
            invite.session = session or b""
        if refusal is not None:
            return self._refuse(invite, refusal, now_ns)
        if dialog is not None:
            dialog.invite = invite
            return self._accept(invite, now_ns)  # no one is asked about a re-INVITE (14.2)
        dialog = self._open_dialog(request, invite.local_tag)
        dialog.invite = invite
        return self._ring(invite, request, now_ns)

    def _ring(self, invite: Invite, request: Request, now_ns: int) -> list[Send]:
        # RFC 3261 8.2.6.1: a Timestamp goes into the 100, which needs no To tag.
        stamp = request.field(b"timestamp")
        trying = request.answer(
            100, b"Trying", to_tag=None, extra=b"Timestamp: %b\r\n" % stamp if stamp is not None else b""
        )
        lines = answers.dialog_lines(request, self._address(request))
        invite.last = request.answer(180, b"Ringing", to_tag=invite.local_tag, extra=lines)
        uri = read_uri(request.head.uri)
        patient = uri is not None and uri.user == b"ring"
        self._invites.ring(invite, now_ns + (LONG_RING_NS if patient else self.ring_ns))
        return request.send(trying) + request.send(invite.last)

    def _accept(self, invite: Invite, now_ns: int) -> list[Send]:
        request = invite.request
        assert request is not None
        key = invite.dialog_key
        dialog = self._dialogs.get(key) or self._open_dialog(request, invite.local_tag)
        dialog.invite = invite
        dialog.version += 1
        response = request.answer(
            200,
            b"OK",
            to_tag=invite.local_tag,
            extra=answers.invite_lines(request, self._address(request)),
            body=invite.session,
            content_type=sdp.CONTENT_TYPE,
        )
        self._invites.finish(invite, response, accepted=True, now_ns=now_ns)
        return [Send(response, invite.destination)]

    def _refuse(self, invite: Invite, refusal: Refusal, now_ns: int) -> list[Send]:
        request = invite.request
        assert request is not None
        response = _refusal(request, refusal, invite.local_tag)
        self._invites.finish(invite, response, accepted=False, now_ns=now_ns)
        return [Send(response, invite.destination)]

    def _terminate(self, invite: Invite, now_ns: int) -> list[Send]:
        """487 to an INVITE still ringing (9.2, 15.1.2); nothing to another."""
        request = invite.request
        if invite.phase is not Phase.RINGING or request is None:
            return []
        self._dialogs.pop(invite.dialog_key)
        return self._refuse(invite, Refusal(487, b"Request Terminated"), now_ns)

    def _acknowledge(self, request: Request, now_ns: int) -> None:
        invite = self._invites.get(request.transaction_key("INVITE"))
        if invite is None:
            # The ACK to a 2xx is a transaction of its own: dialog and CSeq number tell which INVITE it means (13.2.2.4).
            key = request.dialog_key
            dialog = self._dialogs.get(key) if key is not None else None
            invite = dialog.invite if dialog is not None else None
            if invite is None or invite.cseq != request.head.cseq_number:
                return
        self._invites.acknowledge(invite, now_ns)

    def _session(self, request: Request, version: int) -> bytes | None:
        """Our description for an INVITE or UPDATE; None: its offer is not acceptable."""
        address = self._address(request)
        host = address.rpartition(b":")[0].strip(b"[]")
        # The o= line's id: one number per call, whatever dialog event asks (RFC 4566 5.2).
        number = int.from_bytes(self._digest(b"session", request.head.call_id or b"")[:4], "big")
        if request.body:
            return sdp.make_answer(request.body, host, number, version)
        return sdp.make_offer(host, number, version)

    # -- other methods ---------------------------------------------------------------------------------------------

    def _other(self, request: Request, now_ns: int) -> list[Send]:
        key = request.transaction_key(request.method)
        known = self._answers.get(key)
        if known is not None and now_ns < known.until_ns:
            self.repeated += 1
            return request.send(known.data)
        if request.method == "CANCEL":
            response, more = self._cancel(request, now_ns)
        else:
            response, more = self._answer(request, now_ns)
        self._remember(key, response, now_ns)
        return request.send(response) + more

    def _cancel(self, request: Request, now_ns: int) -> tuple[bytes, list[Send]]:
        # RFC 3261 9.2. Both answers carry the same To tag.
        invite = self._invites.get(request.transaction_key("INVITE"))
        if invite is None:
            return _refusal(request, answers.NO_DIALOG, self._tag(request.head)), []
        return request.answer(200, b"OK", to_tag=invite.local_tag), self._terminate(invite, now_ns)

    def _answer(self, request: Request, now_ns: int) -> tuple[bytes, list[Send]]:
        method, head = request.method, request.head
        tag = self._tag(head)
        lines = answers.ACCEPTED_LINES.get(method)
        key = request.dialog_key
        dialog = self._dialogs.get(key) if key is not None else None
        refusal = answers.NOT_IMPLEMENTED if lines is None else self._judge(request, dialog)
        body: bytes | None = b""
        if refusal is None and method == "UPDATE" and request.body:
            version = dialog.version + 1 if dialog is not None else 1
            body = self._session(request, version)
            refusal = answers.refuse_content(request) or (answers.NOT_ACCEPTABLE if body is None else None)
        if refusal is not None or lines is None:
            return _refusal(request, refusal or answers.NOT_IMPLEMENTED, tag), []
        extra = lines(request, self._address(request))
        if method == "PUBLISH":
            extra += b"SIP-ETag: %b\r\n" % self._digest(b"etag", head.call_id or b"", head.cseq or b"").hex().encode()
        if method in answers.MAKES_DIALOG and dialog is None:
            self._open_dialog(request, tag)
        if body and dialog is not None:
            dialog.version += 1
        more: list[Send] = []
        if method == "BYE" and key is not None and dialog is not None:
            self._dialogs.pop(key)
            more = self._terminate(dialog.invite, now_ns) if dialog.invite is not None else []
        return request.answer(
            200, b"OK", to_tag=tag, extra=extra, body=body or b"", content_type=sdp.CONTENT_TYPE
        ), more

    def _judge(self, request: Request, dialog: Dialog | None) -> Refusal | None:
        """What every method but ACK and CANCEL must pass: its dialog, its order in it, its Require."""
        head = request.head
        if dialog is None:
            named = request.dialog_key is not None
            if (named and request.method in answers.NEEDS_DIALOG) or (request.method == "BYE"):
                return answers.NO_DIALOG
        else:
            number = head.cseq_number or 0
            if number < dialog.remote_cseq:
                return answers.OUT_OF_ORDER  # RFC 3261 12.2.2
            dialog.remote_cseq = number
        return answers.refuse_extensions(request)

    def _remember(self, key: TransactionKey, response: bytes, now_ns: int) -> None:
        """Keep an answer for its retransmissions (timer J); all live equally long, so the oldest expires first."""
        table = self._answers
        while (oldest := table.oldest()) is not None and oldest[1].until_ns <= now_ns:
            table.pop(oldest[0])
        table.put(key, _Answer(response, now_ns + LIFE_NS), len(response) + sum(map(len, key)) + 300)

    # -- identity --------------------------------------------------------------------------------------------------

    def _open_dialog(self, request: Request, local_tag: bytes) -> Dialog:
        key = request.dialog_key_with(local_tag)
        dialog = Dialog(request.head.cseq_number or 0)
        self._dialogs.put(key, dialog, sum(map(len, key)) + 400)
        return dialog

    def _address(self, request: Request) -> bytes:
        return self.addresses.get(request.source.transport, b"127.0.0.1:5060")

    def _tag(self, head: Head) -> bytes:
        """Our To tag for a request: the same for each retransmission, unguessable without the key (RFC 3261 19.3)."""
        via = head.vias[0] if head.vias else b""
        parts = (head.call_id or b"", head.from_ or b"", head.cseq or b"", via)
        return self._digest(b"tag", *parts).hex().encode()

    def _digest(self, use: bytes, *parts: bytes) -> bytes:
        digest = blake2b(use, digest_size=8, key=self._key)
        for part in parts:
            digest.update(b"%d:" % len(part))
            digest.update(part)
        return digest.digest()


def _judge_pending(dialog: Dialog | None) -> Refusal | None:
    """500 while an earlier INVITE of the dialog has no final answer (RFC 3261 14.2; its Retry-After is 0 to 10 s)."""
    if dialog is None or dialog.invite is None or dialog.invite.phase is not Phase.RINGING:
        return None
    return Refusal(500, b"Server Internal Error", retry_after=5)


def _refusal(request: Request, refusal: Refusal, to_tag: bytes) -> bytes:
    return request.answer(
        refusal.status, refusal.reason, to_tag=to_tag, extra=refusal.extra, retry_after=refusal.retry_after
    )
