"""The SIP messages of the load, as templates: `load.NUMBER` stands where each datagram has digits of its own."""

from __future__ import annotations

_SDP = (
    b"v=0\r\no=user1 53655765 2353687637 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n"
    b"m=audio 6000 RTP/AVP 0\r\na=rtpmap:0 PCMU/8000\r\n"
)


def invite(client: int, server: int) -> bytes:
    """An INVITE of a new call, as SIPp's built-in uac sends it, with rport (RFC 3581) as phones and trunks do; with SDP.

    client, server: ports on 127.0.0.1.
    """
    return b"".join(
        (
            b"INVITE sip:service@127.0.0.1:%d SIP/2.0\r\n" % server,
            b"Via: SIP/2.0/UDP 127.0.0.1:%d;rport;branch=z9hG4bK-@NUMBER@-1-0\r\n" % client,
            b"From: sipp <sip:sipp@127.0.0.1:%d>;tag=@NUMBER@SIPpTag001\r\n" % client,
            b"To: service <sip:service@127.0.0.1:%d>\r\n" % server,
            b"Call-ID: 1-@NUMBER@-%d@127.0.0.1\r\n" % client,
            b"CSeq: 1@NUMBER@ INVITE\r\n",
            b"Contact: <sip:sipp@127.0.0.1:%d>\r\n" % client,
            b"Max-Forwards: 70\r\nSubject: Performance Test\r\nContent-Type: application/sdp\r\n",
            b"Content-Length: %d\r\n\r\n" % len(_SDP),
            _SDP,
        )
    )


def register(client: int, server: int) -> bytes:
    """A REGISTER, no body. client, server: ports on 127.0.0.1."""
    return b"".join(
        (
            b"REGISTER sip:127.0.0.1:%d SIP/2.0\r\n" % server,
            b"Via: SIP/2.0/UDP 127.0.0.1:%d;rport;branch=z9hG4bK-@NUMBER@-1-0\r\n" % client,
            b"From: <sip:@NUMBER@@127.0.0.1:%d>;tag=@NUMBER@SIPpTag001\r\n" % server,
            b"To: <sip:@NUMBER@@127.0.0.1:%d>\r\n" % server,
            b"Call-ID: 1-@NUMBER@-%d@127.0.0.1\r\n" % client,
            b"CSeq: 1@NUMBER@ REGISTER\r\n",
            b"Contact: <sip:@NUMBER@@127.0.0.1:%d>\r\n" % client,
            b"Max-Forwards: 70\r\nExpires: 3600\r\nContent-Length: 0\r\n\r\n",
        )
    )


def answer_to(forwarded: bytes) -> bytes:
    """The server's 200 with SDP to an INVITE it was given: its Vias, then its Record-Routes (RFC 3261 8.2.6.2, 12.1.1).

    The Call-ID and the numbers are new ones in each datagram: neither proxy keeps a state that would ask for the old.
    """
    head = forwarded.partition(b"\r\n\r\n")[0].split(b"\r\n")[1:]
    vias, routes = _lines(head, b"Via:"), _lines(head, b"Record-Route:")
    (from_,), (to,) = _lines(head, b"From:"), _lines(head, b"To:")
    return b"".join(
        (
            b"SIP/2.0 200 OK\r\n",
            *(line + b"\r\n" for line in (*vias, *routes, from_)),
            to + b";tag=@NUMBER@SIPpTag01\r\n",
            b"Call-ID: 1-@NUMBER@@127.0.0.1\r\nCSeq: 1@NUMBER@ INVITE\r\n",
            b"Contact: <sip:127.0.0.1:5080;transport=UDP>\r\nContent-Type: application/sdp\r\n",
            b"Content-Length: %d\r\n\r\n" % len(_SDP),
            _SDP,
        )
    )


def _lines(head: list[bytes], name: bytes) -> list[bytes]:
    return [line for line in head if line.startswith(name)]
