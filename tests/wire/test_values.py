"""Via and URI values. RFC 3261 20.42, 19.1; RFC 3581; RFC 5118."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sipguard.wire.values import Uri, Via, _read_odd_via, read_uri, read_via
from tests.wire.generated import via_values

VIAS = {
    b"SIP/2.0/UDP 192.0.2.1": (b"UDP", b"192.0.2.1", None, None, None, None),
    b"SIP/2.0/UDP a.example:5061;branch=z9hG4bK1;rport": (b"UDP", b"a.example", 5061, b"z9hG4bK1", None, 0),
    b"SIP/2.0/TLS a_b.example;rport;branch=z9hG4bK1": (b"TLS", b"a_b.example", None, b"z9hG4bK1", None, 0),
    b"SIP/2.0/UDP h;rport=;branch=b": (b"UDP", b"h", None, b"b", None, 0),
    b"SIP/2.0/UDP h;rport=5070;received=192.0.2.9;branch=b": (b"UDP", b"h", None, b"b", b"192.0.2.9", 5070),
    b"SIP/2.0/UDP h;rport=70000;branch=b": (b"UDP", b"h", None, b"b", None, 0),
    b"SIP/2.0/UDP h;branch=a;branch=b": (b"UDP", b"h", None, b"a", None, None),
    b"SIP/2.0/tcp [2001:DB8::1]:5060 ; Branch = x ; RPORT": (b"TCP", b"[2001:DB8::1]", 5060, b"x", None, 0),
    # RFC 5118 4.3: what looks like a port inside the brackets belongs to the address.
    b"SIP/2.0/UDP [2001:db8::10:5070]": (b"UDP", b"[2001:db8::10:5070]", None, None, None, None),
    # RFC 5118 4.5: received with and without brackets.
    b"SIP/2.0/UDP h;received=2001:db8::9:255": (b"UDP", b"h", None, None, b"2001:db8::9:255", None),
    b"SIP/2.0/UDP h;received=[2001:db8::9:255]": (b"UDP", b"h", None, None, b"[2001:db8::9:255]", None),
    b"SIP  /   2.0 /UDP 192.0.2.2;rport;branch=390skdjuw": (b"UDP", b"192.0.2.2", None, b"390skdjuw", None, 0),
    b"SIP / 2.0 / TCP  spindle.example   ; branch  =   z9 ": (b"TCP", b"spindle.example", None, b"z9", None, None),
    b"SIP/2.0/UDP h : 5062;maddr=192.0.2.7 (a comment)": (b"UDP", b"h", 5062, None, None, None),
    b'SIP/2.0/UDP h;x=";rport;branch=no";branch=yes': (b"UDP", b"h", None, b"yes", None, None),
    b"SIP/7.0/X-NEW h;hidden": (b"X-NEW", b"h", None, None, None, None),
    b"sip/2.0/udp h": (b"UDP", b"h", None, None, None, None),
}

NO_VIAS = [
    b"",
    b";",
    b"SIP/2.0/UDP",
    b"SIP/2.0/UDP ;branch=z9hG4bK1",
    b"SIP/2.0 h",
    b"HTTP/1.1/TCP h",
    b"SIP/x.y/UDP h",
    b"SIP/2.0/U,DP h",
    b"SIP/2.0/UDP h:",
    b"SIP/2.0/UDP h:0",
    b"SIP/2.0/UDP h:65536",
    b"SIP/2.0/UDP h:99999",
    b"SIP/2.0/UDP h:123456",
    b"SIP/2.0/UDP h:50 60x",
    b"SIP/2.0/UDP two hosts",
    b"SIP/2.0/UDP 2001:db8::1",
    b"SIP/2.0/UDP [2001:db8::1",
    b"SIP/2.0/UDP []",
    b"SIP/2.0/UDP h\rX",
    b"SIP/2.0/UDP h;a,SIP/2.0/UDP i",
    b"SIP/2.0/UDP h,",
]

URIS = {
    b"sip:bob@Example.NET": (b"sip", b"bob", b"example.net", None, {}),
    b"sip:example.net": (b"sip", None, b"example.net", None, {}),
    b"SIPS:bob:secret@192.0.2.1:5061;LR;transport=TCP": (
        b"sips",
        b"bob",
        b"192.0.2.1",
        5061,
        {b"lr": None, b"transport": b"TCP"},
    ),
    b'"B, <b>" <sip:b@h;lr>;x=y': (b"sip", b"b", b"h", None, {b"lr": None}),
    b'"quoted \\" <sip:no@no>" <sip:b@h>': (b"sip", b"b", b"h", None, {}),
    b"Bob <sip:[2001:DB8::1]:5060;maddr=192.0.2.9?a=b>": (
        b"sip",
        None,
        b"[2001:db8::1]",
        5060,
        {b"maddr": b"192.0.2.9"},
    ),
    b"sip:+1555;phone-context=x.example@h;user=phone": (
        b"sip",
        b"+1555;phone-context=x.example",
        b"h",
        None,
        {b"user": b"phone"},
    ),
    b"sip:a?b@h": (b"sip", b"a?b", b"h", None, {}),
    b"sip:@192.0.2.1": (b"sip", b"", b"192.0.2.1", None, {}),
    b"sip:h;a=1;A=2;;=x": (b"sip", None, b"h", None, {b"a": b"1"}),
    b"tel:+1-201-555-0123;phone-context=x": (b"tel", None, b"", None, {}),
    b"<urn:service:sos>": (b"urn", None, b"", None, {}),
    b"http://www.example.com": (b"http", None, b"", None, {}),
}

NO_URIS = [
    b"",
    b"*",
    b"bob",
    b":x",
    b"sip:",
    b"sip:;transport=udp",
    b"sip:b@",
    b"sip:2001:db8::10",
    b"sip:h:x",
    b"sip:h:0",
    b"<sip:h",
    b"s p:h",
    b"sip:h h",
    b"sip:a@b@c",
]


@pytest.mark.parametrize("value", VIAS)
def test_vias(value: bytes) -> None:
    via = read_via(value)
    assert via is not None
    assert (via.transport, via.host, via.port, via.branch, via.received, via.rport) == VIAS[value]
    assert via.sent_by == (via.host if via.port is None else via.host + b":%d" % via.port)


@pytest.mark.parametrize("value", NO_VIAS)
def test_no_vias(value: bytes) -> None:
    assert read_via(value) is None


@pytest.mark.parametrize("value", URIS)
def test_uris(value: bytes) -> None:
    uri = read_uri(value)
    assert uri is not None
    assert (uri.scheme, uri.user, uri.host, uri.port, uri.params) == URIS[value]


@pytest.mark.parametrize("value", NO_URIS)
def test_no_uris(value: bytes) -> None:
    assert read_uri(value) is None


def test_reprs() -> None:
    assert repr(read_via(b"SIP/2.0/UDP h;rport")) == "Via(b'UDP', b'h', branch=None, received=None, rport=0)"
    assert repr(read_uri(b"sip:u@h:1;lr")) == "Uri(b'sip', b'u', b'h', 1, {b'lr': None})"


PIECES = st.lists(
    st.sampled_from(
        [
            b"SIP/2.0/UDP",
            b"SIP",
            b"/",
            b" ",
            b"h",
            b"[::1]",
            b":5060",
            b";",
            b"rport",
            b"=",
            b"branch",
            b'"',
            b"<",
            b">",
            b",",
            b"sip:",
            b"@",
            b"?",
            b"\0",
            b"\r",
            b"\xff",
            b"\\",
        ]
    ),
    max_size=14,
).map(b"".join)


FIELDS = ("transport", "host", "port", "sent_by", "branch", "received", "rport")


@given(st.one_of(via_values, st.sampled_from([*VIAS, *NO_VIAS]), PIECES))
def test_the_usual_shape_and_any_other_agree(value: bytes) -> None:
    """The quick way is a short cut, not another reading."""
    quick, careful = read_via(value), _read_odd_via(value)
    assert [getattr(quick, name, None) for name in FIELDS] == [getattr(careful, name, None) for name in FIELDS]


@given(st.one_of(st.binary(max_size=80), PIECES))
def test_any_bytes(value: bytes) -> None:
    """Never raises; what is read is usable: a host without white space, a port in range."""
    via, uri = read_via(value), read_uri(value)
    for read in (via, uri):
        if isinstance(read, Via) or (isinstance(read, Uri) and read.scheme in (b"sip", b"sips")):
            assert read.host
            assert not set(read.host) & set(b' \t\r\n\0<>",;@')
            assert read.port is None or 0 < read.port < 65536
    if via is not None:
        assert via.rport is None or 0 <= via.rport < 65536
