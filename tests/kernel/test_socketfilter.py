"""The system calls: attach, detach, count; what outlives what."""

from __future__ import annotations

import errno
import os
import socket
import sys

import pytest

from sipguard.edge.kernel import bpf, socketfilter
from sipguard.edge.kernel.bpf import Instruction
from sipguard.edge.kernel.program import drop_program
from sipguard.edge.kernel.socketfilter import attach, detach, drops, drops_between, memory
from tests.kernel.loopback import NINE, pair

if sys.platform != "linux":
    pytest.skip("socket filters are Linux's", allow_module_level=True)

INVITE = b"INVITE sip:bob@example.com SIP/2.0\r\n\r\n"
PROGRAM = drop_program(NINE, sample_one_in=0)


def test_attach_and_detach() -> None:
    with pair() as both:
        assert both.outcome(INVITE) == INVITE
        attach(both.receiver, PROGRAM)
        assert both.outcome(INVITE) is None
        assert drops(both.receiver) == 1
        detach(both.receiver)
        assert both.outcome(INVITE) == INVITE
        assert drops(both.receiver) == 1


def test_detaching_nothing_is_no_error() -> None:
    with pair() as both:
        detach(both.receiver)
        detach(both.receiver)


def test_attaching_replaces() -> None:
    with pair() as both:
        attach(both.receiver, drop_program(["BYE"], sample_one_in=0))
        attach(both.receiver, PROGRAM)
        assert both.outcome(INVITE) is None
        detach(both.receiver)
        assert both.outcome(INVITE) == INVITE


def test_the_filter_outlives_the_descriptor() -> None:
    """DESIGN §3: a filter outlives its process when the socket does."""
    with pair() as both:
        attach(both.receiver, PROGRAM)
        with socket.socket(fileno=os.dup(both.receiver.fileno())) as copy:
            both.receiver.close()
            both.receiver = copy
            assert both.outcome(INVITE) is None
            detach(copy)
            assert both.outcome(INVITE) == INVITE


def test_what_the_kernel_refuses_is_an_error() -> None:
    uninitialised = [Instruction(bpf.LD | bpf.MEM, k=3), Instruction(bpf.RET | bpf.A)]
    with pair() as both:
        with pytest.raises(OSError, match="Invalid") as refused:
            attach(both.receiver, uninitialised)
        assert refused.value.errno == errno.EINVAL
        assert both.outcome(INVITE) == INVITE
    with pytest.raises(OSError, match="Bad file descriptor"):
        detach(both.receiver)


def test_memory_is_of_this_socket() -> None:
    with pair() as both:
        empty = memory(both.receiver)
        both.send(b"x" * 1000)
        assert empty.queued_bytes == 0
        assert empty.limit_bytes == both.receiver.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        assert memory(both.receiver).queued_bytes >= 1000


def test_the_counter_wraps_at_32_bits() -> None:
    assert drops_between(3, 10) == 7
    assert drops_between((1 << 32) - 5, 2) == 7
    assert drops_between(0, 0) == 0


def test_another_system_is_an_error_not_an_unknown_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socketfilter, "_LINUX", False)
    with pair() as both:
        for call in (detach, memory, drops):
            with pytest.raises(OSError, match="Linux"):
                call(both.receiver)
        with pytest.raises(OSError, match="Linux"):
            attach(both.receiver, PROGRAM)
