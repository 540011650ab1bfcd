"""The load: prebuilt SIP datagrams, each with a number of its own, sent by sendmmsg(2) from one core.

Python builds every datagram once; per turn it writes only a few digits in place, so that one core offers several times what
a proxy on another can answer.
"""

from __future__ import annotations

import ctypes
import os
import socket
import time
from collections.abc import Sequence
from typing import Final

#: In a template: eight digits, different in each datagram sent (branch, tag, Call-ID, CSeq).
NUMBER: Final = b"@NUMBER@"

#: Datagrams of one system call.
BATCH: Final = 64

#: Datagrams a lane holds; a multiple of BATCH, at most 1000 (three of the eight digits).
SLOTS: Final = 256

_EPOCH_DIGITS: Final = 5
_EPOCHS: Final = 10**_EPOCH_DIGITS
_NAP_NS: Final = 20_000  # nearer than this to the next moment, waiting is cheaper than sleeping


class LoadError(RuntimeError):
    """A datagram could not be sent; the text names the cause."""


class _Iovec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class _Header(ctypes.Structure):
    """struct msghdr. iov: the address of an _Iovec."""

    _fields_ = (
        ("name", ctypes.c_void_p),
        ("name_length", ctypes.c_uint32),
        ("iov", ctypes.c_void_p),
        ("iov_length", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_length", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    )


class _Message(ctypes.Structure):
    """struct mmsghdr of sendmmsg(2)."""

    _fields_ = (("header", _Header), ("octets_sent", ctypes.c_uint32))


_sendmmsg = ctypes.CDLL(None, use_errno=True).sendmmsg
_sendmmsg.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_uint, ctypes.c_int)
_sendmmsg.restype = ctypes.c_int


class Lane:
    """One template and the connected socket it is sent on.

    The slots lie one behind the other in one buffer; slot s of turn t carries the number `ttttt` `sss`. A number comes back
    after SLOTS × 100,000 datagrams.
    """

    __slots__ = (
        "_address",
        "_buffer",
        "_digits_at",
        "_fd",
        "_length",
        "_messages",
        "_next",
        "_turn",
        "_vectors",
        "sock",
    )

    def __init__(self, sock: socket.socket, template: bytes) -> None:
        self.sock = sock
        self._fd = sock.fileno()
        self._length = len(template)
        self._digits_at = _positions(template)
        slots = (template.replace(NUMBER, b"%0*d%03d" % (_EPOCH_DIGITS, 0, slot)) for slot in range(SLOTS))
        self._buffer = bytearray(b"".join(slots))
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._buffer))
        self._vectors = (_Iovec * SLOTS)(*(_Iovec(start + slot * self._length, self._length) for slot in range(SLOTS)))
        self._messages = (_Message * SLOTS)()
        for message, vector in zip(self._messages, self._vectors, strict=True):
            message.header.iov, message.header.iov_length = ctypes.addressof(vector), 1
        self._address = ctypes.addressof(self._messages)
        self._next = self._turn = 0

    @property
    def first(self) -> bytes:
        """The datagram that is sent next."""
        start = self._next * self._length
        return bytes(self._buffer[start : start + self._length])

    def send(self, wanted: int) -> int:
        """Send the next datagrams, at most to the end of the turn; how many. Raises LoadError when not all could be sent."""
        count = min(wanted, BATCH, SLOTS - self._next)
        sent: int = _sendmmsg(self._fd, self._address + self._next * ctypes.sizeof(_Message), count, 0)
        if sent < 0:
            raise LoadError(f"sendmmsg: {os.strerror(ctypes.get_errno())}")
        if sent < count:
            # The socket waits when its buffer is full, so this is an error, most likely a refusal: nobody listens there.
            raise LoadError(f"sendmmsg: {sent} of {count} datagrams sent")
        self._next += sent
        if self._next == SLOTS:
            self._next = 0
            self._begin_turn()
        return sent

    def _begin_turn(self) -> None:
        """New numbers in every slot: one strided copy per digit."""
        self._turn = (self._turn + 1) % _EPOCHS
        for offset, digit in enumerate(b"%0*d" % (_EPOCH_DIGITS, self._turn)):
            column = bytes((digit,)) * SLOTS
            for start in self._digits_at:
                self._buffer[start + offset :: self._length] = column


class Load:
    """Several lanes in turn. sent: datagrams since it was made."""

    __slots__ = ("_lanes", "_turn", "sent")

    def __init__(self, lanes: Sequence[Lane]) -> None:
        self._lanes = tuple(lanes)
        self._turn = 0
        self.sent = 0

    def send(self, count: int) -> None:
        """Exactly so many."""
        lanes, left = self._lanes, count
        while left > 0:
            self._turn = (self._turn + 1) % len(lanes)
            left -= lanes[self._turn].send(left)
        self.sent += count

    def flood(self, seconds: float) -> None:
        """As fast as this core can."""
        end_ns = time.monotonic_ns() + round(seconds * 1e9)
        while time.monotonic_ns() < end_ns:
            self.send(BATCH)

    def pace(self, per_second: int, seconds: float) -> None:
        """Evenly, each datagram at its own moment of an absolute grid; what is late is sent at once."""
        start_ns, total, done = time.monotonic_ns(), round(per_second * seconds), 0
        while done < total:
            passed_ns = time.monotonic_ns() - start_ns
            due = min(total, passed_ns * per_second // 1_000_000_000 + 1)
            if due > done:
                self.send(due - done)
                done = due
                continue
            wait_ns = done * 1_000_000_000 // per_second - passed_ns
            if wait_ns > _NAP_NS:
                time.sleep(wait_ns / 1e9)


def _positions(template: bytes) -> list[int]:
    """Where the marks stand."""
    found, at = [], template.find(NUMBER)
    while at >= 0:
        found.append(at)
        at = template.find(NUMBER, at + 1)
    return found
