"""Header names, header values, methods and URI prefixes as an operator may set them (RFC 3261 25.1).

What passes here is written into SIP messages, so nothing that could start another header line passes. Each function
returns the value or raises ValueError whose text says what is allowed.
"""

from __future__ import annotations

from sipguard.core.policy import is_token

MAX_SERVER = 64
MAX_URI_PREFIX = 128
SERVER_FORM = f'printable ASCII, at most {MAX_SERVER} characters, no space at either end; "" leaves the header out'
SOURCE_HEADER_FORM = 'a header name (RFC 3261 token) that SIP itself does not use, as X-Guard-Source; "" leaves it out'
METHOD_FORM = "a SIP method name (RFC 3261 token), as INVITE; case matters"
URI_PREFIX_FORM = f"1 … {MAX_URI_PREFIX} characters of printable ASCII without spaces, as urn:service:sos or sip:112@"

#: Headers that SIP elements act on (RFC 3261 20 and the extensions the guard meets); compact names are single letters.
CORE_HEADERS = frozenset(
    """
    accept accept-contact accept-encoding accept-language alert-info allow allow-events authentication-info authorization
    call-id call-info contact content-disposition content-encoding content-language content-length content-type cseq date
    error-info event expires from history-info identity in-reply-to join max-forwards mime-version min-expires min-se
    organization p-access-network-info p-asserted-identity p-associated-uri p-charging-vector p-preferred-identity path
    priority privacy proxy-authenticate proxy-authorization proxy-require rack reason record-route refer-to referred-by
    reject-contact replaces reply-to request-disposition require resource-priority retry-after route rseq security-client
    security-server security-verify server service-route session-expires sip-etag sip-if-match subject
    subscription-state supported target-dialog timestamp to unsupported user-agent via warning www-authenticate
    """.split()  # noqa: SIM905 - eighty lines of one word each tell no more
)


def server_value(value: object) -> str:
    """The value of the Server header."""
    if not isinstance(value, str) or len(value) > MAX_SERVER or value != value.strip() or not _printable(value):
        raise ValueError(SERVER_FORM)
    return value


def source_header_name(value: object) -> str:
    """The name of the header that tells upstreams where a request came from."""
    if not isinstance(value, str):
        raise ValueError(SOURCE_HEADER_FORM)
    if value and (not is_token(value) or len(value) not in range(2, 65) or value.lower() in CORE_HEADERS):
        raise ValueError(SOURCE_HEADER_FORM)
    return value


def method_name(value: object) -> str:
    """A method name; any token is one (SPEC V1: case-sensitive)."""
    if not isinstance(value, str) or not is_token(value):
        raise ValueError(METHOD_FORM)
    return value


def uri_prefix(value: object) -> str:
    """A Request-URI prefix that is always passed."""
    if not isinstance(value, str) or not 1 <= len(value) <= MAX_URI_PREFIX or " " in value or not _printable(value):
        raise ValueError(URI_PREFIX_FORM)
    return value


def _printable(text: str) -> bool:
    return text.isascii() and text.isprintable()
