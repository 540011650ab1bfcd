"""Generated messages for the property tests: valid, oddly written, and broken ones."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.wire.messages import CASES, INVITE, NOT_SIP, RESPONSE

NAMES = {
    "via": (b"Via", b"v", b"VIA", b"via", b"vIa ", b"Via\t"),
    "route": (b"Route", b"ROUTE", b"route "),
    "hops": (b"Max-Forwards", b"max-forwards", b"MAX-Forwards "),
    "extra": (b"X-Guard-Source", b"x-guard-source", b"X-GUARD-SOURCE\t"),
}

_hosts = st.sampled_from([b"192.0.2.7", b"a.example", b"[2001:db8::7]", b"a.example:5070"])
_params = st.lists(
    st.sampled_from(
        [
            b";rport",
            b";rport=",
            b" ; RPort = 9",
            b";received=192.0.2.66",
            b"; Received=x",
            b";branch=z9hG4bKq",
            b';x="a,;rport"',
            b";maddr=224.0.0.1",
        ]
    ),
    max_size=4,
).map(b"".join)
via_values = st.builds(lambda host, params: b"SIP/2.0/UDP " + host + params, _hosts, _params)
route_values = st.sampled_from(
    [b"<sip:192.0.2.1;lr>", b'"R, S" <sip:r@h;lr>', b"<sip:a,b@h:5070;lr>;x=y", b"<sips:[2001:db8::1];lr>"]
)
other_lines = st.sampled_from(
    [
        (b"Contact: <sip:a@b>, <sip:c@d>",),
        (b"User-Agent:odd  \t",),
        (b"Subject: folded", b"\tsecond", b"  third "),
        (b"not a header line",),
        (b"X-Bytes: \xff\xfe\x01",),
        (b"From: <sip:a@b>;tag=1",),
        (b"To:", b" <sip:c@d>"),
        (b"Call-ID: q@h",),
        (b"CSeq: 7 INVITE",),
        (b"Record-Route: <sip:old;lr>",),
    ]
)


@st.composite
def list_lines(draw: st.DrawFn, kind: str, values: st.SearchStrategy[bytes]) -> tuple[bytes, ...]:
    """One header line with one to three values, perhaps folded at the commas."""
    name = draw(st.sampled_from(NAMES[kind]))
    elements = draw(st.lists(values, min_size=1, max_size=3))
    if draw(st.booleans()):
        return (name + b": " + b" , ".join(elements),)
    return (
        name + b":" + elements[0] + b"," * (len(elements) > 1),
        *(b" " + element + b"," * (element is not elements[-1]) for element in elements[1:]),
    )


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    """A request with any mixture of the lines a guard edits and others, in any order, in CRLF or bare LF."""
    lines = draw(
        st.lists(
            st.one_of(
                list_lines("via", via_values),
                list_lines("route", route_values),
                st.builds(
                    lambda name, hops: (name + b": " + hops,),
                    st.sampled_from(NAMES["hops"]),
                    st.sampled_from([b"70", b"1", b"007", b"255", b" 10 "]),
                ),
                st.builds(lambda name: (name + b": 192.0.2.66",), st.sampled_from(NAMES["extra"])),
                other_lines,
            ),
            max_size=12,
        )
    )
    body = draw(st.sampled_from([b"", b"v=0\r\n", b"\r\n\r\n", b"\0\xff"]))
    length = draw(st.sampled_from([None, len(body)]))
    if length is not None:
        lines.append((b"l: %d" % length,))
    end = draw(st.sampled_from([b"\r\n", b"\r\n", b"\n"]))
    start = b"INVITE sip:b@example.net SIP/2.0"
    return end.join([start, *(part for line in lines for part in line), b"", b""]) + body


whole_messages = st.sampled_from([INVITE, RESPONSE, *(case.data for case in CASES)])


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A message with a few bytes put in, taken out or changed."""
    data = bytearray(draw(st.one_of(whole_messages, messages())))
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, len(data)))
        piece = draw(
            st.sampled_from(
                [
                    b"",
                    b"\r",
                    b"\n",
                    b"\r\n",
                    b" ",
                    b"\t",
                    b",",
                    b";",
                    b":",
                    b'"',
                    b"<",
                    b">",
                    b"\\",
                    b"\0",
                    b"\xff",
                    b"\r\n\r\n",
                    b"=",
                    b"/",
                ]
            )
        )
        data[at : at + draw(st.integers(0, 3))] = piece
    return bytes(data)


any_bytes = st.one_of(st.binary(max_size=300), mutated(), messages(), st.sampled_from(list(NOT_SIP.values())))
