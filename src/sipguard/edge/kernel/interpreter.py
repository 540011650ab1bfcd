"""A pure classic BPF interpreter with the kernel's semantics: what a filter would do, without a socket.

Used by the tests: kernel and interpreter agree packet by packet. Source: ``net/core/filter.c``.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Final

from sipguard.edge.kernel import bpf
from sipguard.edge.kernel.bpf import Instruction

_MASK: Final = 0xFFFF_FFFF
_OPERATION: Final = 0xF0
_SIZES: Final = {bpf.W: 4, bpf.H: 2, bpf.B: 1}

_ARITHMETIC: Final[dict[int, Callable[[int, int], int]]] = {
    bpf.ADD: operator.add,
    bpf.SUB: operator.sub,
    bpf.MUL: operator.mul,
    bpf.DIV: operator.floordiv,
    bpf.MOD: operator.mod,
    bpf.OR: operator.or_,
    bpf.AND: operator.and_,
    bpf.XOR: operator.xor,
    # A shift by X counts modulo 32, as the eBPF that the kernel makes of it does.
    bpf.LSH: lambda a, b: a << (b & 31),
    bpf.RSH: lambda a, b: a >> (b & 31),
    bpf.NEG: lambda a, _b: -a,
}
_CONDITIONS: Final[dict[int, Callable[[int, int], bool]]] = {
    bpf.JEQ: operator.eq,
    bpf.JGT: operator.gt,
    bpf.JGE: operator.ge,
    bpf.JSET: lambda a, b: bool(a & b),
}


class _Machine:
    """The registers A and X, the scratch words, and what the filter can see."""

    __slots__ = ("a", "memory", "packet", "random", "x")

    def __init__(self, packet: bytes, random: int) -> None:
        self.a = 0
        self.x = 0
        self.memory = [0] * bpf.MEMORY_WORDS
        self.packet = packet
        self.random = random & _MASK

    def operand(self, instruction: Instruction) -> int:
        return self.x if instruction.code & bpf.X else instruction.k

    def offset(self, instruction: Instruction) -> int:
        """How far to jump from the next instruction."""
        operation = instruction.code & _OPERATION
        if operation == bpf.JA:
            return instruction.k
        holds = _CONDITIONS[operation](self.a, self.operand(instruction))
        return instruction.jt if holds else instruction.jf

    def load(self, instruction: Instruction) -> int | None:
        """The value of a load into A; None when it lies past the end of the packet."""
        code, k = instruction.code, instruction.k
        mode = code & 0xE0
        if mode == bpf.IMM:
            return k
        if mode == bpf.MEM:
            return self.memory[k]
        if mode == bpf.LEN:
            return len(self.packet)
        size = _SIZES[code & 0x18]
        if mode == bpf.ABS and k == bpf.SKF_AD_RANDOM:
            return self.random
        start = (k + self.x) & _MASK if mode == bpf.IND else k
        if start >= bpf.SKF_LL_OFF:
            raise ValueError(f"a load at {start:#x} is not of the packet")
        if start + size > len(self.packet):
            return None
        return int.from_bytes(self.packet[start : start + size], "big")

    def load_x(self, instruction: Instruction) -> int | None:
        mode = instruction.code & 0xE0
        if mode == bpf.MSH:  # four times the low nibble of a byte: an IPv4 header's length
            byte = self.packet[instruction.k : instruction.k + 1]
            return 4 * (byte[0] & 0x0F) if byte else None
        if mode == bpf.MEM:
            return self.memory[instruction.k]
        return len(self.packet) if mode == bpf.LEN else instruction.k

    def compute(self, instruction: Instruction) -> int | None:
        """The new A of an arithmetic instruction; None for a division by X = 0."""
        operation = instruction.code & _OPERATION
        operand = self.operand(instruction)
        if operand == 0 and operation in (bpf.DIV, bpf.MOD):
            return None
        return _ARITHMETIC[operation](self.a, operand) & _MASK


def run(program: Sequence[Instruction], packet: bytes, *, random: int) -> int:
    """What the filter returns for `packet` (octets from the UDP header on): 0 drops, n keeps at most n octets.

    `random` is the 32-bit value that each ``SKF_AD_RANDOM`` load gives. As in the kernel, a load past the end and a
    division by zero return 0. The program must satisfy `bpf.check`. ValueError: a load of other things than the packet
    or random (`bpf.SKF_LL_OFF` and above).
    """
    machine = _Machine(packet, random)
    counter = 0
    while True:
        instruction = program[counter]
        counter += 1
        kind = instruction.code & 0x07
        if kind == bpf.JMP:
            counter += machine.offset(instruction)
        elif kind == bpf.RET:
            return machine.a if instruction.code & 0x18 == bpf.A else instruction.k
        elif not _step(machine, instruction, kind):
            return 0


def _step(machine: _Machine, instruction: Instruction, kind: int) -> bool:
    """Execute what is neither jump nor return. False: the kernel stops here and drops."""
    value: int | None = 0
    if kind == bpf.LD:
        value = machine.load(instruction)
        machine.a = value or 0
    elif kind == bpf.LDX:
        value = machine.load_x(instruction)
        machine.x = value or 0
    elif kind == bpf.ALU:
        value = machine.compute(instruction)
        machine.a = value or 0
    elif kind == bpf.ST:
        machine.memory[instruction.k] = machine.a
    elif kind == bpf.STX:
        machine.memory[instruction.k] = machine.x
    elif instruction.code & 0xF8 == bpf.TAX:
        machine.x = machine.a
    else:
        machine.a = machine.x
    return value is not None
