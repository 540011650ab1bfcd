"""The assembler and the kernel's rules for a classic BPF program."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sipguard.edge.kernel import bpf
from sipguard.edge.kernel.bpf import Assembler, Instruction, check, encode
from sipguard.edge.kernel.interpreter import run

KEEP = Instruction(bpf.RET | bpf.K, k=7)
DROP = Instruction(bpf.RET | bpf.K, k=0)


def _padding(assembler: Assembler, size: int) -> None:
    for _ in range(size):
        assembler.emit(bpf.LDX | bpf.IMM, 0)


def _four_ways(near: int, far: int) -> Assembler:
    """Byte 0 = 1 → "one", 2 → "two", 3 → "three" (by ja), else 4; the labels stand behind so much padding."""
    assembler = Assembler()
    assembler.emit(bpf.LD | bpf.ABS | bpf.B, 0)
    assembler.branch(bpf.JEQ, 1, then="one")
    assembler.branch(bpf.JEQ, 2, then="two")
    assembler.branch(bpf.JEQ, 3, then="to three", otherwise="four")
    assembler.label("to three")
    assembler.jump("three")
    _padding(assembler, near)
    assembler.label("one")
    assembler.emit(bpf.RET | bpf.K, 1)
    _padding(assembler, far)
    assembler.label("two")
    assembler.emit(bpf.RET | bpf.K, 2)
    assembler.label("three")
    assembler.emit(bpf.RET | bpf.K, 3)
    assembler.label("four")
    assembler.emit(bpf.RET | bpf.K, 4)
    return assembler


@given(near=st.integers(0, 600), far=st.integers(0, 600))
def test_every_label_is_reached_however_far_it_lies(near: int, far: int) -> None:
    program = _four_ways(near, far).assemble()
    assert [run(program, bytes([first]), random=0) for first in (1, 2, 3, 9)] == [1, 2, 3, 4]


@pytest.mark.parametrize("distance", range(250, 262))
def test_jumps_about_the_eight_bit_limit(distance: int) -> None:
    assembler = Assembler()
    assembler.emit(bpf.LD | bpf.ABS | bpf.B, 0)
    assembler.branch(bpf.JGT, 10, then="above", otherwise="below")
    _padding(assembler, distance)
    assembler.label("above")
    assembler.emit(bpf.RET | bpf.K, 1)
    assembler.label("below")
    assembler.emit(bpf.RET | bpf.K, 2)
    program = assembler.assemble()
    assert [run(program, bytes([first]), random=0) for first in (11, 10)] == [1, 2]
    assert len(program) == distance + 4 + (2 if distance >= 255 else 0)


def test_a_near_branch_costs_one_instruction() -> None:
    assert len(_four_ways(10, 10).assemble()) == 1 + 3 + 1 + 10 + 1 + 10 + 3


def test_labels_are_checked() -> None:
    unknown = Assembler()
    unknown.branch(bpf.JEQ, 0, then="nowhere")
    with pytest.raises(ValueError, match="nowhere"):
        unknown.assemble()

    backward = Assembler()
    backward.label("loop")
    backward.emit(bpf.LD | bpf.IMM, 0)
    backward.branch(bpf.JEQ, 0, then="loop")
    backward.emit(bpf.RET | bpf.K, 0)
    with pytest.raises(ValueError, match="behind"):
        backward.assemble()

    twice = Assembler()
    twice.label("here")
    with pytest.raises(ValueError, match="twice"):
        twice.label("here")


@pytest.mark.parametrize("operand", [-1, 1 << 32])
def test_operands_are_unsigned_32_bit(operand: int) -> None:
    with pytest.raises(ValueError, match="32-bit"):
        Assembler().emit(bpf.LD | bpf.IMM, operand)
    with pytest.raises(ValueError, match="32-bit"):
        Assembler().branch(bpf.JEQ, operand)


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ([], "1 to 4096"),
        ([KEEP] * 4097, "1 to 4096"),
        ([Instruction(0xFFFF), KEEP], "unknown code"),
        ([Instruction(bpf.LD | bpf.IMM)], "not a return"),
        ([Instruction(bpf.JMP | bpf.JA, k=1), KEEP], "past the end"),
        ([Instruction(bpf.JMP | bpf.JEQ | bpf.K, 0, 1), KEEP], "past the end"),
        ([Instruction(bpf.ALU | bpf.MOD | bpf.K, k=0), KEEP], "division"),
        ([Instruction(bpf.ALU | bpf.LSH | bpf.K, k=32), KEEP], "shift"),
        ([Instruction(bpf.ST, k=16), KEEP], "scratch"),
    ],
)
def test_check_refuses_what_the_kernel_refuses(program: list[Instruction], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        check(program)


def test_the_longest_program_is_accepted() -> None:
    check([DROP] * bpf.MAX_INSTRUCTIONS)


def test_encoding_is_an_array_of_sock_filter() -> None:
    octets = encode([Instruction(bpf.JMP | bpf.JEQ | bpf.K, 1, 2, 0x494E5649), KEEP])
    assert octets == struct.pack("=HBBI", 0x15, 1, 2, 0x494E5649) + struct.pack("=HBBI", 0x06, 0, 0, 7)
