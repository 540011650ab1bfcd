"""What a 2xx to each method carries beyond RFC 3261 8.2.6: header lines, and when a request cannot be taken, why."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from sipguard.uas.fields import grant_contact, read_expires
from sipguard.uas.request import ALLOW, Request
from sipguard.uas.sdp import CONTENT_TYPE
from sipguard.wire.lists import split_list

_ACCEPT = b"Accept: application/sdp\r\n"
_SUPPORTED = b"Supported: path\r\n"
_EXTENSIONS = frozenset({b"path"})


class Refusal(NamedTuple):
    """A final answer of 300 or more. extra: complete header lines. retry_after: s."""

    status: int
    reason: bytes
    extra: bytes = b""
    retry_after: int | None = None


NO_DIALOG = Refusal(481, b"Call/Transaction Does Not Exist")
OUT_OF_ORDER = Refusal(500, b"Server Internal Error")
NOT_IMPLEMENTED = Refusal(501, b"Not Implemented", ALLOW)
NOT_ACCEPTABLE = Refusal(488, b"Not Acceptable Here")
_WRONG_TYPE = Refusal(415, b"Unsupported Media Type", _ACCEPT)


def refuse_extensions(request: Request) -> Refusal | None:
    """420 for a Require we do not understand (RFC 3261 8.2.2.3)."""
    options = [option for value in request.fields(b"require") for option in split_list(value)]
    unknown = [option for option in options if option.lower() not in _EXTENSIONS]
    if not unknown:
        return None
    return Refusal(420, b"Bad Extension", b"Unsupported: %b\r\n" % b", ".join(unknown))


def refuse_content(request: Request) -> Refusal | None:
    """415 for a body that is no session description where one is meant (RFC 3261 8.2.3)."""
    if not request.body:
        return None
    kind = (request.field(b"content-type") or CONTENT_TYPE).partition(b";")[0].strip().lower()
    return None if kind == CONTENT_TYPE else _WRONG_TYPE


def contact_line(request: Request, address: bytes) -> bytes:
    """Our Contact: SIPS where RFC 3261 12.1.1 says so. address: our host:port for the request's transport."""
    if request.secure:
        return b"Contact: <sips:sipguard@%b>\r\n" % address
    transport = b"" if request.source.transport == "udp" else b";transport=" + request.source.transport.encode()
    return b"Contact: <sip:sipguard@%b%b>\r\n" % (address, transport)


def dialog_lines(request: Request, address: bytes) -> bytes:
    """Record-Route and Contact: what makes or refreshes a dialog (RFC 3261 12.1.1)."""
    return request.record_route_lines() + contact_line(request, address)


def invite_lines(request: Request, address: bytes) -> bytes:
    """For a 2xx to INVITE (RFC 3261 13.3.1.4)."""
    return dialog_lines(request, address) + ALLOW + _SUPPORTED


def _options(request: Request, address: bytes) -> bytes:
    # RFC 3261 11.2.
    return contact_line(request, address) + ALLOW + _ACCEPT + _SUPPORTED


def _register(request: Request, _address: bytes) -> bytes:
    # RFC 3261 10.3 step 8, with the bindings of this request as the only ones; RFC 3327 5.3 for Path.
    asked = request.field(b"expires")
    contacts = [contact for value in request.fields(b"contact") for contact in split_list(value)]
    granted = [grant_contact(contact, asked) for contact in contacts if contact != b"*"]
    return b"".join(
        [
            *(b"Contact: %b\r\n" % contact for contact in granted if contact is not None),
            *(b"Path: %b\r\n" % path for path in request.fields(b"path")),
        ]
    )


def _subscribe(request: Request, address: bytes) -> bytes:
    # RFC 6665 4.2.1.1: 200, Expires not above what was asked; no NOTIFY follows, a server for trying out has no state to tell.
    return dialog_lines(request, address) + _expires_line(request)


def _expires_line(request: Request) -> bytes:
    return b"Expires: %d\r\n" % read_expires(request.field(b"expires"))


def _nothing(_request: Request, _address: bytes) -> bytes:
    # RFC 3428 7: no Contact in a 2xx to MESSAGE.
    return b""


ACCEPTED_LINES: dict[str, Callable[[Request, bytes], bytes]] = {
    "BYE": _nothing,
    "INFO": _nothing,
    "MESSAGE": _nothing,
    "NOTIFY": _nothing,
    "OPTIONS": _options,
    "PRACK": _nothing,
    "PUBLISH": lambda request, _: _expires_line(request),
    "REFER": dialog_lines,
    "REGISTER": _register,
    "SUBSCRIBE": _subscribe,
    "UPDATE": dialog_lines,
}
"""The methods answered with 200 beside INVITE and CANCEL, and the lines that 200 carries."""

NEEDS_DIALOG = frozenset({"BYE", "INFO", "INVITE", "NOTIFY", "PRACK", "REFER", "SUBSCRIBE", "UPDATE"})
"""With a To tag these name a dialog; one that does not exist is 481 (RFC 3261 12.2.2)."""
MAKES_DIALOG = frozenset({"REFER", "SUBSCRIBE"})
"""A 2xx to these makes a dialog (RFC 6665 4.2, RFC 3515); INVITE's is made when it rings."""
