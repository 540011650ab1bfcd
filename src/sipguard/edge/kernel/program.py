"""The drop program: which datagrams the kernel throws away in critical_limit (DESIGN §3, SPEC V1, V2).

Pure. The one rule behind every branch: what is not certainly a sheddable request goes up to the process, which looks
closer. A load past the end of the datagram would drop it, so each load stands behind a check of the length.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from sipguard.edge.kernel import bpf
from sipguard.edge.kernel.bpf import Assembler, Instruction
from sipguard.wire.scan import TOKEN_BYTES

KEEP: Final = 0xFFFF_FFFF  # a smaller value would trim the datagram to so many octets
DROP: Final = 0
PAYLOAD: Final = 8  # a filter on a UDP socket sees the UDP header first (RFC 768)
SHORTEST: Final = PAYLOAD + 12  # anything shorter passes: no request line fits into 11 octets
_SCHEME: Final = 4  # "sip:", "tel:", "urn:" or "sips" (its colon is looked at apart)

_LETTERS: Final = range(ord("a"), ord("z") + 1)
_CASE_BIT: Final = 0x20
_SIZE_CODES: Final = {4: bpf.W, 2: bpf.H, 1: bpf.B}
_FIRST_LOAD: Final = 4  # octets of the request line that one load compares
_REST: Final = 0  # scratch word: octets from the Request-URI to the end


def drop_program(
    methods: Sequence[str], exempt_uris: Sequence[str] = (), sample_one_in: int = 64
) -> tuple[Instruction, ...]:
    """A socket filter that drops ``METHOD SP`` followed by ``sip:``, ``sips:``, ``tel:`` or ``urn:``.

    - `methods`: which requests to drop, case-sensitive (SPEC V1). None at all: everything passes.
    - `exempt_uris`: prefixes of the Request-URI that pass, ASCII letters in either case; so the kernel lets through
      everything that the process would, whichever way that compares them. Other characters count by their UTF-8 octets.
    - `sample_one_in`: of the datagrams to drop, one in so many passes at random, for the figures by method and source.
      0, or 2**32 and more, means none.

    ValueError: a method that is no token, an empty prefix (it would exempt everything), a negative sample, a program of
    more than 4096 instructions.
    """
    if sample_one_in < 0:
        raise ValueError(f"sample_one_in {sample_one_in} is negative")
    assembler = Assembler()
    assembler.emit(bpf.LD | bpf.LEN)
    assembler.branch(bpf.JGE, SHORTEST, otherwise="keep")
    for method in dict.fromkeys(methods):
        _match_method(assembler, method)
    assembler.emit(bpf.RET | bpf.K, KEEP)
    if methods:
        assembler.label("uri")
        _match_scheme(assembler)
        for number, prefix in enumerate(dict.fromkeys(exempt_uris)):
            _exempt(assembler, prefix, f"exempt {number}")
        _sample(assembler, sample_one_in)
        assembler.emit(bpf.RET | bpf.K, DROP)
    assembler.label("keep")
    assembler.emit(bpf.RET | bpf.K, KEEP)
    return assembler.assemble()


def _match_method(assembler: Assembler, method: str) -> None:
    """On ``METHOD SP`` with room for a scheme behind it: X = offset of the Request-URI, go to "uri"."""
    if not method or method.encode().translate(None, TOKEN_BYTES):
        raise ValueError(f"{method!r} is not a method (RFC 3261 25.1: token)")
    following = f"after {method}"
    line = method.encode() + b" "
    uri = PAYLOAD + len(line)
    for start, size in _chunks(len(line)):
        # The first chunk lies within SHORTEST, so other methods are told apart without asking for the length again.
        if start == _FIRST_LOAD:
            assembler.emit(bpf.LD | bpf.LEN)
            assembler.branch(bpf.JGE, uri + _SCHEME, otherwise=following)
        assembler.emit(bpf.LD | bpf.ABS | _SIZE_CODES[size], PAYLOAD + start)
        assembler.branch(bpf.JEQ, int.from_bytes(line[start : start + size], "big"), otherwise=following)
    assembler.emit(bpf.LDX | bpf.IMM, uri)
    assembler.jump("uri")
    assembler.label(following)


def _match_scheme(assembler: Assembler) -> None:
    """Keep what has none of the four schemes. In: X, with at least four octets there. Out: scratch `_REST`."""
    assembler.emit(bpf.LD | bpf.LEN)
    assembler.emit(bpf.ALU | bpf.SUB | bpf.X)
    assembler.emit(bpf.ST, _REST)
    assembler.emit(bpf.LD | bpf.IND | bpf.W, 0)
    for scheme in (b"sip:", b"tel:", b"urn:"):
        assembler.branch(bpf.JEQ, int.from_bytes(scheme, "big"), then="scheme known")
    assembler.branch(bpf.JEQ, int.from_bytes(b"sips", "big"), otherwise="keep")
    assembler.emit(bpf.LD | bpf.MEM, _REST)
    assembler.branch(bpf.JGE, _SCHEME + 1, otherwise="keep")
    assembler.emit(bpf.LD | bpf.IND | bpf.B, _SCHEME)
    assembler.branch(bpf.JEQ, ord(":"), otherwise="keep")
    assembler.label("scheme known")


def _exempt(assembler: Assembler, prefix: str, name: str) -> None:
    """Keep a Request-URI that begins with `prefix`, letters in either case."""
    octets = prefix.encode()
    if not octets:
        raise ValueError("an empty exempt_uris prefix would exempt everything")
    following = f"after {name}"
    assembler.emit(bpf.LD | bpf.MEM, _REST)
    assembler.branch(bpf.JGE, len(octets), otherwise=following)
    for start, size in _chunks(len(octets)):
        wanted = octets[start : start + size].lower()  # bytes.lower touches ASCII letters only
        # For a lower-case letter c, (x | 0x20) == c holds for c and its capital alone: no other octet is let in.
        fold = int.from_bytes(bytes(_CASE_BIT if octet in _LETTERS else 0 for octet in wanted), "big")
        last = start + size == len(octets)
        assembler.emit(bpf.LD | bpf.IND | _SIZE_CODES[size], start)
        if fold:
            assembler.emit(bpf.ALU | bpf.OR | bpf.K, fold)
        assembler.branch(bpf.JEQ, int.from_bytes(wanted, "big"), then="keep" if last else None, otherwise=following)
    assembler.label(following)


def _sample(assembler: Assembler, one_in: int) -> None:
    """Keep one in `one_in` of what comes this far."""
    if not 0 < one_in <= KEEP:
        return
    assembler.emit(bpf.LD | bpf.ABS | bpf.W, bpf.SKF_AD_RANDOM)
    assembler.emit(bpf.ALU | bpf.MOD | bpf.K, one_in)
    assembler.branch(bpf.JEQ, 0, then="keep")


def _chunks(length: int) -> Iterator[tuple[int, int]]:
    """Cut `length` octets into loads of four, two and one: (start, size)."""
    start = 0
    while start < length:
        rest = length - start
        size = 4 if rest >= 4 else 2 if rest >= 2 else 1
        yield start, size
        start += size
