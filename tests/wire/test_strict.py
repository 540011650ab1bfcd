"""What a server closes a stream for is kept off the streams that clients share. RFC 3261 7.2, 7.3.1, 8.1.1, 20, 25.1.

Where the RFC allows what is refused here, or forbids what is let through, Kamailio 5.6 was asked: it closes, or does not.
"""

from __future__ import annotations

import pytest
from hypothesis import given

from sipguard.wire.head import read_head
from sipguard.wire.strict import STREAM_PROBLEMS, stream_problem
from tests.wire.generated import any_bytes
from tests.wire.messages import FROM, INVITE, RESPONSE, VIA, request

FINE = {
    "as it should be": INVITE,
    "a response": RESPONSE,
    "compact names, white space before the colon": request(
        via=b"v:" + VIA, from_=b"f :" + FROM, to=b"t\t: sip:b@h", call_id=b"i: q"
    ),
    "folds": request(via=b"Via:\r\n " + VIA, to=b"To: Bob\r\n\t<sip:b@h>\r\n ;tag=1", cseq=b"1\r\n INVITE"),
    "bare LF": INVITE.replace(b"\r\n", b"\n"),
    "a name's colon folded": request(b"Subject\r\n : x"),
    "several Vias in one line": request(via=b"Via: " + VIA + b", SIP / 2.0 / UDP h : 5060 ; rport , SIP/2.0/TLS [::1]:5061"),
    "Via parameters of all kinds": request(
        via=b'Via: SIP/2.0/TCP h;rport;alias;branch=z9hG4bK.1;received=[::1];i=1;oc;oc-algo="loss";x="";keep'
    ),
    "an unknown transport (RFC 4475 3.1.1.10)": request(via=b"Via: " + VIA + b", SIP/2.0/UNKNOWN h"),
    "addresses of all kinds": request(
        from_=b'From: "a, \\"b\\" <c>" <sip:a;b@h:1;x=y?z=1>;tag=q;x;y="z"', to=b"To: Bell, A.  < tel:+1;ext=2 > ; tag = 1 "
    ),
    "an address without brackets": request(from_=b"From: sip:a,b@h ;tag=1", to=b"To: \xd0\x96 <sip:a@h>;x=;tag="),
    "any bytes in other values": request(b'X: "<;\0\xff\x0b:', b"Contact: <", b"Expires: \\"),
}  # fmt: skip

REFUSED = [
    ("bad-header-line", request(b"nonsense line")),
    ("bad-header-line", request(b": value")),
    ("bad-header-line", request(b"Via")),
    ("bad-header-line", request(b"Sub ject: x")),
    ("bad-header-line", request(b"Sub\r\n ject: x")),
    ("bad-header-line", request(b"X\0: 1")),
    ("bad-header-line", request(b"\x0bX: 1")),
    ("bad-header-line", request(b"X%41: 1")),
    ("bad-address", request(to=b'To: "')),
    ("bad-address", request(to=b'To: "b <sip:b@h>')),
    ("bad-address", request(from_=b"From: <<<")),
    ("bad-address", request(from_=b'From: "a" b <sip:a@h>;tag=1')),
    ("bad-address", request(to=b"To: <sip:b@h;tag=1")),
    ("bad-address", request(to=b"To: <sip:b@h> x")),
    ("bad-address", request(to=b"To: <sip:b@h>;")),
    ("bad-address", request(to=b"To: <sip:b@h>;tag=1;")),
    ("bad-address", request(to=b"To: <sip:b@h>;tag=1 2")),
    ("bad-address", request(to=b'To: <sip:b@h>;tag="1')),
    ("bad-address", request(to=b"To: <>")),
    ("bad-address", request(to=b"To:")),
    ("bad-address", request(to=b"To: ;tag=1")),
    ("bad-address", request(to=b"To: <sip:b b@h>")),
    ("bad-address", request(to=b'To: "\\\0" <sip:b@h>')),
    ("bad-via", request(b"Via: SIP/2.0/XX ;;;")),
    ("bad-via", request(via=b"Via: " + VIA + b", SIP/2.0/TCP /")),
    ("bad-via", request(via=b"Via: " + VIA + b";")),
    ("bad-via", request(via=b"Via: " + VIA + b";x=1 2")),
    ("bad-via", request(via=b"Via: " + VIA + b';x="1')),
    ("bad-via", request(via=b'Via: SIP/2.0/UDP h;x="a,b"')),
    ("bad-via", request(via=b"Via: " + VIA + b";received")),
    ("bad-via", request(via=b"Via: " + VIA + b";i")),
    ("bad-via", request(via=b"Via: " + VIA + b"; TTL =")),
    ("bad-via", request(via=b"Via: " + VIA + b";alias=1")),
    ("bad-via", request(via=b"Via: " + VIA + b";ali")),
    ("bad-via", request(b"Via: SIP/2.1/TCP h")),
    ("bad-via", request(b"Via: SIP/2.0/DTLS h")),
    ("bad-via", request(b"Via: SIP/2.0/2TCP h")),
    ("bad-via", request(b"Via: SIP/2.0/TCP a b")),
    ("bad-via", request(b"Via: SIP/2.0/TCP h (a comment)")),
    ("bad-cseq", request(cseq=b"\x0b1 INVITE")),
    ("bad-start-line", request(start=b"INVITE sip:b\t@example.net SIP/2.0")),
    ("bad-start-line", request(start=b"INVITE sip:b\0@example.net SIP/2.0")),
    ("bad-start-line", RESPONSE.replace(b"180 Ringing", b"180")),
    ("no-from", RESPONSE.replace(b"From:", b"Form:")),
    ("no-to", RESPONSE.replace(b"To:", b"Too:")),
    ("no-call-id", RESPONSE.replace(b"Call-ID:", b"Call-IDs:")),
    ("no-cseq", RESPONSE.replace(b"CSeq:", b"CSequence:")),
    ("bad-cseq", RESPONSE.replace(b"CSeq: 1 INVITE", b"CSeq: INVITE")),
    ("duplicate", RESPONSE.replace(b"To:", b"t: <sip:x@h>\r\nTo:")),
]


@pytest.mark.parametrize("name", FINE)
def test_what_may_go_on(name: str) -> None:
    head = read_head(FINE[name])
    assert head.problem is None
    assert stream_problem(head) is None


@pytest.mark.parametrize(("problem", "data"), REFUSED)
def test_what_may_not(problem: str, data: bytes) -> None:
    """None of these is a `problem` elsewhere: a datagram of the kind goes on."""
    head = read_head(data)
    assert head.problem is None
    assert stream_problem(head) == problem


def test_stream_problems_are_a_closed_set() -> None:
    assert {problem for problem, _ in REFUSED} == set(STREAM_PROBLEMS)


@given(any_bytes)
def test_any_bytes(data: bytes) -> None:
    assert stream_problem(read_head(data)) in {None, *STREAM_PROBLEMS}
