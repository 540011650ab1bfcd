"""The receive buffer: what is asked for and what is granted (DESIGN §3)."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from sipguard.edge.kernel.receive_buffer import receive_buffer, request_receive_buffer
from tests.kernel.loopback import pair

RMEM_MAX = Path("/proc/sys/net/core/rmem_max")


def test_a_small_buffer_is_granted_as_asked() -> None:
    with pair() as both:
        both.receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        assert request_receive_buffer(both.receiver, 65_536) == 65_536 == receive_buffer(both.receiver)


def test_a_buffer_is_never_made_smaller() -> None:
    with pair() as both:
        before = receive_buffer(both.receiver)
        assert request_receive_buffer(both.receiver, 4096) == before


def test_what_is_granted_is_read_back() -> None:
    """Up to net.core.rmem_max for anybody; beyond it only with CAP_NET_ADMIN, and a refusal is no error."""
    if not RMEM_MAX.exists():
        pytest.skip("no /proc/sys here")
    limit = int(RMEM_MAX.read_text())
    with pair() as both:
        assert request_receive_buffer(both.receiver, limit) == limit
        assert request_receive_buffer(both.receiver, 2 * limit) in (limit, 2 * limit)
