"""A bigger receive buffer for a UDP socket, and what the kernel granted of it."""

from __future__ import annotations

import contextlib
import socket
from typing import Final

WANTED_BYTES: Final = 4 * 1024 * 1024
SO_RCVBUFFORCE: Final = 33


def receive_buffer(sock: socket.socket) -> int:
    """Bytes granted, in the unit SO_RCVBUF is asked in: Linux keeps and reports the double (socket(7)). OSError."""
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2


def request_receive_buffer(sock: socket.socket, wanted_bytes: int = WANTED_BYTES) -> int:
    """Ask for `wanted_bytes`; the bytes granted, read back. A buffer already as large stays as it is.

    Above ``net.core.rmem_max`` the kernel cuts SO_RCVBUF silently; then SO_RCVBUFFORCE is tried, which needs
    CAP_NET_ADMIN. A refusal is no error: the caller compares, logs and exports the result. OSError only if the
    socket is gone.
    """
    for option in (socket.SO_RCVBUF, SO_RCVBUFFORCE):
        if receive_buffer(sock) >= wanted_bytes:
            break
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, option, wanted_bytes)
    return receive_buffer(sock)
