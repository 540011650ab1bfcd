"""Packets into requests: link layers, IPv4/IPv6, tunnels, fragments, filters (issue 3 §1)."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sipguard.lab.capture.acks import MAX_FINALS, MEMORY_NS, OwnFinals
from sipguard.lab.capture.decoder import MAX_DEPTH, Decoder
from sipguard.lab.capture.fragments import MAX_BYTES, MAX_DATAGRAMS, TIMEOUT_NS, Reassembler
from sipguard.lab.capture.ip import read_ip
from sipguard.lab.capture.records import Packet, Request
from tests.lab.packets import (
    CLIENT,
    ETHERNET,
    LOOP,
    NULL,
    RAW,
    SERVER,
    SLL,
    SLL2,
    ack,
    ethernet,
    ip,
    response,
    sip,
    tcp,
    udp,
    udp4,
)

V6 = ("2001:db8::1", "2001:db8::9")
OPTIONS = sip("OPTIONS")
PACKET = ip(udp(OPTIONS), 17)
PACKET6 = ip(udp(OPTIONS), 17, *V6)
UDP, TCP = 17, 6


def decode(frames: Iterable[tuple[int, bytes]], decoder: Decoder | None = None) -> list[Request]:
    """frames: link type and bytes, a ms apart."""
    packets: list[Packet] = [(number * 10**6, link, frame) for number, (link, frame) in enumerate(frames)]
    return list((decoder or Decoder()).requests(packets))


def methods(frames: Iterable[tuple[int, bytes]], decoder: Decoder | None = None) -> list[str]:
    return [request.method for request in decode(frames, decoder)]


PPP_SESSION = struct.pack("!BBHH", 0x11, 0, 1, 99)


@pytest.mark.parametrize(
    ("link", "frame"),
    [
        (ETHERNET, ethernet(PACKET)),
        (ETHERNET, ethernet(PACKET6)),
        (ETHERNET, ethernet(PACKET, 0x8100)),
        (ETHERNET, ethernet(PACKET6, 0x88A8, 0x8100)),
        (ETHERNET, ethernet(PACKET, 0x9100, 0x8100)),
        (ETHERNET, bytes(12) + b"\x88\x64" + PPP_SESSION + b"\x00\x21" + PACKET),
        (ETHERNET, bytes(12) + b"\x81\x00\x00\x07\x88\x64" + PPP_SESSION + b"\x00\x57" + PACKET6),
        (ETHERNET, bytes(12) + b"\x88\x47" + b"\x00\x01\x00\x40" + b"\x00\x02\x01\x40" + PACKET),
        (SLL, bytes(14) + b"\x08\x00" + PACKET),
        (SLL, bytes(14) + b"\x81\x00\x00\x07\x86\xdd" + PACKET6),
        (SLL2, b"\x08\x00" + bytes(18) + PACKET),
        (SLL2, b"\x86\xdd" + bytes(18) + PACKET6),
        (RAW, PACKET),
        (RAW, PACKET6),
        (12, PACKET),
        (228, PACKET),
        (229, PACKET6),
        (NULL, b"\x02\0\0\0" + PACKET),
        (NULL, b"\0\0\0\x02" + PACKET),
        (NULL, b"\x1e\0\0\0" + PACKET6),
        (LOOP, b"\0\0\0\x18" + PACKET6),
        (9, b"\xff\x03\x00\x21" + PACKET),
        (9, b"\x21" + PACKET),
        (104, b"\x0f\x00\x08\x00" + PACKET),
    ],
)
def test_link_layers(link: int, frame: bytes) -> None:
    source = ip_address(V6[0] if frame.endswith(PACKET6) else CLIENT).packed
    assert decode([(link, frame)]) == [Request(0, "OPTIONS", source, "udp")]


def test_what_carries_no_ip_is_counted_not_read() -> None:
    decoder = Decoder()
    frames = [
        (ETHERNET, bytes(12) + b"\x08\x06" + bytes(28)),
        (ETHERNET, b""),
        (RAW, b"\x50" + bytes(40)),
        (147, PACKET),
    ]
    assert decode(frames, decoder) == []
    assert (decoder.tally.not_ip, decoder.tally.other_links) == (3, 1)


def extension(following: int, length: int = 0) -> bytes:
    return bytes((following, length)) + bytes(6 + 8 * length)


def v6(load: bytes, protocol: int) -> tuple[int, bytes]:
    return RAW, ip(load, protocol, *V6)


def test_ipv6_extension_headers() -> None:
    """RFC 8200 4: hop-by-hop, routing, destination options, authentication; an atomic fragment (RFC 6946)."""
    load = udp(OPTIONS)
    chain = extension(43) + extension(60, 2) + extension(UDP)
    authentication = bytes((UDP, 1)) + bytes(10)
    atomic = struct.pack("!BBHI", UDP, 0, 0, 99)
    frames = [v6(chain + load, 0), v6(authentication + load, 51), v6(atomic + load, 44)]
    assert methods(frames) == ["OPTIONS"] * 3
    assert methods([v6(extension(59) + load, 0), v6(extension(0) * 20, 0), v6(b"", 0)]) == []


def v6_fragment(load: bytes, first: int, more: bool, identity: int = 7) -> tuple[int, bytes]:
    return v6(struct.pack("!BBHI", UDP, 0, first | more, identity) + load, 44)


def test_ipv4_options_and_lengths() -> None:
    """Options before UDP; the padding of a short Ethernet frame is no payload; total length 0 is a large send (TSO)."""
    packet = bytearray(PACKET)
    with_options = bytes([0x47]) + bytes(packet[1:20]) + bytes(8) + bytes(packet[20:])
    with_options = with_options[:2] + (len(packet) + 8).to_bytes(2) + with_options[4:]
    large = bytes(packet[:2]) + b"\0\0" + bytes(packet[4:])
    assert methods([(RAW, with_options), (RAW, PACKET + bytes(30)), (RAW, large)]) == ["OPTIONS"] * 3


def test_a_udp_length_beyond_its_packet_is_no_datagram() -> None:
    bad = bytearray(PACKET)
    bad[24:26] = (len(OPTIONS) + 100).to_bytes(2)
    decoder = Decoder()
    assert methods([(RAW, bytes(bad))], decoder) == []
    assert decoder.tally.malformed == 1


def test_a_short_snap_length_still_counts_by_the_request_line() -> None:
    decoder = Decoder()
    frame = udp4(OPTIONS)
    assert methods([(ETHERNET, frame[:96]), (ETHERNET, frame[:60])], decoder) == ["OPTIONS"]
    assert decoder.tally.cut == 2


def test_a_segment_cut_within_a_body_does_not_end_its_stream() -> None:
    first, second = sip("INVITE", body=b"v=0\r\n" * 200), sip("BYE", 2)
    frames = [ip(tcp(first, 1), TCP)[:600], ip(tcp(second, 1 + len(first)), TCP)]
    assert methods([(RAW, frame) for frame in frames]) == ["INVITE", "BYE"]


def test_what_is_no_request() -> None:
    """SPEC M2: responses never count; nor keep-alives, STUN, RTP, SSDP, emptiness."""
    payloads = [b"", b"\r\n\r\n", b"\0\0", b"\x80\x08" + bytes(160), b"hello", response(200)]
    payloads += [b"\0\1\0\0\x21\x12\xa4\x42" + bytes(12), b"NOTIFY * HTTP/1.1\r\nHost: x\r\n\r\n"]
    decoder = Decoder()
    assert methods([(ETHERNET, udp4(payload)) for payload in payloads], decoder) == []
    assert decoder.tally.udp_responses == 1


# -- tunnels -----------------------------------------------------------------------------------------------------------

FRAME = ethernet(PACKET)


def gtpu(inner: bytes, flags: int = 0x30, more: bytes = b"") -> bytes:
    return struct.pack("!BBHI", flags, 255, len(inner) + len(more), 1) + more + inner


@pytest.mark.parametrize(
    ("load", "protocol"),
    [
        (PACKET, 4),
        (PACKET6, 41),
        (b"\0\0\x08\0" + PACKET, 47),
        (b"\xb0\0\x86\xdd" + bytes(12) + PACKET6, 47),
        (b"\0\0\x65\x58" + FRAME, 47),
        (b"\x10\0\x88\xbe" + bytes(4 + 8) + FRAME, 47),
        (udp(b"\x08\0\0\0\0\0\x07\0" + FRAME, 50000, 4789), UDP),
        (udp(b"\x08\0\0\0\0\0\x07\0" + FRAME, 50000, 8472), UDP),
        (udp(b"\x01\0\x65\x58\0\0\x07\0" + bytes(4) + FRAME, 50000, 6081), UDP),
        (udp(gtpu(PACKET), 2152, 2152), UDP),
        (udp(gtpu(PACKET6, 0x32, b"\0\1\0\0"), 2152, 2152), UDP),
        (udp(gtpu(PACKET, 0x34, b"\0\0\0\x85" + b"\1\0\x09\0"), 2152, 2152), UDP),
    ],
)
def test_tunnels(load: bytes, protocol: int) -> None:
    decoder = Decoder()
    assert methods([(ETHERNET, ethernet(ip(load, protocol, "198.51.100.1", "198.51.100.2")))], decoder) == ["OPTIONS"]
    assert decoder.tally.tunnelled == 1


def esp(inner: bytes, protocol: int, icv: int = 12, padding: int = 2) -> bytes:
    """ESP with NULL encryption (RFC 4303 2, RFC 2410)."""
    trailer = bytes(range(1, padding + 1)) + bytes((padding, protocol))
    return struct.pack("!II", 0x1234, 1) + inner + trailer + b"\xaa" * icv


@pytest.mark.parametrize("icv", [12, 16])
def test_esp_that_does_not_encrypt(icv: int) -> None:
    """IMS signals so (3GPP TS 33.203); TCP is told by its checksum."""
    assert methods([(RAW, ip(esp(udp(OPTIONS), UDP, icv), 50))]) == ["OPTIONS"]
    segment = bytearray(tcp(OPTIONS, 5))
    assert methods([(RAW, ip(esp(bytes(segment), TCP, icv), 50))]) == []
    covered = (
        ip_address(CLIENT).packed + ip_address(SERVER).packed + len(segment).to_bytes(4) + TCP.to_bytes(4) + segment
    )
    total = int.from_bytes(covered + bytes(len(covered) % 2)) % 65535
    segment[16:18] = (65535 - total).to_bytes(2)
    assert methods([(RAW, ip(esp(bytes(segment), TCP, icv), 50))]) == ["OPTIONS"]


def test_esp_that_only_looks_so() -> None:
    """Padding other than 1, 2, 3 …, a UDP length that does not fit: encrypted, nothing is read into it."""
    good = esp(udp(OPTIONS), UDP)
    assert methods([(RAW, ip(good, 50))]) == ["OPTIONS"]
    assert methods([(RAW, ip(good[:-15] + b"\7" + good[-14:], 50))]) == []
    assert methods([(RAW, ip(good[:8] + b"xx" + good[8:], 50))]) == []


def test_tunnels_within_tunnels_end() -> None:
    packet = PACKET
    for _ in range(MAX_DEPTH):
        packet = ip(packet, 4)
    assert methods([(RAW, packet)]) == ["OPTIONS"]
    decoder = Decoder()
    assert methods([(RAW, ip(packet, 4))], decoder) == []
    assert decoder.tally.too_deep == 1


# -- fragments ---------------------------------------------------------------------------------------------------------

LONG = udp(sip("INVITE", body=b"x" * 3000))


def v4_fragments(load: bytes, size: int, identity: int = 7) -> list[tuple[int, bytes]]:
    starts = range(0, len(load), size)
    return [
        (
            RAW,
            ip(load[at : at + size], UDP, identity=identity, first=at, more=at + size < len(load)),
        )
        for at in starts
    ]


@given(st.permutations(range(5)), st.integers(0, 4), st.booleans())
def test_fragments_in_any_order_with_copies(order: list[int], again: int, six: bool) -> None:
    """RFC 791 3.2, RFC 8200 4.5; a capture on `any` sees each more than once."""
    size = 664
    if six:
        parts = [v6_fragment(LONG[at : at + size], at, at + size < len(LONG)) for at in range(0, len(LONG), size)]
    else:
        parts = v4_fragments(LONG, size)
    assert len(parts) == 5
    frames = [parts[number] for number in order]
    frames.insert(again, frames[max(0, again - 1)])
    assert methods(frames) == ["INVITE"]


def test_a_datagram_with_a_fragment_missing_does_not_count() -> None:
    decoder = Decoder()
    assert methods([*v4_fragments(LONG, 1000)[:-1], *v4_fragments(LONG, 1000, identity=8)], decoder) == ["INVITE"]
    assert decoder.incomplete_datagrams == 1


def test_a_first_fragment_alone_does_not_count_though_its_datagram_would_fit() -> None:
    packet = bytearray(PACKET)
    packet[6] |= 0x20  # more fragments
    assert methods([(RAW, bytes(packet))]) == []


def test_fragments_cut_by_the_snap_length_count_by_their_request_line() -> None:
    """All fragments were there, none whole; the second datagram lacks one altogether."""
    decoder = Decoder()
    cut = [(link, frame[:150]) for link, frame in v4_fragments(LONG, 1000)]
    assert methods([*cut, *v4_fragments(LONG, 1000, identity=8)[1:]], decoder) == ["INVITE"]
    assert decoder.tally.cut == len(cut)


def test_tiny_fragments_split_the_request_line() -> None:
    assert methods(v4_fragments(udp(OPTIONS), 16)) == ["OPTIONS"]


def test_waiting_fragments_are_bounded_in_number_time_and_bytes() -> None:
    reassembler = Reassembler()
    for identity in range(MAX_DATAGRAMS + 100):
        found = read_ip(ip(b"x" * 64, UDP, identity=identity, more=True), 0)
        assert found is not None
        assert reassembler.add(found, b"x" * 64, 0) is None
    assert len(reassembler) == MAX_DATAGRAMS
    assert reassembler.incomplete == 100
    last = read_ip(ip(b"x" * 8, UDP, source="192.0.2.77", more=True), 0)
    assert last is not None
    reassembler.add(last, b"x" * 8, TIMEOUT_NS)
    assert len(reassembler) == 1
    full = Reassembler()
    for identity in range(600):
        part = read_ip(ip(b"y" * 60000, UDP, identity=identity, more=True), 0)
        assert part is not None
        full.add(part, b"y" * 60000, 0)
    assert len(full) * 60000 <= MAX_BYTES


@given(
    st.lists(
        st.tuples(st.integers(0, 8191), st.integers(0, 80), st.booleans(), st.integers(0, 2)), min_size=1, max_size=60
    )
)
def test_any_fragments_give_whole_datagrams_or_nothing(parts: list[tuple[int, int, bool, int]]) -> None:
    """Overlaps, contradictory ends, loads past 64 KiB: never an exception, never more bytes than an IP packet can hold."""
    reassembler = Reassembler()
    for first, length, more, identity in parts:
        found = read_ip(ip(b"z" * length, UDP, identity=identity, first=first * 8, more=more), 0)
        assert found is not None
        if found.identity is None:
            continue
        whole = reassembler.add(found, b"z" * length, 0)
        assert whole is None or len(whole[1]) <= 65535


# -- what is asked for -------------------------------------------------------------------------------------------------


def test_ports_and_targets() -> None:
    """`--ports` looks at either end; `--to` counts what is sent to those servers only."""
    frames = [
        (ETHERNET, udp4(sip("INVITE"), sport=5060, dport=5070)),
        (ETHERNET, udp4(sip("BYE"), sport=40000, dport=5060)),
        (ETHERNET, udp4(sip("OPTIONS"), SERVER, CLIENT)),
        (ETHERNET, ethernet(ip(tcp(sip("REGISTER"), 1, dport=5070), TCP))),
    ]
    assert methods(frames) == ["INVITE", "BYE", "OPTIONS", "REGISTER"]
    assert methods(frames, Decoder(ports=frozenset((5070,)))) == ["INVITE", "REGISTER"]
    server = ip_address(SERVER).packed
    decoder = Decoder(targets=frozenset(((server, 0),)))
    assert methods(frames, decoder) == ["INVITE", "BYE", "REGISTER"]
    assert decoder.tally.elsewhere == 1
    assert methods(frames, Decoder(targets=frozenset(((server, 5060),)))) == ["BYE"]


def test_acks_to_the_503s_of_a_capture_taken_at_a_guard() -> None:
    """SPEC M2: absorbed when asked for, by Call-ID, To tag and CSeq; every other ACK counts."""
    frames = [
        (ETHERNET, udp4(sip("INVITE", 1))),
        (ETHERNET, udp4(response(503, 1, "own"), SERVER, CLIENT)),
        (ETHERNET, udp4(ack(1, "own"))),
        (ETHERNET, udp4(ack(1, "another"))),
        (ETHERNET, udp4(response(486, 2, "busy"), SERVER, CLIENT)),
        (ETHERNET, udp4(ack(2, "busy"))),
    ]
    assert methods(frames) == ["INVITE", "ACK", "ACK", "ACK"]
    decoder = Decoder(own_finals=True)
    assert methods(frames, decoder) == ["INVITE", "ACK", "ACK"]
    assert decoder.tally.absorbed == 1
    elsewhere = frozenset(((ip_address("192.0.2.200").packed, 0), (ip_address(SERVER).packed, 5061)))
    assert methods(frames, Decoder(own_finals=True, targets=elsewhere)) == []


def test_a_503_is_remembered_for_32_seconds() -> None:
    """64·T1: no ACK to it comes later (RFC 3261 17.1.1.2)."""
    for at_ns, expected in ((MEMORY_NS - 1, []), (MEMORY_NS, ["ACK"])):
        packets = [(0, ETHERNET, udp4(response(503), SERVER, CLIENT)), (at_ns, ETHERNET, udp4(ack()))]
        assert [request.method for request in Decoder(own_finals=True).requests(packets)] == expected


def test_uris_that_are_always_passed() -> None:
    """DESIGN §3 `exempt_uris`: told by the Request-URI's beginning, in any case; named so that no set of methods has it."""
    emergency = sip("INVITE").replace(b"sip:bob@example.com SIP", b"URN:service:sos.police SIP")
    frames = [(ETHERNET, udp4(emergency)), (ETHERNET, udp4(sip("INVITE")))]
    assert methods(frames, Decoder(exempt_uris=["urn:service:sos"])) == ["INVITE (exempt)", "INVITE"]
    assert methods(frames) == ["INVITE", "INVITE"]


def test_remembered_503s_are_bounded() -> None:
    finals = OwnFinals()
    for number in range(MAX_FINALS + 10):
        finals.note(response(503, number), 0)
    assert len(finals) == MAX_FINALS


@given(
    st.binary(max_size=200), st.sampled_from([ETHERNET, SLL, SLL2, RAW, NULL, LOOP, 9, 50, 51, 104, 12, 228, 229, 77])
)
def test_any_bytes_decode(data: bytes, link: int) -> None:
    decode([(link, data)])


@given(st.data())
def test_spoilt_packets_decode(data: st.DataObject) -> None:
    """A packet of each kind with some bytes changed, or cut: never an exception."""
    whole = data.draw(
        st.sampled_from(
            [
                ethernet(PACKET6, 0x8100),
                ethernet(ip(udp(gtpu(PACKET, 0x34, b"\0\0\0\x85\1\0\x09\0"), 2152, 2152), UDP)),
                ethernet(ip(b"\xb0\0\x65\x58" + bytes(12) + FRAME, 47)),
                ethernet(ip(udp(b"\x3f\0\x65\x58\0\0\x07\0" + bytes(252) + FRAME, 50000, 6081), UDP)),
                ethernet(ip(esp(udp(OPTIONS), UDP), 50)),
                ethernet(ip(extension(43) + extension(UDP) + udp(OPTIONS), 0, *V6)),
                ethernet(ip(tcp(OPTIONS, 1), TCP)),
            ]
        )
    )
    spoilt = bytearray(whole[: data.draw(st.integers(0, len(whole)))])
    for _ in range(data.draw(st.integers(0, 6))):
        if spoilt:
            spoilt[data.draw(st.integers(0, len(spoilt) - 1))] = data.draw(st.integers(0, 255))
    decode([(ETHERNET, bytes(spoilt))])
