"""The interpreter against the kernel itself: random programs on random datagrams over a real socket."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from sipguard.edge.kernel import bpf
from sipguard.edge.kernel.bpf import Instruction, check
from sipguard.edge.kernel.interpreter import run
from sipguard.edge.kernel.socketfilter import attach
from tests.kernel.loopback import Pair, datagram, pair

SO_NO_CHECK = 11
HEADER = 8  # the kernel never trims into the UDP header
WORDS = st.integers(0, 0xFFFF_FFFF)
# Instructions that look at the packet mostly do so within it or just past its end.
OFFSETS = st.integers(0, 48)
SCRATCH = st.integers(0, 3)


def _with(codes: list[int], operands: st.SearchStrategy[int]) -> st.SearchStrategy[Instruction]:
    return st.builds(lambda code, k: Instruction(code, 0, 0, k), st.sampled_from(codes), operands)


_ALU = (bpf.ADD, bpf.SUB, bpf.MUL, bpf.DIV, bpf.OR, bpf.AND, bpf.LSH, bpf.RSH, bpf.MOD, bpf.XOR)
PLAIN = st.one_of(
    _with([bpf.LD | mode | size for mode in (bpf.ABS, bpf.IND) for size in (bpf.W, bpf.H, bpf.B)], OFFSETS),
    _with([bpf.LD | bpf.IMM, bpf.LDX | bpf.IMM], WORDS | OFFSETS),
    _with([bpf.LD | bpf.LEN, bpf.LDX | bpf.LEN, bpf.ALU | bpf.NEG, bpf.MISC | bpf.TAX, bpf.MISC | bpf.TXA], st.just(0)),
    _with([bpf.LDX | bpf.B | bpf.MSH], OFFSETS),
    _with([bpf.LD | bpf.MEM, bpf.LDX | bpf.MEM, bpf.ST, bpf.STX], SCRATCH),
    _with([bpf.ALU | operation | bpf.K for operation in _ALU], st.integers(1, 31) | WORDS),
    _with([bpf.ALU | operation | bpf.X for operation in _ALU], st.just(0)),
    _with([bpf.RET | bpf.A], st.just(0)),
    _with([bpf.RET | bpf.K], st.integers(0, 60)),
)
JUMPS = st.builds(
    Instruction,
    st.sampled_from(
        [
            bpf.JMP | condition | source
            for condition in (bpf.JEQ, bpf.JGT, bpf.JGE, bpf.JSET)
            for source in (bpf.K, bpf.X)
        ]
    ),
    st.integers(0, 3),
    st.integers(0, 3),
    st.integers(0, 255) | WORDS,
)
# The scratch words are written first: the kernel refuses a program that may read one before.
PROLOGUE = [Instruction(bpf.LD | bpf.IMM, k=20)] + [Instruction(bpf.ST, k=word) for word in range(4)]
# Enough returns at the end for the longest jump; A is what the program computed, so it is what we compare.
EPILOGUE = [Instruction(bpf.RET | bpf.A)] * 4


@pytest.fixture(scope="module")
def both() -> Iterator[Pair]:
    if sys.platform != "linux":
        pytest.skip("socket filters are Linux's")
    with pair() as pair_:
        # Programs may look at the UDP header too, so it must be one that we can foretell: checksum 0.
        pair_.sender.setsockopt(socket.SOL_SOCKET, SO_NO_CHECK, 1)
        yield pair_


def _stays_in_bounds(program: list[Instruction]) -> bool:
    try:
        check(program)
    except ValueError:
        return False
    return True


def _result(program: list[Instruction], packet: bytes) -> int | None:
    """None for a load from outside the packet, which the interpreter does not know."""
    try:
        return run(program, packet, random=0)
    except ValueError:
        return None


@settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(body=st.lists(PLAIN | JUMPS, max_size=14), payload=st.binary(max_size=40))
@example(body=[Instruction(bpf.LD | bpf.ABS | bpf.W, k=8)], payload=b"abc")  # past the end
@example(body=[Instruction(bpf.LD | bpf.ABS | bpf.W, k=8)], payload=b"\0\0\0\x0a")  # trims to ten octets
@example(body=[Instruction(bpf.LDX | bpf.IMM), Instruction(bpf.ALU | bpf.DIV | bpf.X)], payload=b"abc")
@example(body=[Instruction(bpf.LD | bpf.IMM), Instruction(bpf.ALU | bpf.SUB | bpf.K, k=1)], payload=b"abc")
def test_kernel_and_interpreter_agree_on_any_program(both: Pair, body: list[Instruction], payload: bytes) -> None:
    program = [*PROLOGUE, *body, *EPILOGUE]
    assume(_stays_in_bounds(program))
    ports = [sock.getsockname()[1] for sock in (both.sender, both.receiver)]
    kept = _result(program, datagram(payload, *ports))
    assume(kept is not None)
    attach(both.receiver, program)
    expected = payload[: max(kept or 0, HEADER) - HEADER] if kept else None
    assert both.outcome(payload) == expected


def test_random_is_what_it_is_given() -> None:
    program = [Instruction(bpf.LD | bpf.ABS | bpf.W, k=bpf.SKF_AD_RANDOM), Instruction(bpf.RET | bpf.A)]
    assert run(program, b"", random=0xDEADBEEF) == 0xDEADBEEF
    assert run(program, b"", random=(1 << 32) + 5) == 5


def test_an_unknown_ancillary_load_is_refused() -> None:
    program = [Instruction(bpf.LD | bpf.ABS | bpf.W, k=bpf.SKF_AD_OFF), Instruction(bpf.RET | bpf.A)]
    with pytest.raises(ValueError, match="not of the packet"):
        run(program, bytes(64), random=0)


def test_scratch_and_header_length_loads() -> None:
    program = [
        Instruction(bpf.LDX | bpf.B | bpf.MSH, k=0),  # X = 4 · 5
        Instruction(bpf.STX, k=15),
        Instruction(bpf.LD | bpf.MEM, k=15),
        Instruction(bpf.ALU | bpf.ADD | bpf.X),
        Instruction(bpf.RET | bpf.A),
    ]
    assert run(program, b"\x45", random=0) == 40
    assert run(program, b"", random=0) == 0
