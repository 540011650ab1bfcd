"""Structured header values: Via and URI. RFC 3261 20.42, 19.1, 25.1; RFC 3581 (rport); RFC 5118 (IPv6 references).

Both readers take any bytes, never raise, work in linear time, and answer None for what cannot be used.
"""

from __future__ import annotations

import re

from sipguard.wire.lists import commas, cut_params, inside_brackets
from sipguard.wire.scan import TOKEN_BYTES

_HOST_BYTES = b"-.0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"
_IPV6_BYTES = b"%" + _HOST_BYTES + b":"  # a zone id has no place on the wire, but is seen
_SCHEME_BYTES = b"+-.0123456789abcdefghijklmnopqrstuvwxyz"
_PORT_DIGITS = 5
# The usual shape of a Via, one class of bytes after the other: there is nothing to go back over.
_USUAL_VIA = re.compile(
    rb"SIP/2\.0/(UDP|TCP|TLS|WSS?|SCTP) (([-.0-9A-Za-z_]+|\[[.0-9:A-Fa-f]+\])(?::([0-9]{1,5}))?)"
    rb"(;rport)?(?:;branch=([-!%*+.0-9A-Z_`a-z~]+))?(;rport)?"
)


class Via:
    """One Via value.

    transport: upper case. host: with [] around an IPv6 literal, case kept. port: None when not written. sent_by: host and port
    as written. branch, received: the raw values, None when absent. rport: None absent, 0 present without a (usable) value, else
    the port. plain: written in the usual way, with no other parameters than one branch and one empty rport.
    """

    __slots__ = ("branch", "host", "plain", "port", "received", "rport", "sent_by", "transport")

    transport: bytes
    host: bytes
    port: int | None
    sent_by: bytes
    branch: bytes | None
    received: bytes | None
    rport: int | None
    plain: bool

    def __repr__(self) -> str:
        return (
            f"Via({self.transport!r}, {self.sent_by!r}, branch={self.branch!r}, received={self.received!r}, "
            f"rport={self.rport!r})"
        )


def read_via(value: bytes) -> Via | None:
    """Read one Via value (not a list, folding resolved); None when protocol, transport or sent-by cannot be used."""
    usual = _USUAL_VIA.match(value)
    if usual is None:
        return _read_odd_via(value)
    via = Via.__new__(Via)
    via.transport, via.sent_by, via.host, digits, rport, via.branch, rport_after = usual.groups()
    if digits is None:
        via.port = None
    else:
        via.port = read_port(digits)
        if via.port is None:
            return None
    via.received = None
    via.rport = None if rport is None and rport_after is None else 0
    end = usual.end()
    if end == len(value):
        via.plain = rport is None or rport_after is None
        return via
    if value[end] != 0x3B:
        return _read_odd_via(value)
    return _with_params(via, value[end + 1 :])


def _read_odd_via(value: bytes) -> Via | None:
    """Any other way to write it: white space around separators, rare transports and versions, lower case."""
    front, _, rest = value.partition(b";")
    read = _read_front(front)
    if read is None:
        return None
    via = Via.__new__(Via)
    via.transport, via.sent_by, via.host, via.port = read
    via.branch = via.received = via.rport = None
    return _with_params(via, rest)


def _with_params(via: Via, text: bytes) -> Via | None:
    """`via` with the parameters in `text`; the first of a name counts. None when a list comma is among them."""
    if b"," in text and commas(text):
        return None
    via.plain = False
    for param in text.split(b";") if b'"' not in text and b"<" not in text else cut_params(text):
        name, _, value = param.partition(b"=")
        name = name.strip().lower()
        if name == b"rport":
            if via.rport is None:
                via.rport = read_port(value.strip()) or 0
        elif name == b"received":
            if via.received is None:
                via.received = value.strip()
        elif name == b"branch" and via.branch is None:
            via.branch = value.strip()
    return via


def _read_front(front: bytes) -> tuple[bytes, bytes, bytes, int | None] | None:
    """Transport, sent-by, host and port of a Via's part before the first semicolon: `SIP / 2.0 / udp  host : port`."""
    name, slash1, rest = front.partition(b"/")
    version, slash2, rest = rest.partition(b"/")
    if not slash1 or not slash2 or name.strip().upper() != b"SIP":
        return None
    major, dot, minor = version.strip().partition(b".")
    if not dot or not major.isdigit() or not minor.isdigit():
        return None
    words = rest.split(None, 1)
    if len(words) != 2 or words[0].translate(None, TOKEN_BYTES):
        return None
    host = sent_by = words[1].strip()
    port: int | None = None
    if b":" in sent_by and sent_by[-1:] != b"]":  # in brackets the colons are an IPv6 literal's
        sent_by = b"".join(sent_by.split())
        host, _, digits = sent_by.rpartition(b":")
        port = read_port(digits)
        if port is None:
            return None
    return (words[0].upper(), sent_by, host, port) if is_host(host) else None


class Uri:
    """One URI.

    scheme: lower case. user: without the password, escapes kept, None when absent. host: lower case, [] kept around an IPv6
    literal, b"" for schemes other than sip and sips. port: None when not written. params: URI parameters, names in lower case,
    None for one without a value.
    """

    __slots__ = ("host", "params", "port", "scheme", "user")

    scheme: bytes
    user: bytes | None
    host: bytes
    port: int | None
    params: dict[bytes, bytes | None]

    def __repr__(self) -> str:
        return f"Uri({self.scheme!r}, {self.user!r}, {self.host!r}, {self.port!r}, {self.params!r})"


def read_uri(value: bytes) -> Uri | None:
    """Read the URI of `<uri>;params`, `"name" <uri>`, `name <uri>` or a bare URI; None without a scheme or a usable host."""
    text = value.strip()
    if b"<" in text:
        inner = inside_brackets(text)
        if inner is None:
            return None
        text = inner.strip()
    scheme, colon, rest = text.partition(b":")
    scheme = scheme.lower()
    if not colon or not scheme or scheme.translate(None, _SCHEME_BYTES):
        return None
    uri = Uri.__new__(Uri)
    uri.scheme = scheme
    uri.user = None
    uri.host = b""
    uri.port = None
    uri.params = {}
    if scheme not in (b"sip", b"sips"):
        return uri
    user, at, host_part = rest.partition(b"@")  # neither user nor password may hold a bare "@" (25.1)
    if at:
        uri.user = user.partition(b":")[0]
    else:
        host_part = rest
    host_part = host_part.partition(b"?")[0]
    host, semicolon, params = host_part.partition(b";")
    host = host.strip().lower()
    if host[-1:] != b"]" and b":" in host:
        host, _, digits = host.rpartition(b":")
        uri.port = read_port(digits)
        if uri.port is None:
            return None
    if not is_host(host):
        return None
    uri.host = host
    if semicolon:
        for part in params.split(b";"):
            name, equals, text = part.partition(b"=")
            name = name.strip().lower()
            if name and name not in uri.params:
                uri.params[name] = text.strip() if equals else None
    return uri


def is_host(host: bytes) -> bool:
    """A name, an IPv4 address or a bracketed IPv6 literal, by its characters only."""
    if host[:1] == b"[":
        return len(host) > 2 and host[-1:] == b"]" and not host[1:-1].translate(None, _IPV6_BYTES)
    return host != b"" and not host.translate(None, _HOST_BYTES)


def read_port(digits: bytes) -> int | None:
    """A port 1-65535 in decimal; None for anything else."""
    if not digits.isdigit() or len(digits) > _PORT_DIGITS:
        return None
    port = int(digits)
    return port if 0 < port < 65536 else None
