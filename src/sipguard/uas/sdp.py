"""Session descriptions that carry no media: an answer to an offer, and an offer of our own (RFC 3264, RFC 4566)."""

from __future__ import annotations

CONTENT_TYPE = b"application/sdp"

#: An offer beyond these is not acceptable (488): a person's phone offers a handful of lines.
MAX_OFFER_BYTES = 16_384
MAX_MEDIA = 32

# Media we can claim to speak without keys or certificates. Others are rejected line by line with port 0.
_PROFILES = frozenset({b"RTP/AVP", b"RTP/AVPF"})
_KEPT = (b"a=rtpmap:", b"a=fmtp:")


def make_offer(host: bytes, session: int, version: int) -> bytes:
    """What a 200 carries when the INVITE offered nothing (RFC 3261 13.3.1): G.711, inactive."""
    return b"\r\n".join([*_session(host, session, version, b"t=0 0"), b"m=audio 9 RTP/AVP 0 8", b"a=inactive", b""])


def make_answer(offer: bytes, host: bytes, session: int, version: int) -> bytes | None:
    """The answer to an offer: its media lines in its order, accepted on port 9 as inactive (RFC 3264 6, 6.1).

    host: our numeric address. session, version: of the o= line. None when the offer is no session description, is
    beyond the limits, or holds no stream we could take (488, RFC 3261 13.3.1.3).
    """
    if len(offer) > MAX_OFFER_BYTES:
        return None
    lines = [line.rstrip(b"\r") for line in offer.split(b"\n")]
    if lines[0] != b"v=0" or not all(_clean(line) for line in lines):
        return None
    timing, media = b"t=0 0", list[list[bytes]]()
    accepted = 0
    for line in lines:
        if line.startswith(b"t=") and not media:
            timing = line  # equal to the offer's (RFC 3264 6)
        elif line.startswith(b"m="):
            section = _media(line)
            if section is None or len(media) == MAX_MEDIA:
                return None
            accepted += len(section) > 1
            media.append(section)
        elif media and len(media[-1]) > 1 and line.startswith(_KEPT):
            media[-1].insert(-1, line)
    if media and not accepted:
        return None
    return b"\r\n".join(
        [*_session(host, session, version, timing), *(line for section in media for line in section), b""]
    )


def _session(host: bytes, session: int, version: int, timing: bytes) -> list[bytes]:
    address = (b"IN IP6 " if b":" in host else b"IN IP4 ") + host
    return [b"v=0", b"o=- %d %d %b" % (session, version, address), b"s=-", b"c=" + address, timing]


def _media(line: bytes) -> list[bytes] | None:
    """The answer's lines for one m= line of the offer; one line only where the stream is rejected."""
    parts = line[2:].split()
    if len(parts) < 4:
        return None
    kind, port, profile, formats = parts[0], parts[1], parts[2], b" ".join(parts[3:])
    if profile not in _PROFILES or port.split(b"/")[0] == b"0":
        return [b"m=%b 0 %b %b" % (kind, profile, formats)]
    return [b"m=%b 9 %b %b" % (kind, profile, formats), b"a=inactive"]


def _clean(line: bytes) -> bool:
    return b"\r" not in line and b"\x00" not in line
