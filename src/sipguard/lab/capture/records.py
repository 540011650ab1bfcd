"""What passes between the container readers and the decoder."""

from __future__ import annotations

from typing import NamedTuple

#: A captured packet: its time (ns since the Unix epoch), its link type (the LINKTYPE_ registry of libpcap), its bytes from
#: the link header on, as many as were captured. A plain tuple: there may be hundreds of millions of them.
Packet = tuple[int, int, bytes]

#: The longest record taken for one. libpcap's own limit is 256 KiB (MAXIMUM_SNAPLEN); a length beyond this is damage.
MAX_RECORD = 1 << 20


#: Behind the method of a request to one of the guard's `exempt_uris` (DESIGN §3).
EXEMPT = " (exempt)"


class Request(NamedTuple):
    """A SIP request found in a capture.

    time_ns: of the packet that completed it, since the Unix epoch. method: as it was sent; with EXEMPT behind it where the
    Request-URI is one that is always passed: no method is called so, so that it counts and is never shed. source: the
    sender's address, 4 or 16 bytes. transport: "udp" or "tcp".
    """

    time_ns: int
    method: str
    source: bytes
    transport: str


class Damage(NamedTuple):
    """Where a file stops being readable.

    offset: in the file's content (after decompression), bytes. reason: in words.
    """

    file: str
    offset: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file}: offset {self.offset}: {self.reason}"


class CaptureError(ValueError):
    """Files that cannot be used at all: which one, None for their company, and why."""

    def __init__(self, file: str | None, reason: str) -> None:
        super().__init__(reason if file is None else f"{file}: {reason}")
        self.file = file
