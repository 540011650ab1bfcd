"""Classic BPF: the instruction record, a tiny assembler with labels, the kernel's structures.

Source: Linux ``include/uapi/linux/filter.h``, ``bpf_common.h``, and the rules of ``bpf_check_classic()``
(``net/core/filter.c``). Only what a socket filter needs; nothing here touches a socket.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

# Instruction classes (the low three bits of a code).
LD: Final = 0x00
LDX: Final = 0x01
ST: Final = 0x02
STX: Final = 0x03
ALU: Final = 0x04
JMP: Final = 0x05
RET: Final = 0x06
MISC: Final = 0x07

# Load sizes and modes.
W: Final = 0x00
H: Final = 0x08
B: Final = 0x10
IMM: Final = 0x00
ABS: Final = 0x20
IND: Final = 0x40
MEM: Final = 0x60
LEN: Final = 0x80
MSH: Final = 0xA0

# ALU operations.
ADD: Final = 0x00
SUB: Final = 0x10
MUL: Final = 0x20
DIV: Final = 0x30
OR: Final = 0x40
AND: Final = 0x50
LSH: Final = 0x60
RSH: Final = 0x70
NEG: Final = 0x80
MOD: Final = 0x90
XOR: Final = 0xA0

# Jump conditions.
JA: Final = 0x00
JEQ: Final = 0x10
JGT: Final = 0x20
JGE: Final = 0x30
JSET: Final = 0x40

# Where the second operand (or the returned value) comes from.
K: Final = 0x00
X: Final = 0x08
A: Final = 0x10

TAX: Final = 0x00
TXA: Final = 0x80

# An absolute load at one of these "offsets" reads about the packet, not from it.
SKF_AD_OFF: Final = 0x1_0000_0000 - 0x1000
SKF_LL_OFF: Final = 0x1_0000_0000 - 0x200000  # from here on: the headers before the UDP header
SKF_AD_RANDOM: Final = SKF_AD_OFF + 56

MAX_INSTRUCTIONS: Final = 4096  # BPF_MAXINSNS
MEMORY_WORDS: Final = 16  # BPF_MEMWORDS
_MAX_OFFSET: Final = 0xFF  # a conditional jump has eight bits for each way
_MAX_K: Final = 0xFFFF_FFFF

_ARITHMETIC: Final = (ADD, SUB, MUL, DIV, OR, AND, LSH, RSH, MOD, XOR)
_CODES: Final = frozenset(
    [LD | size | mode for size in (W, H, B) for mode in (ABS, IND)]
    + [LD | mode for mode in (IMM, MEM, LEN)]
    + [LDX | mode for mode in (IMM, MEM, LEN)]
    + [LDX | B | MSH, ST, STX, ALU | NEG, JMP | JA, RET | K, RET | A, MISC | TAX, MISC | TXA]
    + [ALU | operation | source for operation in _ARITHMETIC for source in (K, X)]
    + [JMP | condition | source for condition in (JEQ, JGT, JGE, JSET) for source in (K, X)]
)
_SCRATCH: Final = frozenset((LD | MEM, LDX | MEM, ST, STX))
_INSTRUCTION: Final = struct.Struct("=HBBI")


class Instruction(NamedTuple):
    """One ``struct sock_filter``: 16-bit code, two 8-bit jump offsets, 32-bit operand."""

    code: int
    jt: int = 0
    jf: int = 0
    k: int = 0


Program = tuple[Instruction, ...]


@dataclass(slots=True)
class _Branch:
    """A jump by label; ``None`` is the instruction after it. The long flags say "cannot reach in eight bits"."""

    code: int
    k: int
    then: str | None
    otherwise: str | None
    long_then: bool = False
    long_otherwise: bool = False

    @property
    def size(self) -> int:
        return 1 + self.long_then + self.long_otherwise


class Assembler:
    """Collects instructions and labels; `assemble` resolves the jumps.

    A conditional jump whose target is further than 255 instructions goes by way of a ``ja``, which has 32 bits.
    All jumps go forward, as the kernel demands.
    """

    __slots__ = ("_items", "_labels")

    def __init__(self) -> None:
        self._items: list[Instruction | _Branch] = []
        self._labels: dict[str, int] = {}

    def emit(self, code: int, k: int = 0) -> None:
        """Append an instruction that is not a jump. `k` is taken as unsigned 32 bits; ValueError outside them."""
        if not 0 <= k <= _MAX_K:
            raise ValueError(f"operand {k} is not an unsigned 32-bit number")
        self._items.append(Instruction(code, 0, 0, k))

    def label(self, name: str) -> None:
        """Name the instruction that follows. ValueError for a name already given."""
        if name in self._labels:
            raise ValueError(f"label {name!r} is defined twice")
        self._labels[name] = len(self._items)

    def jump(self, target: str) -> None:
        """Go to `target` in any case."""
        self._items.append(_Branch(JMP | JA, 0, target, None))

    def branch(self, condition: int, k: int, *, then: str | None = None, otherwise: str | None = None) -> None:
        """Compare A with `k` (`JEQ`, `JGT`, `JGE`, `JSET`); None goes on with the next instruction."""
        if not 0 <= k <= _MAX_K:
            raise ValueError(f"operand {k} is not an unsigned 32-bit number")
        self._items.append(_Branch(JMP | condition | K, k, then, otherwise))

    def assemble(self) -> Program:
        """The finished program. ValueError for an unknown label, a backward jump, or what `check` refuses."""
        addresses = self._addresses()
        while self._lengthen(addresses):
            addresses = self._addresses()
        program: list[Instruction] = []
        for item in self._items:
            if isinstance(item, Instruction):
                program.append(item)
            else:
                program.extend(self._resolve(item, len(program), addresses))
        check(program)
        return tuple(program)

    def _addresses(self) -> list[int]:
        """The address of each item, and of the end."""
        addresses = [0]
        for item in self._items:
            addresses.append(addresses[-1] + (1 if isinstance(item, Instruction) else item.size))
        return addresses

    def _target(self, name: str, addresses: list[int]) -> int:
        try:
            return addresses[self._labels[name]]
        except KeyError:
            raise ValueError(f"label {name!r} is not defined") from None

    def _lengthen(self, addresses: list[int]) -> bool:
        """Mark the branches that cannot reach their target. Marks are never taken back, so this comes to an end."""
        changed = False
        for item, address in zip(self._items, addresses, strict=False):
            if isinstance(item, Instruction) or item.code == JMP | JA:
                continue
            if not item.long_then and self._is_far(item.then, address, addresses):
                item.long_then = changed = True
            if not item.long_otherwise and self._is_far(item.otherwise, address, addresses):
                item.long_otherwise = changed = True
        return changed

    def _is_far(self, target: str | None, address: int, addresses: list[int]) -> bool:
        return target is not None and self._target(target, addresses) - (address + 1) > _MAX_OFFSET

    def _resolve(self, item: _Branch, address: int, addresses: list[int]) -> list[Instruction]:
        end = address + item.size

        def offset(target: str | None, origin: int) -> int:
            away = (end if target is None else self._target(target, addresses)) - (origin + 1)
            if away < 0:
                raise ValueError(f"label {target!r} lies behind a jump to it")
            return away

        if item.code == JMP | JA:
            return [Instruction(item.code, k=offset(item.then, address))]
        ways: list[int] = []
        detours: list[Instruction] = []
        for target, far in ((item.then, item.long_then), (item.otherwise, item.long_otherwise)):
            if far:
                ways.append(len(detours))
                detours.append(Instruction(JMP | JA, k=offset(target, address + 1 + len(detours))))
            else:
                ways.append(offset(target, address))
        return [Instruction(item.code, ways[0], ways[1], item.k), *detours]


def check(program: Sequence[Instruction]) -> None:
    """Refuse what the kernel would refuse, with a reason (it answers only EINVAL).

    ValueError. Not checked: that a scratch word is written before it is read (the kernel does check it).
    """
    size = len(program)
    if not 1 <= size <= MAX_INSTRUCTIONS:
        raise ValueError(f"a program has 1 to {MAX_INSTRUCTIONS} instructions, this one {size}")
    for address, (code, jt, jf, k) in enumerate(program):
        if code not in _CODES:
            raise ValueError(f"instruction {address}: unknown code {code:#x}")
        if code in (ALU | DIV | K, ALU | MOD | K) and k == 0:
            raise ValueError(f"instruction {address}: division by zero")
        if code in (ALU | LSH | K, ALU | RSH | K) and k >= 32:
            raise ValueError(f"instruction {address}: shift by {k}")
        if code in _SCRATCH and k >= MEMORY_WORDS:
            raise ValueError(f"instruction {address}: scratch word {k}")
        if code & 0x07 == JMP:
            furthest = k if code == JMP | JA else max(jt, jf)
            if address + 1 + furthest >= size:
                raise ValueError(f"instruction {address}: jump past the end")
    if program[-1].code & 0x07 != RET:
        raise ValueError("the last instruction is not a return")


def encode(program: Sequence[Instruction]) -> bytes:
    """The program as an array of ``struct sock_filter``, eight bytes each, in the byte order of this machine."""
    return b"".join(_INSTRUCTION.pack(*instruction) for instruction in program)


def encode_fprog(size: int, address: int) -> bytes:
    """``struct sock_fprog``: how many instructions, and where in memory the encoded array stands."""
    return struct.pack("@HP", size, address)
