"""What the drop program drops (DESIGN §3, SPEC V1): model, interpreter and kernel agree, packet by packet."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sipguard.edge.kernel.bpf import MAX_INSTRUCTIONS, Instruction
from sipguard.edge.kernel.interpreter import run
from sipguard.edge.kernel.program import DROP, KEEP, drop_program
from sipguard.edge.kernel.socketfilter import attach, drops
from tests.kernel.loopback import FAMILIES, NINE, Pair, available, datagram, pair, would_drop
from tests.shared import SHARED

EMERGENCY = ("urn:service:sos", "sip:112@")
STUN_BINDING = b"\x00\x01\x00\x00\x21\x12\xa4\x42" + bytes(range(12))
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="socket filters are Linux's")

PASSING = [
    b"",
    b"\r\n",
    b"\r\n\r\n",
    b"ab",
    b"\x00\x00",
    STUN_BINDING,
    b"INVITE sip:",  # 11 octets
    b"BYE sip:bob@example.com SIP/2.0\r\n\r\n",
    b"ACK sip:bob@example.com SIP/2.0\r\n\r\n",
    b"CANCEL sip:bob@example.com SIP/2.0\r\n\r\n",
    b"NOTIFY sip:bob@example.com SIP/2.0\r\n\r\n",
    b"PUBLISH sip:bob@example.com SIP/2.0\r\n\r\n",
    b"NEWMETHOD sip:bob@example.com SIP/2.0\r\n\r\n",
    b"SIP/2.0 200 OK\r\nCSeq: 1 INVITE\r\n\r\n",
    b"SIP/2.0 503 Service Unavailable\r\n\r\n",
    b"INVITE\tsip:bob@example.com SIP/2.0\r\n\r\n",
    b"INVITE  sip:bob@example.com SIP/2.0\r\n\r\n",
    b"invite sip:bob@example.com SIP/2.0\r\n\r\n",
    b"Invite sip:bob@example.com SIP/2.0\r\n\r\n",
    b"INVITE http://example.com/ SIP/2.0\r\n\r\n",
    b"INVITE sipx:bob@example.com SIP/2.0\r\n\r\n",
    b"INVITE SIP:bob@example.com SIP/2.0\r\n\r\n",
    b"INVITES sip:bob@example.com SIP/2.0\r\n\r\n",
    b"INVIT sip:bob@example.com SIP/2.0\r\n\r\n",
    b"\r\nINVITE sip:bob@example.com SIP/2.0\r\n\r\n",
    b"SUBSCRIBE si",
    b"SUBSCRIBE sip",
    b"SUBSCRIBE sips",
    b"SUBSCRIBE ",
]
DROPPED = [method.encode() + b" " + scheme + b"bob@example.com SIP/2.0\r\n\r\n"
           for method in NINE for scheme in (b"sip:", b"sips:", b"tel:", b"urn:")] + [
    b"INVITE sip:x",
    b"OPTIONS sip:",  # twelve octets, and all that the rule asks for
    b"SUBSCRIBE sip:",
    b"SUBSCRIBE sips:",
    b"INVITE sip:" + b"x" * 60_000,
    b"INVITE sip:\xff\x00\xfe",
]  # fmt: skip


def _dropped(program: tuple[Instruction, ...], payload: bytes) -> bool:
    """By the interpreter; anything but a whole datagram or none is a fault."""
    result = run(program, datagram(payload), random=1)
    assert result in (KEEP, DROP)
    return result == DROP


@pytest.fixture(params=FAMILIES, ids=lambda family: family.name)
def filtered(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """A pair whose receiver has the filter of the nine methods, without sampling."""
    if not available(request.param):
        pytest.skip("this machine has no such loopback")
    with pair(request.param) as both:
        attach(both.receiver, drop_program(NINE, sample_one_in=0))
        yield both


@pytest.mark.parametrize("payload", PASSING, ids=lambda payload: repr(payload[:24]))
def test_what_is_not_certainly_sheddable_passes(payload: bytes) -> None:
    assert not would_drop(payload)
    assert not _dropped(drop_program(NINE), payload)


@pytest.mark.parametrize("payload", DROPPED, ids=lambda payload: repr(payload[:24]))
def test_the_nine_methods_are_dropped(payload: bytes) -> None:
    """SPEC V1, V2: critical → drop."""
    assert would_drop(payload)
    assert _dropped(drop_program(NINE), payload)


@LINUX
def test_kernel_agrees_on_own_messages(filtered: Pair) -> None:
    for payload in PASSING:
        assert filtered.outcome(payload) == payload
    for payload in DROPPED:
        assert filtered.outcome(payload) is None


@LINUX
def test_kernel_agrees_on_the_corpus(filtered: Pair) -> None:
    """Every datagram of the corpus: model, interpreter and kernel say the same."""
    files = [path for kind in ("torture", "device", "fuzz") for path in sorted((SHARED / "corpus" / kind).rglob("*"))]
    payloads = [path.read_bytes() for path in files if path.is_file()]
    if not payloads:
        pytest.skip("the corpus is not here")
    program = drop_program(NINE, sample_one_in=0)
    dropped = 0
    for payload in payloads:
        if len(payload) > 65_000:
            continue
        expected = would_drop(payload)
        dropped += expected
        assert _dropped(program, payload) is expected
        assert filtered.outcome(payload) == (None if expected else payload)
    print(f"{len(payloads)} corpus datagrams, {dropped} dropped")
    assert 0 < dropped < len(payloads)


# Request lines and their near misses, cut anywhere; and anything at all.
METHODS = st.sampled_from([*NINE, "ACK", "BYE", "INVIT", "INVITES", "invite", "SUBSCRIBER", "OPTION", "", "X"])
SEPARATORS = st.sampled_from([b" ", b"\t", b"  ", b"", b"\r\n", b"\x00"])
URIS = st.sampled_from([b"sip:", b"sips:", b"tel:", b"urn:", b"SIP:", b"sip;", b"sipt:", b"http:", b"urn", b"t", b""])
LINES = st.builds(
    lambda method, gap, uri, rest, size: (method.encode() + gap + uri + rest)[:size],
    METHODS,
    SEPARATORS,
    URIS,
    st.binary(max_size=12),
    st.integers(0, 40),
)


@LINUX
@settings(max_examples=400, deadline=None)
@given(payload=LINES | st.binary(max_size=40))
def test_kernel_agrees_on_generated_messages(filtered_ipv4: Pair, payload: bytes) -> None:
    expected = would_drop(payload)
    assert _dropped(drop_program(NINE, sample_one_in=0), payload) is expected
    assert filtered_ipv4.outcome(payload) == (None if expected else payload)


@pytest.fixture(scope="module")
def filtered_ipv4() -> Iterator[Pair]:
    with pair() as both:
        attach(both.receiver, drop_program(NINE, sample_one_in=0))
        yield both


TOKENS = st.text("ABCDEFGHIJabc019-.!%*_+`'~", min_size=1, max_size=20)


@given(
    methods=st.lists(TOKENS, max_size=6),
    chosen=TOKENS,
    uri=URIS,
    rest=st.binary(max_size=8),
    size=st.integers(0, 48),
)
@example(methods=["SUBSCRIBE", "SUBSCRIBER"], chosen="SUBSCRIBER", uri=b"sip:", rest=b"", size=48)
@example(methods=["A"], chosen="A", uri=b"sip:", rest=b"", size=48)
@example(methods=["ABC"], chosen="ABC", uri=b"sips:", rest=b"", size=48)
def test_any_set_of_methods(methods: list[str], chosen: str, uri: bytes, rest: bytes, size: int) -> None:
    """`drop_methods` is a setting (SPEC V1): any token, of any length, each alone."""
    program = drop_program(methods, sample_one_in=0)
    for method in (*methods, chosen):
        payload = (method.encode() + b" " + uri + rest)[:size]
        assert _dropped(program, payload) is would_drop(payload, tuple(methods))


def test_ack_only_if_the_caller_says_so() -> None:
    ack = b"ACK sip:bob@example.com SIP/2.0\r\n\r\n"
    assert not _dropped(drop_program(NINE), ack)
    assert _dropped(drop_program((*NINE, "ACK")), ack)


def test_without_methods_everything_passes() -> None:
    program = drop_program(())
    assert not any(_dropped(program, payload) for payload in (*PASSING, *DROPPED))


# Exemptions: every prefix of the line is tried, so each load meets its end of datagram.


def _swapped(text: str) -> bytes:
    """Letters in the other case, behind the scheme."""
    scheme, _, rest = text.partition(":")
    return f"{scheme}:{rest.swapcase()}".encode()


@pytest.mark.parametrize("prefix", EMERGENCY)
def test_exempt_uris_pass(prefix: str) -> None:
    program = drop_program(NINE, EMERGENCY, sample_one_in=0)
    for uri in (prefix.encode(), _swapped(prefix), prefix.encode() + b".fire", _swapped(prefix) + b"host"):
        assert not _dropped(program, b"INVITE " + uri + b" SIP/2.0")
    whole = b"INVITE " + prefix.encode()
    for size in range(len(whole)):
        assert _dropped(program, whole[:size]) is would_drop(whole[:size], NINE, EMERGENCY)
    for position in range(len(prefix)):
        for bit in range(8):
            near = bytearray(prefix.encode())
            near[position] ^= 1 << bit
            payload = b"INVITE " + bytes(near) + b" SIP/2.0"
            assert _dropped(program, payload) is would_drop(payload, NINE, EMERGENCY)


@LINUX
def test_kernel_agrees_on_exempt_uris(filtered: Pair) -> None:
    attach(filtered.receiver, drop_program(NINE, EMERGENCY, sample_one_in=0))
    for uri in (
        b"urn:service:sos",
        b"urn:SERVICE:sos.fire",
        b"urn:service:so",
        b"sip:112@h",
        b"sip:112",
        b"sip:1120@h",
    ):
        payload = b"INVITE " + uri
        assert filtered.outcome(payload) == (None if would_drop(payload, NINE, EMERGENCY) else payload)


PREFIXES = st.builds(
    lambda scheme, rest: scheme + rest,
    st.sampled_from(["sip:", "sips:", "tel:", "urn:", "SIP:", "s", "http:"]),
    st.text(st.sampled_from("aAzZ19@:.-[`{ü"), max_size=9),
)


@given(prefixes=st.lists(PREFIXES, min_size=1, max_size=5), data=st.data())
def test_exempt_prefixes_against_the_model(prefixes: list[str], data: st.DataObject) -> None:
    """The kernel never drops what the process would exempt, and what it exempts begins with a prefix, letters folded."""
    program = drop_program(NINE, prefixes, sample_one_in=0)
    uri = bytearray(data.draw(st.sampled_from(prefixes)).encode() + data.draw(st.binary(max_size=3)))
    if data.draw(st.booleans()):
        uri[data.draw(st.integers(0, len(uri) - 1))] ^= data.draw(st.sampled_from([0x20, 1, 0x80, 0xFF]))
    payload = b"REFER " + bytes(uri[: data.draw(st.integers(0, len(uri)))])
    assert _dropped(program, payload) is would_drop(payload, NINE, tuple(prefixes))


def test_many_exemptions_make_far_jumps() -> None:
    prefixes = tuple(f"sip:emergency-{number:03}@" for number in range(200))
    program = drop_program(NINE, prefixes, sample_one_in=0)
    assert len(program) > 1000
    for number in (0, 1, 100, 199):
        assert not _dropped(program, b"INVITE " + prefixes[number].upper().replace("SIP", "sip").encode())
    assert _dropped(program, b"INVITE sip:emergency-200@")
    assert _dropped(program, b"INVITE sip:emergency-199")


# Sampling


def test_one_in_64_by_the_interpreter() -> None:
    program = drop_program(NINE)
    packet = datagram(DROPPED[0])
    kept = [random for random in range(256) if run(program, packet, random=random) == KEEP]
    assert kept == [0, 64, 128, 192]


@pytest.mark.parametrize("never", [0, 1 << 32])
def test_sampling_can_be_off(never: int) -> None:
    assert run(drop_program(NINE, sample_one_in=never), datagram(DROPPED[0]), random=0) == DROP


@LINUX
def test_one_in_64_by_the_kernel() -> None:
    """DESIGN §3: what the process sees plus what the counter says is what was sent; about 1/64 is seen."""
    sent = 20_000
    with pair() as both:
        attach(both.receiver, drop_program(NINE))
        received = 0
        for _ in range(sent // 200):
            both.send(b"INVITE sip:bob@example.com SIP/2.0\r\n\r\n", times=200)
            received += len(both.drain())
        assert both.settled(sent, received)
        received += len(both.drain())
        assert received + drops(both.receiver) == sent
    mean, deviation = sent / 64, (sent * (1 / 64) * (63 / 64)) ** 0.5
    assert abs(received - mean) < 8 * deviation


# Refusals


@pytest.mark.parametrize("method", ["", "IN VITE", "INVITE ", "ИНВАЙТ", "A" + "\r"])
def test_a_method_is_a_token(method: str) -> None:
    with pytest.raises(ValueError, match="token"):
        drop_program([method])


def test_contradictory_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        drop_program(NINE, [""])
    with pytest.raises(ValueError, match="negative"):
        drop_program(NINE, sample_one_in=-1)
    with pytest.raises(ValueError, match=str(MAX_INSTRUCTIONS)):
        drop_program(NINE, [f"sip:{number:04}" + "x" * 60 for number in range(200)])
