"""The worst kinds of message, small and of our own making, each with what must be read from it.

`Case.stream`: how many messages the same bytes are as a whole stream, and why it is lost ("" = it is not).
"""

from __future__ import annotations

from dataclasses import dataclass, field


def joined(*lines: bytes, body: bytes = b"") -> bytes:
    """A message with CRLF line ends and the empty line."""
    return b"".join(line + b"\r\n" for line in lines) + b"\r\n" + body


VIA = b"SIP/2.0/UDP 192.0.2.10:5060;branch=z9hG4bKa1;rport"
FROM = b'"Ann, the first" <sip:ann@example.com>;tag=f1'
TO = b"Bob <sip:bob@example.net>"
CALL_ID = b"c1@192.0.2.10"

INVITE = joined(
    b"INVITE sip:bob@example.net SIP/2.0",
    b"Via: " + VIA,
    b"Max-Forwards: 70",
    b"From: " + FROM,
    b"To: " + TO,
    b"Call-ID: " + CALL_ID,
    b"CSeq: 1 INVITE",
    b"Contact: <sip:ann@192.0.2.10>",
    b"User-Agent: Test, 1.0",
    b"Content-Type: text/plain",
    b"Content-Length: 4",
    body=b"body",
)

RESPONSE = joined(
    b"SIP/2.0 180 Ringing",
    b"Via: SIP/2.0/UDP 192.0.2.1:5070;branch=z9hG4bKsg0",
    b"Via: " + VIA,
    b"From: " + FROM,
    b"To: " + TO + b";tag=t1",
    b"Call-ID: " + CALL_ID,
    b"CSeq: 1 INVITE",
    b"Content-Length: 0",
)


def request(
    *lines: bytes, method: bytes = b"INVITE", body: bytes = b"", cseq: bytes = b"", **replaced: bytes | None
) -> bytes:
    """A short request: the usual headers, each replaceable by name (None leaves it out), then `lines`."""
    headers: dict[str, bytes | None] = {
        "via": b"Via: " + VIA,
        "hops": b"Max-Forwards: 70",
        "from_": b"From: " + FROM,
        "to": b"To: " + TO,
        "call_id": b"Call-ID: " + CALL_ID,
        "cseq": b"CSeq: " + (cseq or b"1 " + method),
        "length": b"Content-Length: %d" % len(body),
    }
    start = replaced.pop("start", method + b" sip:bob@example.net SIP/2.0")
    assert start is not None
    headers.update(replaced)
    return joined(start, *(line for line in headers.values() if line is not None), *lines, body=body)


@dataclass(frozen=True)
class Case:
    """One message and what is in it."""

    name: str
    data: bytes
    method: str | None = "INVITE"
    problem: str | None = None
    answerable: bool = True
    vias: list[bytes] = field(default_factory=lambda: [VIA])
    from_: bytes | None = FROM
    to: bytes | None = TO
    to_tag: bytes | None = None
    call_id: bytes | None = CALL_ID
    cseq: bytes | None = b"1 INVITE"
    stream: tuple[int, str] = (1, "")


TWO_VIAS = [VIA, b"SIP/2.0/TCP [2001:db8::1]:5061;branch=z9hG4bKb2"]

CASES = [
    Case("as it should be", INVITE),
    Case("CRLFs before the request line (RFC 3261 7.5)", b"\r\n\r\n" + INVITE),
    Case(
        "compact names, no space after the colon (7.3.3)",
        joined(
            b"INVITE sip:bob@example.net SIP/2.0",
            b"v:" + VIA,
            b"f:" + FROM,
            b"t:" + TO,
            b"i:" + CALL_ID,
            b"CSeq:1 INVITE",
            b"l:0",
        ),
    ),
    Case(
        "any case, white space before the colon",
        joined(
            b"INVITE sip:bob@example.net SIP/2.0",
            b"vIA \t: " + VIA,
            b"FROM  :" + FROM,
            b"tO\t:" + TO,
            b"CALL-id :" + CALL_ID,
            b"cSEQ : 1 INVITE",
            b"content-LENGTH  : 0",
        ),
    ),
    Case(
        "folded, with tabs and an empty fold (7.3.1)",
        joined(
            b"INVITE sip:bob@example.net SIP/2.0",
            b"Via:\r\n " + VIA,
            b'From: "Ann, the first"\r\n\t<sip:ann@example.com>;tag=f1',
            b"To: Bob  \r\n   <sip:bob@example.net>\r\n \t ",
            b"Call-ID:\r\n " + CALL_ID,
            b"CSeq: 1\r\n INVITE",
            b"Content-Length:\r\n 0",
        ),
    ),
    Case("bare LF throughout", INVITE.replace(b"\r\n", b"\n")),
    Case("bare LF in one line only", request(b"X: 1\nY: 2")),
    Case(
        "a bare LF ends the head; the body holds CRLFCRLF", request(length=b"Content-Length: 7")[:-2] + b"\na\r\n\r\nbc"
    ),
    Case("two Vias on one line (7.3.1)", request(via=b"Via: " + b" , ".join(TWO_VIAS)), vias=TWO_VIAS),
    Case("two Vias, far apart", request(b"v: " + TWO_VIAS[1]), vias=TWO_VIAS),
    Case(
        "a comma inside a quoted Via parameter",
        request(via=b'Via: SIP/2.0/UDP h;x="a,b\\"c,";branch=z9hG4bK1'),
        vias=[b'SIP/2.0/UDP h;x="a,b\\"c,";branch=z9hG4bK1'],
    ),
    Case(
        "an empty element: no list by the grammar, kept whole",
        request(via=b"Via: SIP/2.0/UDP h;;,;,,"),
        problem="bad-via",
        answerable=False,
        vias=[b"SIP/2.0/UDP h;;,;,,"],
    ),
    Case(
        "a second Via that cannot be used",
        request(via=b"Via: " + VIA + b",;"),
        problem="bad-via",
        answerable=False,
        vias=[VIA, b";"],
    ),
    Case("no Via", request(via=None), problem="no-via", answerable=False, vias=[]),
    Case(
        "Via without a host",
        request(via=b"Via: SIP/2.0/UDP"),
        problem="bad-via",
        answerable=False,
        vias=[b"SIP/2.0/UDP"],
    ),
    Case(
        ";tag= inside the quotes and inside the brackets is no To tag (20.10)",
        request(to=b'To: "x;tag=no" <sip:b@example.net;tag=no>'),
        to=b'"x;tag=no" <sip:b@example.net;tag=no>',
    ),
    Case(
        "the tag behind them is",
        request(to=b'To: "x>;tag=no" <sip:b@example.net;tag=no> ; x="a;tag=no" ;  TAG = yes'),
        to=b'"x>;tag=no" <sip:b@example.net;tag=no> ; x="a;tag=no" ;  TAG = yes',
        to_tag=b"yes",
    ),
    Case(
        "without brackets parameters are the header's; a comma in the user part",
        request(to=b"To: sip:b,c@example.net;user=phone;tag=t"),
        to=b"sip:b,c@example.net;user=phone;tag=t",
        to_tag=b"t",
    ),
    Case("an empty tag is a tag", request(to=b"To: sip:b@example.net;tag="), to=b"sip:b@example.net;tag=", to_tag=b""),
    Case("an unterminated quote", request(to=b'To: "b <sip:b@example.net>'), to=b'"b <sip:b@example.net>'),
    Case(
        "an unclosed bracket", request(to=b"To: <sip:b@example.net;tag=t"), to=b"<sip:b@example.net;tag=t", to_tag=b"t"
    ),
    Case(
        "NUL and non-ASCII in a value",
        request(from_=b'From: "\xd0\x96\\\x00\xff" <sip:a@b>'),
        from_=b'"\xd0\x96\\\x00\xff" <sip:a@b>',
    ),
    Case(
        "a bare CR that another parser may take for a line end",
        request(to=b"To: <sip:b@example.net>\rX-Guard-Source: 192.0.2.66"),
        problem="bare-cr",
        to=b"<sip:b@example.net>\rX-Guard-Source: 192.0.2.66",
    ),
    Case("no From", request(from_=None), problem="no-from", answerable=False, from_=None),
    Case("no To", request(to=None), problem="no-to", answerable=False, to=None),
    Case("no Call-ID", request(call_id=None), problem="no-call-id", answerable=False, call_id=None),
    Case("no CSeq", request().replace(b"CSeq: 1 INVITE\r\n", b""), problem="no-cseq", answerable=False, cseq=None),
    Case(
        "a name without its colon",
        request(call_id=b"Call-ID; " + CALL_ID),
        problem="no-call-id",
        answerable=False,
        call_id=None,
    ),
    Case("a line without any colon is passed over", request(b"nothing here")),
    Case("two To", request(b"t: <sip:other@example.net>"), problem="duplicate"),
    Case("two CSeq", request(b"CSeq: 2 INVITE"), problem="duplicate"),
    Case("CSeq of another method (RFC 4475 3.1.2.17)", request(cseq=b"1 BYE"), problem="cseq-method", cseq=b"1 BYE"),
    Case("CSeq 2**31 (8.1.1.5)", request(cseq=b"2147483648 INVITE"), problem="bad-cseq", cseq=b"2147483648 INVITE"),
    Case("CSeq 2**31 - 1", request(cseq=b"2147483647 INVITE"), cseq=b"2147483647 INVITE"),
    Case("CSeq with leading zeros", request(cseq=b"0009 INVITE"), cseq=b"0009 INVITE"),
    Case("CSeq without a method", request(cseq=b"101"), problem="bad-cseq", cseq=b"101"),
    Case("Max-Forwards over 255 (20.22)", request(hops=b"Max-Forwards: 300"), problem="bad-max-forwards"),
    Case("Max-Forwards with leading zeros", request(hops=b"Max-Forwards: 0068")),
    Case("no Max-Forwards", request(hops=None)),
    Case(
        "two Content-Lengths that differ (RFC 4475 3.3.9)",
        request(b"l: 5"),
        problem="bad-content-length",
        stream=(0, "bad-content-length"),
    ),
    Case("two that agree", request(b"l:  00")),
    Case(
        "a negative Content-Length",
        request(length=b"Content-Length: -1"),
        problem="bad-content-length",
        stream=(0, "bad-content-length"),
    ),
    Case(
        "a Content-Length with a sign",
        request(length=b"Content-Length: +0"),
        problem="bad-content-length",
        stream=(0, "bad-content-length"),
    ),
    Case(
        "a Content-Length of 5,000 digits",
        request(length=b"Content-Length: " + b"9" * 5000),
        problem="bad-content-length",
        stream=(0, "bad-content-length"),
    ),
    Case(
        "Content-Length over the body (18.3)",
        request(length=b"Content-Length: 9"),
        problem="body-short",
        stream=(0, ""),
    ),
    Case("no Content-Length on a stream: no body", request(length=None)),
    Case(
        "no Content-Length, a body: on a stream garbage",
        request(length=None, body=b"v=0\r\ns=-\r\n"),
        stream=(1, "bad-start-line"),
    ),
    Case("octets behind the body: on a stream the next message", INVITE + request(method=b"BYE"), stream=(2, "")),
    Case("no empty line", request()[:-2], problem="no-end", stream=(0, "")),
    Case(
        "a method of all token characters (RFC 4475 3.1.1.2)",
        request(method=b"!a-Z0_*+`.%'~"),
        method="!a-Z0_*+`.%'~",
        cseq=b"1 !a-Z0_*+`.%'~",
    ),
    Case("invite is not INVITE (SPEC V1)", request(method=b"invite"), method="invite", cseq=b"1 invite"),
    Case("an escaped method is another method", request(method=b"INVI%54E"), method="INVI%54E", cseq=b"1 INVI%54E"),
    Case("ACK is never answered", request(method=b"ACK"), method="ACK", answerable=False, cseq=b"1 ACK"),
    Case("SIP/7.0 (RFC 4475 3.1.2.16)", request(start=b"INVITE sip:b@example.net SIP/7.0"), problem="version"),
    Case("sip/2.0 (7.1: any case)", request(start=b"INVITE sip:b@example.net sip/2.0")),
    Case("two spaces", request(start=b"INVITE  sip:b@example.net  SIP/2.0"), problem="bad-start-line"),
    Case(
        "a space in the Request-URI", request(start=b"INVITE sip:b@example.net; lr SIP/2.0"), problem="bad-start-line"
    ),
    Case("a space at the end", request(start=b"INVITE sip:b@example.net SIP/2.0 "), problem="bad-start-line"),
    Case("a tab", request(start=b"INVITE\tsip:b@example.net SIP/2.0"), problem="bad-start-line"),
    Case("a folded request line", request(start=b"INVITE sip:b@example.net\r\n SIP/2.0"), problem="bad-start-line"),
    Case(
        "a fold behind the request line",
        request(start=b"INVITE sip:b@example.net SIP/2.0\r\n X: 1"),
        problem="bad-start-line",
    ),
]

NOT_SIP = {
    "nothing": b"",
    "CRLF": b"\r\n",
    "CRLFCRLF": b"\r\n\r\n",
    "NULs": b"\0\0\0\0",
    "spaces": b"     ",
    "hello": b"hello",
    "STUN binding request": bytes.fromhex("000100002112a442") + b"0123456789ab",
    "STUN with a line end in it": b"\x00\x01\x00\x08" + b"0123\n67890abcdef" + b"\x00\x03\x00\x04\x00\x00\x00\x00",
    "TLS ClientHello": bytes.fromhex("16030100300100002c0303") + b"\0" * 32,
    "HTTP": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "HTTP with a SIP method": b"OPTIONS * HTTP/1.1\r\n\r\n",
    "RTSP": b"OPTIONS rtsp://192.0.2.1/x RTSP/1.0\r\nCSeq: 1\r\n\r\n",
    "SSDP": b"NOTIFY * HTTP/1.1\r\nNTS: ssdp:alive\r\n\r\n",
    "no version": b"INVITE sip:b@example.net\r\nTo: x\r\n\r\n",
    "no Request-URI": b"INVITE SIP/2.0\r\n\r\n",
    "spaces for a Request-URI": b"INVITE    SIP/2.0\r\n\r\n",
    "more behind the version": b"INVITE sip:b@example.net SIP/2.0/UDP\r\n\r\n",
    "a version without digits": b"INVITE sip:b@example.net SIP/x.y\r\n\r\n",
    "a space before the method": b" INVITE sip:b@example.net SIP/2.0\r\n\r\n",
    "a method that is no token": b"INV(TE sip:b@example.net SIP/2.0\r\n\r\n",
    "a method of non-ASCII bytes": "ИНВАЙТ sip:b@example.net SIP/2.0\r\n\r\n".encode(),
    "the version on the third line": b"INVITE sip:b@example.net\r\n x\r\n SIP/2.0\r\n\r\n",
}
