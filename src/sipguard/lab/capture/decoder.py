"""Packets into SIP requests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct

from sipguard.lab.capture import tunnels
from sipguard.lab.capture.acks import OwnFinals
from sipguard.lab.capture.fragments import Reassembler
from sipguard.lab.capture.ip import ESP, TCP, UDP, Datagram, read_ip
from sipguard.lab.capture.link import KNOWN, ip_offset
from sipguard.lab.capture.records import EXEMPT, Packet, Request
from sipguard.lab.capture.tally import Tally
from sipguard.lab.capture.tcp import TcpStreams
from sipguard.wire.scan import TOKEN_BYTES, is_response, request_line, request_method

# Total length, fragment field, protocol, addresses, ports, UDP length of an IPv4 packet without options.
_UDP4 = Struct("!2xHxxHxB2x4s4sHHH").unpack_from
_PORTS = Struct("!HHH").unpack_from
_TCP = Struct("!HHI4xBB").unpack_from
#: Bytes a request can begin with: most of what is no SIP (RTP, STUN, GTP) is told by its first byte.
_FIRST = frozenset(TOKEN_BYTES + b"\r\n")
#: Packets within packets.
MAX_DEPTH = 6


class Decoder:
    """One input's decoder: fragments, TCP streams and counters belong together.

    ports: UDP and TCP ports, at either end, that are looked at; None for all. targets: addresses (4 or 16 bytes) with a
    port, 0 for any, whose incoming requests count; None for all. own_finals: the capture was taken at a guard; ACKs to its
    503s are absorbed (SPEC M2); otherwise every ACK counts, since it then answers somebody else. max_body (bytes of a body on
    a stream), exempt_uris (prefixes): as the guard's settings.
    """

    __slots__ = ("_exempt", "_finals", "_fragments", "_ports", "_targets", "last_ns", "streams", "tally")

    def __init__(
        self,
        *,
        ports: frozenset[int] | None = None,
        targets: frozenset[tuple[bytes, int]] | None = None,
        own_finals: bool = False,
        max_body: int = 65536,
        exempt_uris: Iterable[str] = (),
    ) -> None:
        self.tally = Tally()
        #: The last packet's time, when all have been read.
        self.last_ns = 0
        self.streams = TcpStreams(max_body)
        self._exempt = tuple(prefix.lower().encode() for prefix in exempt_uris)
        self._fragments = Reassembler()
        self._ports = ports
        self._targets = targets
        self._finals = OwnFinals() if own_finals else None

    def __repr__(self) -> str:
        return f"<Decoder {self.tally.packets} packets>"

    @property
    def incomplete_datagrams(self) -> int:
        """IP datagrams of which fragments were missing, those still waiting included."""
        return self._fragments.incomplete + len(self._fragments)

    def requests(self, packets: Iterable[Packet]) -> Iterator[Request]:
        """The requests of packets, in their order; at the end those of streams with gaps."""
        tally, ports = self.tally, self._ports
        # The way of almost every packet is written out here: a call each for link, IP and UDP would double its cost.
        plain = self._targets is None and self._finals is None and not self._exempt
        tunnel_ports, first, new = tunnels.UDP_PORTS, _FIRST, Request._make
        now_ns = 0
        for now_ns, link, data in packets:
            tally.packets += 1
            tally.bytes += len(data)
            offset = 14 if link == 1 and data[12:14] == b"\x08\x00" else ip_offset(link, data)
            if offset < 0:
                if link in KNOWN:
                    tally.not_ip += 1
                else:
                    tally.other_links += 1
                continue
            if plain and len(data) - offset >= 28 and data[offset] == 0x45:
                total, fragment, protocol, source, _, sport, dport, length = _UDP4(data, offset)
                if protocol == UDP and not fragment & 0x3FFF and length <= total - 20 and dport not in tunnel_ports:
                    if ports is not None and sport not in ports and dport not in ports:
                        tally.other_ports += 1
                        continue
                    payload = data[offset + 28 : offset + 20 + length]
                    if not payload or payload[0] not in first:
                        continue
                    method = request_method(payload)
                    if method is not None:
                        yield new((now_ns, method, source, "udp"))
                    elif is_response(payload):
                        tally.udp_responses += 1
                    if len(payload) < length - 8:
                        tally.cut += 1
                    continue
            yield from self._packet(now_ns, data, offset, 0)
        self.last_ns = now_ns
        for key, message in self.streams.finish(now_ns):
            yield from self._message(now_ns, message, "tcp", key[0], key[2:], key[1])

    # -- inside ----------------------------------------------------------------------------------------------------

    def _packet(self, now_ns: int, data: bytes, offset: int, depth: int) -> Iterable[Request]:
        """Any IP packet."""
        packet = read_ip(data, offset)
        if packet is None:
            self.tally.not_ip += 1
            return ()
        if packet.identity is not None:
            self.tally.fragments += 1
            # What was not captured is made up: the request line is in what was.
            load = data[packet.start : packet.end] + bytes(packet.cut)
            self.tally.cut += packet.cut > 0
            whole = self._fragments.add(packet, load, now_ns)
            if whole is None:
                return ()
            protocol, data = whole
            packet = packet._replace(protocol=protocol, start=0, end=len(data), cut=0, identity=None)
        return self._load(now_ns, data, packet, depth)

    def _load(self, now_ns: int, data: bytes, packet: Datagram, depth: int) -> Iterable[Request]:
        protocol = packet.protocol
        if protocol == UDP:
            return self._udp(now_ns, data, packet, depth)
        if protocol == TCP:
            return self._tcp(now_ns, data, packet)
        if protocol == ESP:
            clear = tunnels.in_esp(packet, data)
            if clear is None:
                return ()
            inner_protocol, start, end = clear
            self.tally.tunnelled += 1
            return self._load(now_ns, data, packet._replace(protocol=inner_protocol, start=start, end=end), depth)
        return self._inner(now_ns, tunnels.in_ip(protocol, data, packet.start, packet.end), depth)

    def _inner(self, now_ns: int, found: tuple[bytes, int] | None, depth: int) -> Iterable[Request]:
        if found is None:
            return ()
        if depth >= MAX_DEPTH:
            self.tally.too_deep += 1
            return ()
        self.tally.tunnelled += 1
        return self._packet(now_ns, found[0], found[1], depth + 1)

    def _udp(self, now_ns: int, data: bytes, packet: Datagram, depth: int) -> Iterable[Request]:
        if packet.end - packet.start < 8:
            return ()
        sport, dport, length = _PORTS(data, packet.start)
        # Length 0: a large send, not yet cut up.
        end = min(packet.end, packet.start + length) if length else packet.end
        if not packet.cut and end - packet.start < length:
            # Longer than the IP packet it is in: no socket would see it.
            self.tally.malformed += 1
            return ()
        start = packet.start + 8
        if dport in tunnels.UDP_PORTS:
            found = tunnels.in_udp(dport, data, start, end)
            if found is not None:
                return self._inner(now_ns, found, depth)
        if not self._looked_at(sport, dport):
            return ()
        if end - packet.start < length:
            self.tally.cut += 1
        return self._message(now_ns, data[start:end], "udp", packet.source, (packet.destination, dport), sport)

    def _tcp(self, now_ns: int, data: bytes, packet: Datagram) -> Iterable[Request]:
        if packet.end - packet.start < 20:
            return ()
        sport, dport, sequence, length, flags = _TCP(data, packet.start)
        if not self._looked_at(sport, dport):
            return ()
        key = (packet.source, sport, packet.destination, dport)
        payload = data[packet.start + (length >> 4) * 4 : packet.end]
        if packet.cut:
            # Made up, so that a message cut within its body does not end the stream.
            self.tally.cut += 1
            payload += bytes(packet.cut)
        requests: list[Request] = []
        for message in self.streams.add(key, sequence, flags, payload, now_ns):
            requests += self._message(now_ns, message, "tcp", packet.source, key[2:], sport)
        return requests

    def _looked_at(self, sport: int, dport: int) -> bool:
        if self._ports is None or sport in self._ports or dport in self._ports:
            return True
        self.tally.other_ports += 1
        return False

    def _message(
        self, now_ns: int, data: bytes, transport: str, source: bytes, to: tuple[bytes, int], sport: int
    ) -> Iterable[Request]:
        """One whole datagram's payload, or one message of a stream."""
        if not data or data[0] not in _FIRST:
            return ()
        method = request_method(data)
        if method is None:
            if is_response(data):
                self._response(now_ns, data, transport, source, sport)
            return ()
        targets = self._targets
        if targets is not None and to not in targets and (to[0], 0) not in targets:
            self.tally.elsewhere += 1
            return ()
        if method == "ACK" and self._finals is not None and self._finals.answers(data, now_ns):
            self.tally.absorbed += 1
            return ()
        if self._exempt:
            line = request_line(data)
            if line is not None and line[1].lower().startswith(self._exempt):
                method += EXEMPT
        return (Request(now_ns, method, source, transport),)

    def _response(self, now_ns: int, data: bytes, transport: str, source: bytes, sport: int) -> None:
        if transport == "udp":
            self.tally.udp_responses += 1
        else:
            self.tally.tcp_responses += 1
        targets = self._targets
        if self._finals is not None and (targets is None or (source, sport) in targets or (source, 0) in targets):
            self._finals.note(data, now_ns)
