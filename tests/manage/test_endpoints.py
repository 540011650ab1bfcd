"""Addresses in the configuration (RFC 3261 25.1 for IPv6 in brackets; DESIGN §3: numeric hosts only)."""

from __future__ import annotations

import pytest

from sipguard.manage.endpoints import AdminAddress, Endpoint, UpstreamAddress


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("udp:192.0.2.1:5060", Endpoint("udp", "192.0.2.1", 5060)),
        ("tcp:0.0.0.0:0", Endpoint("tcp", "0.0.0.0", 0)),
        ("udp:[2001:DB8:0::1]:5060", Endpoint("udp", "2001:db8::1", 5060)),
        ("udp:10.0.0.1:5060,advertise=192.0.2.1", Endpoint("udp", "10.0.0.1", 5060, "192.0.2.1")),
        ("udp:10.0.0.1:5060,advertise=192.0.2.1:5070", Endpoint("udp", "10.0.0.1", 5060, "192.0.2.1", 5070)),
        ("tcp:[::]:5060,advertise=[2001:db8::2]", Endpoint("tcp", "::", 5060, "2001:db8::2")),
        ("tcp:[::]:5060,advertise=[2001:db8::2]:7", Endpoint("tcp", "::", 5060, "2001:db8::2", 7)),
    ],
)
def test_an_endpoint_is_read_and_written_back(text: str, expected: Endpoint) -> None:
    assert Endpoint.parse(text) == expected
    assert Endpoint.parse(str(expected)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "udp",
        "udp:",
        "udp:192.0.2.1",
        "192.0.2.1:5060",
        "UDP:192.0.2.1:5060",
        "tls:192.0.2.1:5061",
        "udp:example.org:5060",
        "udp:192.0.2.256:5060",
        "udp:192.0.2.1:65536",
        "udp:192.0.2.1:-1",
        "udp:192.0.2.1:+5",
        "udp:192.0.2.1:5_0",
        "udp:192.0.2.1: 5060",
        "udp:192.0.2.1:٥٠٦٠",
        "udp:2001:db8::1:5060",
        "udp:[2001:db8::1]",
        "udp:[192.0.2.1]:5060",
        "udp:[fe80::1%lo]:5060",
        "udp:224.0.0.1:5060",
        "udp:[ff02::1]:5060",
        "udp:255.255.255.255:5060",
        "udp:192.0.2.1:5060,",
        "udp:192.0.2.1:5060,weight=2",
        "udp:192.0.2.1:5060,advertise",
        "udp:192.0.2.1:5060,advertise=",
        "udp:192.0.2.1:5060,advertise=0.0.0.0",
        "udp:192.0.2.1:5060,advertise=2001:db8::1",
        "udp:192.0.2.1:5060,advertise=[2001:db8::1]",
        "udp:192.0.2.1:5060,advertise=192.0.2.1:0",
        "udp:192.0.2.1:5060,advertise=192.0.2.1,advertise=192.0.2.1",
        5060,
        None,
        ["udp:192.0.2.1:5060"],
    ],
)
def test_what_is_no_endpoint_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match=r"IP|address|port"):
        Endpoint.parse(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("udp:192.0.2.10:5060", UpstreamAddress("udp", "192.0.2.10", 5060)),
        ("tcp:[2001:db8::1]:5062,weight=1000", UpstreamAddress("tcp", "2001:db8::1", 5062, 1000)),
    ],
)
def test_an_upstream_is_read_and_written_back(text: str, expected: UpstreamAddress) -> None:
    assert UpstreamAddress.parse(text) == expected
    assert UpstreamAddress.parse(str(expected)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "udp:192.0.2.10:0",
        "udp:0.0.0.0:5060",
        "udp:[::]:5060",
        "udp:192.0.2.10:5060,weight=0",
        "udp:192.0.2.10:5060,weight=1001",
        "udp:192.0.2.10:5060,weight=1.5",
        "udp:192.0.2.10:5060,weight=",
        "udp:192.0.2.10:5060,advertise=192.0.2.1",
        7,
    ],
)
def test_what_is_no_upstream_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match=r"weight|address|port"):
        UpstreamAddress.parse(text)


def test_an_admin_address_knows_whether_others_reach_it() -> None:
    assert AdminAddress.parse("127.0.0.1:8060") == AdminAddress("127.0.0.1", 8060)
    assert AdminAddress.parse("[::1]:0").loopback
    assert not AdminAddress.parse("0.0.0.0:8060").loopback
    for text in ("8060", ":8060", "localhost:8060", "::1:8060", "127.0.0.1:", 8060):
        with pytest.raises(ValueError, match="IP"):
            AdminAddress.parse(text)


def test_a_wildcard_is_known_in_both_families() -> None:
    assert Endpoint.parse("udp:0.0.0.0:1").wildcard
    assert Endpoint.parse("udp:[::]:1").wildcard
    assert not Endpoint.parse("udp:127.0.0.1:1").wildcard
