"""One key signs what the guard writes into messages and reads back: branches, tags, tokens (DESIGN §3)."""

from __future__ import annotations

from base64 import urlsafe_b64decode
from binascii import b2a_base64
from hashlib import blake2b
from hmac import compare_digest

from sipguard.wire.head import Head

KEY_BYTES = 32
_SIGNATURE_BYTES = 6
_TAG_BYTES = 12
# Our Via and Record-Routes may take 250 bytes together (DESIGN §3). 72 bits: among a million open transactions, two alike once
# in ten thousand million.
_BRANCH_BYTES = 9
_MEMORY_BYTES = 12


_URL_SAFE = bytes.maketrans(b"+/", b"-_")


def to_text(raw: bytes) -> bytes:
    """URL-safe base64 without padding: legal in a Via parameter, a URI parameter and a tag."""
    return b2a_base64(raw, newline=False).translate(_URL_SAFE, b"=")


def from_text(text: bytes) -> bytes | None:
    """The bytes of `to_text`, None for anything else: the decoder itself passes over what is not in its alphabet."""
    try:
        raw = urlsafe_b64decode(text + b"=" * (-len(text) % 4))
    except ValueError:
        return None
    return raw if to_text(raw) == text else None


def transaction_of(head: Head) -> bytes | None:
    """What names a transaction in every copy of its request, its CANCEL and its non-2xx ACK.

    Top branch, sent-by, Call-ID, CSeq number (RFC 3261 17.2.3; without a branch the rest must do). None when a part that
    must be there is missing.
    """
    via = head.top_via
    if via is None or head.call_id is None or head.cseq_number is None:
        return None
    return b"%b\0%b\0%b\0%d" % (via.branch or b"", via.sent_by, head.call_id, head.cseq_number)


class Key:
    """One 32-byte key. Raises ValueError for another length."""

    __slots__ = ("_branch", "_memory", "_signature", "_tag")

    def __init__(self, secret: bytes) -> None:
        if len(secret) != KEY_BYTES:
            raise ValueError(f"a key of {len(secret)} bytes: allowed is {KEY_BYTES} bytes")
        # Keyed once and copied per use: keying costs half of a hash.
        self._branch = blake2b(key=secret, digest_size=_BRANCH_BYTES, person=b"branch")
        self._tag = blake2b(key=secret, digest_size=_TAG_BYTES, person=b"tag")
        self._memory = blake2b(key=secret, digest_size=_MEMORY_BYTES, person=b"memory")
        self._signature = blake2b(key=secret, digest_size=_SIGNATURE_BYTES, person=b"token")

    def __repr__(self) -> str:
        return "<key>"

    def branch(self, transaction: bytes) -> bytes:
        """The part of our branch after the magic cookie: 12 characters."""
        state = self._branch.copy()
        state.update(transaction)
        return to_text(state.digest())

    def tag(self, transaction: bytes) -> bytes:
        """The To tag of our own final responses: 16 characters, the same for each copy of the request."""
        state = self._tag.copy()
        state.update(transaction)
        return to_text(state.digest())

    def memory(self, transaction: bytes) -> bytes:
        """What a transaction is remembered by: 12 bytes, nobody can make two alike."""
        state = self._memory.copy()
        state.update(transaction)
        return state.digest()

    def sign(self, payload: bytes, use: bytes = b"") -> bytes:
        """A token: payload and signature as text. use: what it is good for; only the same use reads it back."""
        return to_text(payload + self._signature_of(use + payload))

    def payload_of(self, token: bytes, use: bytes = b"") -> bytes | None:
        """The payload of a token this key signed for this use, None for any other bytes."""
        raw = from_text(token)
        if raw is None or len(raw) <= _SIGNATURE_BYTES:
            return None
        payload = raw[:-_SIGNATURE_BYTES]
        return payload if compare_digest(self._signature_of(use + payload), raw[-_SIGNATURE_BYTES:]) else None

    def _signature_of(self, payload: bytes) -> bytes:
        state = self._signature.copy()
        state.update(payload)
        return state.digest()


class Keyring:
    """The key that signs, and the previous one, still accepted for a while after a change.

    previous_until_ns: on the guard's clock; after it the previous key is accepted no more.
    """

    __slots__ = ("_previous", "_until_ns", "current")

    def __init__(self, current: Key, previous: Key | None = None, previous_until_ns: int = 0) -> None:
        self.current = current
        self._previous = previous
        self._until_ns = previous_until_ns

    def accepted(self, now_ns: int) -> tuple[Key, ...]:
        """The keys whose signatures count now, the current one first."""
        if self._previous is None or now_ns >= self._until_ns:
            return (self.current,)
        return (self.current, self._previous)
