"""A flow and an upstream in a few signed characters: what our Via, Record-Route and Path carry as `sg` (RFC 5626 5.2)."""

from __future__ import annotations

from ipaddress import ip_address
from typing import NamedTuple

from sipguard.guard.bounded import BoundedMap
from sipguard.guard.flows import Flow, Listener, SocketAddress
from sipguard.guard.keys import Keyring

#: The parameter's name, in Via and in URIs.
PARAMETER = b"sg"

_IN_VIA = b";" + PARAMETER + b"="

NO_UPSTREAM = b"\0\0"

#: What a token is good for. A Record-Route is seen by the other party of a dialog, a Via by the next hop only: what stands
#: in a Route must not open the way of a response.
VIA = b"v"
ROUTE = b"r"

_STREAM_BYTES = 4
_ADDRESS_BYTES = (4, 16)


class Token(NamedTuple):
    """What a token says: the flow to send on, and the upstream of the dialog (NO_UPSTREAM when there is none)."""

    flow: Flow
    upstream: bytes


class FlowTokens:
    """Writes and reads tokens; both ways remembered in bounded maps, since signing costs more than a packet's receive.

    Payload: listener id (1), upstream id (2, left out when there is none), port (2), on stream listeners connection number
    (4), address (4 or 16). On a wildcard bind the local address (4 or 16) follows.
    """

    __slots__ = ("_keyring", "_listeners", "_read", "_written")

    def __init__(self, keyring: Keyring, listeners: tuple[Listener, ...], cap: int = 65536) -> None:
        self._keyring = keyring
        self._listeners = {listener.id: listener for listener in listeners}
        self._written: BoundedMap[tuple[Flow, bytes, bytes], bytes] = BoundedMap(cap)
        self._read: BoundedMap[tuple[bytes, bytes], Token] = BoundedMap(cap)

    def write(self, flow: Flow, upstream: bytes = NO_UPSTREAM, use: bytes = ROUTE) -> bytes:
        """The token of a flow and an upstream's id, for one use (VIA or ROUTE)."""
        known = self._written.get((flow, upstream, use))
        if known is not None:
            return known
        listener = flow.listener
        payload = bytes((listener.id,)) + (b"" if upstream == NO_UPSTREAM else upstream) + flow.remote[1].to_bytes(2)
        if listener.transport != "udp":
            payload += (flow.stream & 0xFFFFFFFF).to_bytes(_STREAM_BYTES)
        payload += ip_address(_unscoped(flow.remote[0])).packed
        if listener.wildcard and flow.local:
            payload += ip_address(_unscoped(flow.local)).packed
        token = self._keyring.current.sign(payload, use)
        self._written.put((flow, upstream, use), token)
        return token

    def read(self, token: bytes, now_ns: int, use: bytes = ROUTE) -> Token | None:
        """What a token says; None when no accepted key signed it for this use or its listener is gone."""
        known = self._read.get((token, use))
        if known is not None:
            return known
        for key in self._keyring.accepted(now_ns):
            payload = key.payload_of(token, use)
            if payload is None:
                continue
            read = self._decode(payload)
            # What the previous key signed is read anew each time: it is accepted for a while only.
            if read is not None and key is self._keyring.current:
                self._read.put((token, use), read)
            return read
        return None

    def _decode(self, payload: bytes) -> Token | None:
        listener = self._listeners.get(payload[0]) if len(payload) >= 5 else None
        if listener is None:
            return None
        upstream, rest = NO_UPSTREAM, payload[1:]
        # Addresses and connection number are multiples of four bytes, the port is two: two more are an upstream's.
        if len(rest) % 4 == 0:
            upstream, rest = rest[:2], rest[2:]
        port, addresses, stream = int.from_bytes(rest[:2]), rest[2:], 0
        if listener.transport != "udp":
            stream, addresses = int.from_bytes(addresses[:_STREAM_BYTES]), addresses[_STREAM_BYTES:]
        local = ""
        if listener.wildcard and len(addresses) in (8, 32):
            half = len(addresses) // 2
            local, addresses = str(ip_address(addresses[half:])), addresses[:half]
        if len(addresses) not in _ADDRESS_BYTES:
            return None
        return Token(Flow(listener, _socket_address(addresses, port), stream, local), upstream)


def token_in(via: bytes) -> bytes | None:
    """The token in one of our own Via values; None when there is none. Anything may stand there: `read` proves it."""
    _, found, rest = via.partition(_IN_VIA)
    return rest.partition(b";")[0].strip() if found else None


def _unscoped(host: str) -> str:
    """A link-local address without its zone: the zone is this machine's, and the listener's route decides it."""
    return host.partition("%")[0]


def _socket_address(address: bytes, port: int) -> SocketAddress:
    host = str(ip_address(address))
    return (host, port) if len(address) == 4 else (host, port, 0, 0)
