"""`exempt_uris`: Request-URIs that the law never refuses or drops (DESIGN §3)."""

from __future__ import annotations

import pytest

from tests.guard.messages import request
from tests.guard.rig import A, C, N, Rig

PREFIXES = ("urn:service:sos", "sip:112@")


@pytest.mark.parametrize(
    "uri",
    [
        "urn:service:sos",
        "urn:service:sos.fire",
        "URN:Service:SOS",
        "sip:112@example.com",
        "SIP:112@example.com;user=phone",
    ],
)
@pytest.mark.parametrize("method", ["INVITE", "MESSAGE", "OPTIONS"])
def test_an_exempt_request_passes_in_every_state_and_counts(uri: str, method: str) -> None:
    """Always passed, by any spelling of case; SPEC M2: counted like any other."""
    rig = Rig(exempt_uris=PREFIXES)
    for state in (N, A, C):
        rig.into(state)
        load = rig.counters.requests.get(method, 0)
        assert rig.forwarded(request(method, uri)).flow == rig.servers[0].flow
        assert rig.counters.requests[method] == load + 1


def test_an_exempt_request_passes_lcps() -> None:
    """SPEC V3 without it: refused at once."""
    rig = Rig(exempt_uris=PREFIXES, law={"LC": 10000, "LCPS": 1})
    for _ in range(5):
        rig.receive(request())
    rig.answered(request())
    rig.forwarded(request(uri="urn:service:sos"))


@pytest.mark.parametrize(
    "uri",
    [
        "sip:1120@example.com",
        "sip:bob@example.com",
        "sip:urn:service:sos@example.com",
        "tel:112",
        "sip:x@h?to=sip:112@h",
        "sip:112",
    ],
)
def test_what_only_resembles_one_is_shed(uri: str) -> None:
    rig = Rig(exempt_uris=PREFIXES).into(C)
    assert rig.receive(request(uri=uri)) is None


def test_neither_to_nor_route_makes_a_request_exempt() -> None:
    """It is the Request-URI that is looked at, as the kernel filter does."""
    rig = Rig(exempt_uris=PREFIXES).into(C)
    data = request(routes=["<urn:service:sos>", "<sip:112@example.com;lr>"]).replace(b"<sip:bob@", b"<sip:112@")
    assert rig.receive(data) is None


def test_by_default_emergency_calls_are_shed_like_all_others() -> None:
    """DESIGN §3: empty by default, and the README says so."""
    rig = Rig().into(C)
    assert rig.receive(request(uri="urn:service:sos")) is None


def test_an_oddly_written_request_line_is_exempt_all_the_same() -> None:
    rig = Rig(exempt_uris=PREFIXES).into(C)
    data = b"\r\n\r\n" + request(uri="urn:service:sos")
    assert rig.forwarded(data).flow == rig.servers[0].flow
