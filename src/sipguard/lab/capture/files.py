"""Files of packets: which kind one is, and several as one stream in the order of time."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import chain
from pathlib import Path

from sipguard.lab.capture.pcap import is_cut_pcap, is_pcap, read_pcap
from sipguard.lab.capture.pcapng import is_cut_pcapng, is_pcapng, read_pcapng
from sipguard.lab.capture.records import CaptureError, Damage, Packet
from sipguard.lab.capture.source import Source

#: Captures read side by side: beyond this the one that begins next waits.
MAX_OPEN = 64

STDIN = "-"
EMPTY = "the file is empty"
NEITHER = "neither pcap, pcapng, CSV nor JSONL, plain or in gzip or zstd; nothing was read"


class Input:
    """A file to read, told by its content.

    kind: "capture", "jsonl", "csv", or "empty" where there is no content to tell by. size: of the file itself, bytes; None
    when it cannot be known (a pipe).
    """

    __slots__ = ("_opened", "_path", "kind", "name", "size")

    def __init__(self, name: str) -> None:
        """name: a path, or - for standard input. Raises OSError, CaptureError."""
        self.name = name
        self._path = Path("/dev/stdin" if name == STDIN else name)
        source = self._open()
        try:
            self.kind = _kind_of(source.peek(), name)
        except CaptureError:
            source.close()
            raise
        regular = self._path.is_file()
        self.size = self._path.stat().st_size if regular else None
        # A pipe cannot be opened twice.
        self._opened: Source | None = None if regular and name != STDIN else source
        if self._opened is None:
            source.close()

    def __repr__(self) -> str:
        return f"<Input {self.name} {self.kind}>"

    def open(self, on_read: Callable[[int], None] | None = None) -> Source:
        """From its start; standard input once only."""
        if self._opened is None:
            return self._open(on_read)
        source, self._opened = self._opened, None
        source.on_read = on_read
        return source

    def _open(self, on_read: Callable[[int], None] | None = None) -> Source:
        # Unbuffered: a source reads large pieces.
        return Source(self._path.open("rb", buffering=0), self.name, on_read)


class Captures:
    """Captures as one stream of packets: those of a ring one after the other, those taken side by side interleaved.

    Each is read in its own order; between them the earlier packet goes first. damages: what could not be read, known when
    the stream has ended.
    """

    __slots__ = ("_inputs", "_on_read", "_positions", "damages")

    def __init__(self, inputs: Sequence[Input], on_read: Callable[[int], None] | None = None) -> None:
        """inputs: of kind "capture" or "empty". on_read: called with the bytes read so far of all files together."""
        self._inputs = inputs
        self._on_read = on_read
        self._positions = [0] * len(inputs)
        self.damages: list[Damage] = []

    def packets(self) -> Iterator[Packet]:
        """Once; memory does not grow with the files. Raises OSError when one vanishes meanwhile."""
        if len(self._inputs) == 1:
            return self._read(0)
        return self._merged()

    def _merged(self) -> Iterator[Packet]:
        waiting = self._beginnings()
        # By time, then by the order on the command line.
        running: list[tuple[int, int, Packet, Iterator[Packet]]] = []
        while waiting or running:
            while waiting and len(running) < MAX_OPEN and (not running or waiting[0][0] <= running[0][0]):
                _, number, begun = heapq.heappop(waiting)
                self._push(running, number, begun or self._read(number))
            if not running:
                continue
            _, number, packet, packets = heapq.heappop(running)
            yield packet
            if not running and not waiting:
                yield from packets
                return
            nexts = [queue[0][0] for queue in (running, waiting if len(running) < MAX_OPEN - 1 else []) if queue]
            limit = min(nexts) if nexts else None
            for packet in packets:
                if limit is not None and packet[0] > limit:
                    heapq.heappush(running, (packet[0], number, packet, packets))
                    break
                yield packet

    def _beginnings(self) -> list[tuple[int, int, Iterator[Packet] | None]]:
        """A heap of the captures by the time of their first packet; one that cannot be opened again comes opened."""
        found: list[tuple[int, int, Iterator[Packet] | None]] = []
        for number, each in enumerate(self._inputs):
            packets = self._read(number)
            first = next(packets, None)
            if first is None:
                continue
            again = each.size is not None and each.name != STDIN
            if again:
                packets.close()
            found.append((first[0], number, None if again else chain((first,), packets)))
        heapq.heapify(found)
        return found

    def _read(self, number: int) -> Generator[Packet, None, None]:
        """One capture; closed at its end, its damage noted."""

        def note(position: int) -> None:
            self._positions[number] = position
            if self._on_read is not None:
                self._on_read(sum(self._positions))

        source = self._inputs[number].open(note)
        try:
            yield from packets_of(source)
            self.damages += source.damages
        finally:
            source.close()

    @staticmethod
    def _push(running: list[tuple[int, int, Packet, Iterator[Packet]]], number: int, packets: Iterator[Packet]) -> None:
        first = next(packets, None)
        if first is not None:
            heapq.heappush(running, (first[0], number, first, packets))


def packets_of(source: Source) -> Iterator[Packet]:
    """The packets of one capture. Raises CaptureError when it is none."""
    head = source.peek()
    if is_pcap(head):
        return read_pcap(source)
    if is_pcapng(head):
        return read_pcapng(source)
    if head and not (is_cut_pcap(head) or is_cut_pcapng(head)):
        raise CaptureError(source.name, "neither pcap nor pcapng")
    note_empty(source)
    if source.read():
        source.cut_off(0, "the file header")
    return iter(())


def note_empty(source: Source) -> None:
    """Damage where there is no content at all."""
    if not source.peek() and not source.broken:
        source.spoil(0, EMPTY)


def _kind_of(head: bytes, name: str) -> str:
    # A line feed alone is an empty line or a section header's first byte: its company decides.
    if head in (b"", b"\n"):
        return "empty"
    if is_pcap(head) or is_pcapng(head) or is_cut_pcap(head) or is_cut_pcapng(head):
        return "capture"
    if b"\0" in head:
        raise CaptureError(name, NEITHER)
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    return "jsonl" if text[:1] == b"{" else "csv"
