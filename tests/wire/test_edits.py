"""Edits change what they should and no other byte. RFC 3261 16.6, 16.7, 18.2.1, 18.3; RFC 3581 4."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sipguard.wire.edits import forward_request, mark_via, pop_via
from sipguard.wire.head import read_head
from sipguard.wire.names import MAX_FORWARDS
from sipguard.wire.values import read_via
from tests.wire.generated import any_bytes, messages
from tests.wire.messages import INVITE, RESPONSE, TWO_VIAS, VIA, request

OURS = b"Via: SIP/2.0/UDP 192.0.2.1:5070;branch=z9hG4bKsg0\r\nRecord-Route: <sip:192.0.2.1;lr>\r\n"


def forwarded(data: bytes, **changes: object) -> bytes:
    options: dict[str, object] = {"received": None, "rport": None, "drop_routes": 0} | changes
    return forward_request(read_head(data, b"x-guard-source"), OURS, **options)  # type: ignore[arg-type]


def logical_lines(data: bytes) -> list[bytes]:
    """The test's own cutting: logical lines of the head with their line ends, then the empty line, then the body."""
    lines: list[bytes] = []
    rest = data
    while rest:
        line, newline, rest = rest.partition(b"\n")
        line += newline
        if line in (b"\r\n", b"\n"):
            return [*lines, line, rest]
        if lines and line[:1] in (b" ", b"\t"):
            lines[-1] += line
        else:
            lines.append(line)
    return lines


def kind_of(line: bytes) -> str:
    name = line.partition(b":")[0].strip().lower() if b":" in line else b""
    return {b"via": "via", b"v": "via", b"route": "route", b"max-forwards": "hops", b"x-guard-source": "extra"}.get(
        name, "other"
    )


def test_a_plain_request() -> None:
    out = forwarded(INVITE, received=b"192.0.2.10", rport=40000)
    assert out == (
        INVITE.replace(b"SIP/2.0\r\n", b"SIP/2.0\r\n" + OURS, 1)
        .replace(b";rport", b";rport=40000;received=192.0.2.10")
        .replace(b"Max-Forwards: 70", b"Max-Forwards: 69")
    )


def test_nothing_to_change_is_the_same() -> None:
    """Each kind of edit is left out when it is not asked for; Max-Forwards alone always moves."""
    head = read_head(INVITE)
    out = forward_request(head, b"", received=None, rport=None, drop_routes=0)
    assert out == INVITE.replace(b"Max-Forwards: 70", b"Max-Forwards: 69")


@pytest.mark.parametrize(
    ("line", "changed"),
    [
        (b"Max-Forwards: 1", b"Max-Forwards: 0"),
        (b"MAX-FORWARDS :  0070 ", b"MAX-FORWARDS :  69 "),
        (b"Max-Forwards:\r\n 10", b"Max-Forwards:\r\n 9"),
        (b"Max-Forwards: 0", b"Max-Forwards: 0"),
        (b"Max-Forwards: 300", b"Max-Forwards: 300"),
        (b"Max-Forwards: x", b"Max-Forwards: x"),
    ],
)
def test_max_forwards(line: bytes, changed: bytes) -> None:
    """RFC 3261 16.6 item 3; what is 0 or unreadable is not for this place to judge."""
    assert forwarded(request(hops=line)) == request(hops=changed).replace(b"SIP/2.0\r\n", b"SIP/2.0\r\n" + OURS, 1)


def test_max_forwards_absent() -> None:
    assert read_head(forwarded(request(hops=None))).max_forwards == 70


@pytest.mark.parametrize(
    ("value", "received", "rport", "marked"),
    [
        (b"SIP/2.0/UDP h;branch=1", b"192.0.2.9", 9, b"SIP/2.0/UDP h;branch=1;received=192.0.2.9"),
        (b"SIP/2.0/UDP h;rport;branch=1", b"192.0.2.9", 9, b"SIP/2.0/UDP h;rport=9;branch=1;received=192.0.2.9"),
        (b"SIP/2.0/UDP h;branch=1;rport", None, 9, b"SIP/2.0/UDP h;branch=1;rport=9"),
        (b"SIP/2.0/UDP h;rport=;branch=1", None, 9, b"SIP/2.0/UDP h;rport=9;branch=1"),
        (b"SIP/2.0/UDP h;rport=7;rportx", None, 9, b"SIP/2.0/UDP h;rport=9;rportx"),
        (b"SIP/2.0/UDP h;rportx", None, 9, b"SIP/2.0/UDP h;rportx"),
        (b"SIP/2.0/UDP h;rport;rportx", None, 9, b"SIP/2.0/UDP h;rport=9;rportx"),
        (b"SIP/2.0/UDP h;rport;branch=1;rport", None, 9, b"SIP/2.0/UDP h;rport=9;branch=1;rport=9"),
        (b"SIP/2.0/UDP h;rport", b"192.0.2.9", None, b"SIP/2.0/UDP h;rport;received=192.0.2.9"),
        (b"SIP/2.0/UDP h;received=bad;x=1", b"192.0.2.9", 9, b"SIP/2.0/UDP h;x=1;received=192.0.2.9"),
        (b"SIP/2.0/UDP h; RECEIVED = bad;x=1", b"192.0.2.9", 9, b"SIP/2.0/UDP h;x=1;received=192.0.2.9"),
        (
            b'SIP/2.0/UDP h;x=";received=1";rport',
            b"192.0.2.9",
            9,
            b'SIP/2.0/UDP h;x=";received=1";rport=9;received=192.0.2.9',
        ),
        (b"SIP/2.0/UDP h;received=kept", None, None, b"SIP/2.0/UDP h;received=kept"),
    ],
)
def test_mark_via(value: bytes, received: bytes | None, rport: int | None, marked: bytes) -> None:
    """With and without knowing the value already, the same."""
    assert mark_via(value, received, rport) == marked
    assert mark_via(value, received, rport, read_via(value)) == marked


def test_only_the_top_value_is_marked() -> None:
    line = b"Via: " + b" , ".join(TWO_VIAS) + b"  "
    out = forwarded(request(b"v: SIP/2.0/UDP third;rport", via=line), received=b"192.0.2.9", rport=9)
    marked = line.replace(b";rport", b";rport=9;received=192.0.2.9", 1)
    assert b"\r\n" + marked + b"\r\n" in out
    assert b"\r\nv: SIP/2.0/UDP third;rport\r\n" in out


@pytest.mark.parametrize(
    ("drop", "left"),
    [
        (0, [b"Route: <sip:1>", b"X: y", b"Route : <sip:2> ,\r\n <sip:3,3>, <sip:4>", b"route: <sip:5>"]),
        (1, [b"X: y", b"Route : <sip:2> ,\r\n <sip:3,3>, <sip:4>", b"route: <sip:5>"]),
        (2, [b"X: y", b"Route : <sip:3,3>, <sip:4>", b"route: <sip:5>"]),
        (3, [b"X: y", b"Route : <sip:4>", b"route: <sip:5>"]),
        (4, [b"X: y", b"route: <sip:5>"]),
        (5, [b"X: y"]),
        (9, [b"X: y"]),
    ],
)
def test_drop_routes(drop: int, left: list[bytes]) -> None:
    """RFC 3261 16.4, 16.6 item 6: values go from the top, a line left empty goes with them."""
    data = request(b"Route: <sip:1>", b"X: y", b"Route : <sip:2> ,\r\n <sip:3,3>, <sip:4>", b"route: <sip:5>")
    out = forwarded(data, drop_routes=drop)
    assert out.partition(b"Content-Length: 0\r\n")[2] == b"".join(line + b"\r\n" for line in left) + b"\r\n"


def test_extra_header_is_stripped_in_every_spelling() -> None:
    """DESIGN §3: X-Guard-Source is ours alone; what comes from outside under that name goes."""
    lines = (b"X-Guard-Source: 1", b"x-guard-SOURCE :\r\n 2", b"X-Guard-Sources: stays", b"X-GUARD-SOURCE: 3")
    out = forwarded(request(*lines))
    assert out.lower().count(b"x-guard-source") == 1
    assert b"X-Guard-Sources: stays" in out
    assert forwarded(request(*lines), strip_extra=False).lower().count(b"x-guard-source") == 4


def test_request_uri_replaced() -> None:
    for data in (INVITE, INVITE.replace(b"\r\n", b"\n")):
        out = forwarded(data, uri=b"sip:new@h")
        assert out.startswith(b"INVITE sip:new@h SIP/2.0\r\nVia: ")
        assert read_head(out).problem is None


def test_octets_behind_the_body_go() -> None:
    """RFC 3261 18.3: on a datagram they MUST be discarded."""
    assert forwarded(INVITE + b"BYE sip:x SIP/2.0\r\n\r\n") == forwarded(INVITE)
    assert pop_via(read_head(RESPONSE + b"more")) == pop_via(read_head(RESPONSE))


def test_pop_via() -> None:
    assert pop_via(read_head(RESPONSE)) == RESPONSE.replace(
        b"Via: SIP/2.0/UDP 192.0.2.1:5070;branch=z9hG4bKsg0\r\n", b""
    )
    one_line = request(via=b"Via: " + b" ,\r\n ".join(TWO_VIAS))
    assert pop_via(read_head(one_line)) == request(via=b"Via: " + TWO_VIAS[1])
    assert pop_via(read_head(request())) == request(via=None)
    assert pop_via(read_head(request(via=None))) == request(via=None)
    broken = request(via=b"Via: SIP/2.0/UDP h,,")
    assert pop_via(read_head(broken)) == request(via=None)
    assert pop_via(read_head(b"SIP/2.0 200 OK\nVia: a\nv: b")) == b"SIP/2.0 200 OK\nv: b"


@given(messages(), st.integers(0, 4), st.booleans(), st.sampled_from([None, b"192.0.2.9"]), st.sampled_from([None, 9]))
def test_the_rest_stays_byte_for_byte(
    data: bytes, drop: int, strip: bool, received: bytes | None, rport: int | None
) -> None:
    """Every line that is not edited comes out as it went in and in its order; the edited ones read back as they should."""
    before = read_head(data, b"x-guard-source")
    out = forward_request(before, OURS, received=received, rport=rport, drop_routes=drop, strip_extra=strip)
    after = read_head(out, b"x-guard-source")
    lines, left = logical_lines(data), logical_lines(out)
    inserted = 2 if before.line_of[MAX_FORWARDS] else 3
    assert b"".join(left[1 : 1 + inserted]) == OURS + (b"Max-Forwards: 70\r\n" if inserted == 3 else b"")
    left[0 : 1 + inserted] = [lines[0]]  # the start line may have got a CRLF in place of a bare LF
    edited = ("via", "route", "hops", "extra") if strip else ("via", "route", "hops")
    assert [line for line in left if kind_of(line) not in edited] == [
        line for line in lines if kind_of(line) not in edited
    ]
    later_vias = [line for line in lines if kind_of(line) == "via"][1:]
    assert [line for line in left if kind_of(line) == "via"][1:] == later_vias
    assert after.routes == before.routes[drop:]
    assert after.max_forwards == (70 if before.max_forwards is None else before.max_forwards - 1)
    assert strip is False or all(kind_of(line) != "extra" for line in left)
    assert after.vias[1:] == ([mark_via(before.vias[0], received, rport)] if before.vias else []) + before.vias[1:]
    if before.vias and received is not None:
        marked = read_via(after.vias[1])
        assert marked is not None
        assert marked.received == received


@given(messages())
def test_pop_undoes_the_insertion(data: bytes) -> None:
    """What we put on top is what we take off."""
    head = read_head(data)
    out = forward_request(head, OURS.partition(b"Record-Route")[0], received=None, rport=None, drop_routes=0)
    popped = read_head(pop_via(read_head(out)))
    assert popped.vias == head.vias
    assert [line for line in logical_lines(popped.data) if kind_of(line) != "hops"][1:] == [
        line for line in logical_lines(data) if kind_of(line) != "hops"
    ][1:]


@given(any_bytes, st.integers(0, 3))
def test_any_bytes(data: bytes, drop: int) -> None:
    """Never raises; our lines are always the first ones behind the start line."""
    head = read_head(data, b"x-guard-source")
    out = forward_request(head, OURS, received=b"192.0.2.9", rport=9, drop_routes=drop)
    assert OURS in out
    pop_via(head)
    if head.problem is None and head.method is not None:
        after = read_head(out, b"x-guard-source")
        assert after.problem is None
        assert after.vias[0] == b"SIP/2.0/UDP 192.0.2.1:5070;branch=z9hG4bKsg0"
        assert after.vias[2:] == head.vias[1:]
        assert (after.method, after.from_, after.to, after.call_id, after.cseq) == (
            head.method,
            head.from_,
            head.to,
            head.call_id,
            head.cseq,
        )


def test_marked_via_constant() -> None:
    assert VIA.endswith(b";rport")  # the plain cases above lean on it
