"""TCP put together again from a capture: what each side sent, in order, as SIP messages (RFC 9293, RFC 3261 18.3)."""

from __future__ import annotations

import re
from collections import OrderedDict

from sipguard.wire.framing import BROKEN, MESSAGE, StreamFramer

FIN, SYN, RST = 1, 2, 4

MAX_STREAMS = 65536
#: Bytes held back in all: segments that came too early and messages not yet complete.
MAX_BYTES = 64 << 20
#: Of one stream, segments that wait for one that is missing: beyond this it was not captured.
MAX_EARLY = 256
MAX_EARLY_BYTES = 512 << 10
#: By the capture's own time: a retransmission comes sooner.
GAP_NS = 10_000_000_000

_MODULUS = 1 << 32
_HALF = 1 << 31
#: Further from what is due than any window: another connection on the same ports, whose SYN was not captured.
_FAR = 1 << 26
#: Where a message can begin in a stream whose beginning is not known.
_START = re.compile(rb"(?:\A|(?<=\n))(?:[A-Za-z]{2,20} [!-~]{1,512} SIP/2\.0|SIP/2\.0 [1-6][0-9]{2} )")

#: One direction of a connection: source, source port, destination, destination port.
StreamKey = tuple[bytes, int, bytes, int]

# How far a stream is understood: from its beginning; seeking the next start line; not SIP, nothing more is looked at.
_FRAMED, _SEEKING, _DEAD = 0, 1, 2


class _Stream:
    __slots__ = ("early", "early_bytes", "early_since_ns", "framer", "held", "initial", "mode", "sequence")

    def __init__(self, sequence: int, initial: int | None, mode: int) -> None:
        self.sequence = sequence  # of the next byte
        self.initial = initial  # of the SYN, when it was captured
        self.mode = mode
        self.framer: StreamFramer | None = None
        self.held = 0  # bytes the framer holds back, at most
        self.early: dict[int, bytes] = {}
        self.early_bytes = 0
        self.early_since_ns = 0


class TcpStreams:
    """Segments in, messages out. Never raises; the stream longest silent gives way when there are too many.

    gaps: bytes were missing and the stream went on without them. broken: streams whose framing was lost, which a live guard
    would close; streams that never were SIP are not among them. unfinished: messages begun and given up.
    """

    __slots__ = ("_bytes", "_max_body", "_streams", "broken", "gaps", "unfinished")

    def __init__(self, max_body: int = 65536) -> None:
        self._streams: OrderedDict[StreamKey, _Stream] = OrderedDict()
        self._max_body = max_body
        self._bytes = 0
        self.gaps = self.broken = self.unfinished = 0

    def __len__(self) -> int:
        return len(self._streams)

    def add(self, key: StreamKey, sequence: int, flags: int, payload: bytes, now_ns: int) -> list[bytes]:
        """The messages that a segment completes. A copy of a segment changes nothing."""
        stream = self._streams.get(key)
        if flags & SYN:
            if stream is None or stream.initial != sequence:
                if stream is not None:
                    self._release(stream)
                stream = self._streams[key] = _Stream((sequence + 1) % _MODULUS, sequence, _FRAMED)
            sequence = (sequence + 1) % _MODULUS
        if stream is None:
            if not payload:
                return []
            stream = self._streams[key] = _Stream(sequence, None, _SEEKING)
        self._streams.move_to_end(key)
        messages: list[bytes] = []
        if payload and stream.mode != _DEAD:
            self._place(stream, sequence, payload, now_ns, messages)
        # The state stays, for copies that come later; what waits does not.
        if flags & RST:
            self._release(stream)
        while len(self._streams) > MAX_STREAMS or self._bytes > MAX_BYTES:
            self._release(self._streams.popitem(last=False)[1])
        return messages

    def finish(self, now_ns: int) -> list[tuple[StreamKey, bytes]]:
        """The end of the input: what waits for segments that never came is read without them."""
        found: list[tuple[StreamKey, bytes]] = []
        for key, stream in self._streams.items():
            messages: list[bytes] = []
            while stream.early:
                self._jump(stream)
                self._drain(stream, now_ns, messages)
            found += [(key, message) for message in messages]
            self._release(stream)
        self._streams.clear()
        return found

    # -- inside ----------------------------------------------------------------------------------------------------

    def _place(self, stream: _Stream, sequence: int, payload: bytes, now_ns: int, messages: list[bytes]) -> None:
        ahead = (sequence - stream.sequence) % _MODULUS
        if _FAR < ahead < _MODULUS - _FAR:
            self._release(stream)
            stream.sequence, stream.initial, stream.mode = sequence, None, _SEEKING
            ahead = 0
        if ahead >= _HALF:
            # It begins with bytes already seen (a retransmission, a keep-alive probe); there may be new ones behind them.
            payload = payload[_MODULUS - ahead :]
            if not payload:
                return
            ahead = 0
        if ahead:
            self._wait(stream, sequence, payload, now_ns)
            if (
                len(stream.early) > MAX_EARLY
                or stream.early_bytes > MAX_EARLY_BYTES
                or now_ns - stream.early_since_ns > GAP_NS
            ):
                self._jump(stream)
                self._drain(stream, now_ns, messages)
            return
        self._read(stream, payload, now_ns, messages)
        if stream.early:
            self._drain(stream, now_ns, messages)

    def _wait(self, stream: _Stream, sequence: int, payload: bytes, now_ns: int) -> None:
        held = stream.early.get(sequence)
        if held is not None and len(held) >= len(payload):
            return
        if not stream.early:
            stream.early_since_ns = now_ns
        grown = len(payload) - (len(held) if held else 0)
        stream.early[sequence] = payload
        stream.early_bytes += grown
        self._bytes += grown

    def _drain(self, stream: _Stream, now_ns: int, messages: list[bytes]) -> None:
        """Read what waited and is due now."""
        while stream.early:
            first = min(stream.early, key=lambda sequence: (sequence - stream.sequence + _HALF) % _MODULUS)
            ahead = (first - stream.sequence) % _MODULUS
            if 0 < ahead < _HALF:
                # The time runs anew for the next gap.
                stream.early_since_ns = max(stream.early_since_ns, now_ns - GAP_NS // 2)
                return
            payload = stream.early.pop(first)
            stream.early_bytes -= len(payload)
            self._bytes -= len(payload)
            fresh = payload[(_MODULUS - ahead) % _MODULUS :] if ahead else payload
            if fresh and stream.mode != _DEAD:
                self._read(stream, fresh, now_ns, messages)

    def _jump(self, stream: _Stream) -> None:
        """Go on behind a gap: at the first segment there is, looking for a start line."""
        self.gaps += 1
        stream.sequence = min(stream.early, key=lambda sequence: (sequence - stream.sequence) % _MODULUS)
        if stream.held:
            self.unfinished += 1
        self._let_go(stream)
        stream.mode = _SEEKING

    def _read(self, stream: _Stream, payload: bytes, now_ns: int, messages: list[bytes]) -> None:
        """The next bytes of a stream."""
        stream.sequence = (stream.sequence + len(payload)) % _MODULUS
        if stream.mode == _SEEKING:
            found = _START.search(payload)
            if found is None:
                return
            payload = payload[found.start() :]
            stream.mode = _FRAMED
        framer = stream.framer
        if framer is None:
            framer = stream.framer = StreamFramer(max_body=self._max_body)
        frames = framer.feed(payload, now_ns)
        for frame in frames:
            if frame.kind == MESSAGE:
                messages.append(frame.data)
            elif frame.kind == BROKEN:
                # What a live guard would close is read no further here either.
                self.broken += frame.reason != "bad-start-line"
                self._release(stream)
                stream.mode = _DEAD
                return
        held = 0 if framer.partial_since_ns is None else len(payload) + (0 if frames else stream.held)
        self._bytes += held - stream.held
        stream.held = held
        if not held:
            stream.framer = None

    def _let_go(self, stream: _Stream) -> None:
        self._bytes -= stream.held
        stream.held = 0
        stream.framer = None

    def _release(self, stream: _Stream) -> None:
        """Give back what the stream holds."""
        if stream.held:
            self.unfinished += 1
        self._let_go(stream)
        self._bytes -= stream.early_bytes
        stream.early = {}
        stream.early_bytes = 0
