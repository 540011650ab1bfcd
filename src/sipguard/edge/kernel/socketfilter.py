"""One socket's filter and the counter of what it dropped: the system calls, nothing else.

Needs no privilege. Linux only: elsewhere each call raises OSError(EOPNOTSUPP), since option 26 may mean anything there.
Source: socket(7), ``net/core/sock.c`` (sk_attach_filter, sk_get_meminfo).
"""

from __future__ import annotations

import ctypes
import errno
import socket
import struct
import sys
from collections.abc import Sequence
from typing import Final, NamedTuple

from sipguard.edge.kernel.bpf import Instruction, encode, encode_fprog

# Python's socket module does not name these; the numbers are those of asm-generic/socket.h.
SO_ATTACH_FILTER: Final = 26
SO_DETACH_FILTER: Final = 27
SO_MEMINFO: Final = 55

_MEMINFO: Final = struct.Struct("=9I")  # SK_MEMINFO_VARS
_RMEM_ALLOC: Final = 0
_RCVBUF: Final = 1
_DROPS: Final = 8
_LINUX: Final = sys.platform == "linux"


class Memory(NamedTuple):
    """Three of the nine numbers of SO_MEMINFO."""

    queued_bytes: int
    """Held by datagrams not yet read, the kernel's own overhead included."""
    limit_bytes: int
    """The receive buffer's size; twice what SO_RCVBUF was asked for."""
    drops: int
    """Datagrams dropped at this socket since it was made, for whatever reason; wraps at 2**32."""


def attach(sock: socket.socket, program: Sequence[Instruction]) -> None:
    """Put `program` on the socket, in one step in place of another. OSError: EINVAL (the kernel refuses the program),
    ENOMEM (net.core.optmem_max), EPERM (the filter there is locked)."""
    _require_linux()
    code = encode(program)
    buffer = ctypes.create_string_buffer(code, len(code))  # must outlive the call: the kernel copies from its address
    sock.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, encode_fprog(len(program), ctypes.addressof(buffer)))


def detach(sock: socket.socket) -> None:
    """Take the filter off; none there is no error. OSError: EPERM (the filter is locked)."""
    _require_linux()
    try:
        sock.setsockopt(socket.SOL_SOCKET, SO_DETACH_FILTER, 0)
    except OSError as error:
        if error.errno != errno.ENOENT:
            raise


def memory(sock: socket.socket) -> Memory:
    """The socket's memory and drop counter, read in one call (about a microsecond). OSError."""
    _require_linux()
    octets = sock.getsockopt(socket.SOL_SOCKET, SO_MEMINFO, _MEMINFO.size)
    if len(octets) < _MEMINFO.size:  # a kernel before 4.12 has no SO_MEMINFO, before 4.6 no drops in it
        raise OSError(errno.EOPNOTSUPP, "SO_MEMINFO has no drop counter")
    numbers = _MEMINFO.unpack(octets)
    return Memory(numbers[_RMEM_ALLOC], numbers[_RCVBUF], numbers[_DROPS])


def drops(sock: socket.socket) -> int:
    """The socket's drop counter alone, 0 … 2**32 - 1; it wraps. OSError."""
    return memory(sock).drops


def drops_between(earlier: int, later: int) -> int:
    """How far the counter went, over one wrap of 32 bits at most."""
    return (later - earlier) & 0xFFFF_FFFF


def _require_linux() -> None:
    if not _LINUX:
        raise OSError(errno.EOPNOTSUPP, "socket filters need Linux")
