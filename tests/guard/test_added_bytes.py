"""DESIGN §3: Via + Record-Routes add at most 250 bytes. Longest addresses and ports; what IPv6 costs is written down here."""

from __future__ import annotations

import pytest

from sipguard.core.controller import OverloadController
from sipguard.guard.flows import Flow, Listener, Transport, Upstream
from sipguard.guard.guard import Guard
from sipguard.guard.keys import Key, Keyring
from sipguard.guard.settings import GuardSettings
from tests.guard.messages import request, values
from tests.guard.rig import SECRET, address, parameters

V4 = tuple(f"255.255.255.{number}" for number in range(250, 255))
V6 = tuple(f"2001:db8:1111:2222:3333:4444:5555:666{number}" for number in range(5))


def lines(transport: Transport, hosts: tuple[str, ...], *, wildcard: bool, from_inside: bool) -> list[bytes]:
    """The Via and the Record-Route lines that a guard adds to an INVITE, each with its CRLF."""
    outer, inner, server, client, local = hosts
    any_host = "::" if ":" in outer else "0.0.0.0"
    outside = Listener(255, transport, any_host if wildcard else outer, 65535)
    inside = Listener(254, transport, inner, 65535, inside=True)
    upstream = Upstream(b"\xff\xff", transport, server, 65535, 1, Flow(inside, address(server, 65535)))
    guard = Guard(
        OverloadController(parameters()),
        GuardSettings(listeners=(outside, inside), upstreams=(upstream,)),
        Keyring(Key(SECRET)),
    )
    stream = 2**31 - 1 if transport == "tcp" else 0
    there = Flow(outside, address(client, 65535), stream, local if wildcard else "")
    asked = request("INVITE" if not from_inside else "REGISTER")
    action = guard.receive(asked, there, 0)
    assert action is not None
    if from_inside:
        path = values(action.data, "Path")[0].decode()
        asked = request(uri="sip:a@192.0.2.9", routes=[path])
        action = guard.receive(asked, Flow(inside, address(server, 65535), stream), 0)
        assert action is not None
        assert action.flow == there
    added = [b"Via: " + values(action.data, "Via")[0]]
    added += [b"Record-Route: " + value for value in values(action.data, "Record-Route")]
    assert len(added) == 3
    return [line + b"\r\n" for line in added]


@pytest.mark.parametrize("from_inside", [False, True], ids=["inward", "outward"])
@pytest.mark.parametrize("wildcard", [False, True], ids=["bound", "wildcard"])
@pytest.mark.parametrize("transport", ["udp", "tcp"])
def test_at_most_250_bytes_on_ipv4(transport: Transport, wildcard: bool, from_inside: bool) -> None:
    assert sum(map(len, lines(transport, V4, wildcard=wildcard, from_inside=from_inside))) <= 250


@pytest.mark.parametrize("from_inside", [False, True], ids=["inward", "outward"])
@pytest.mark.parametrize(
    ("transport", "wildcard", "bytes_"),
    [("udp", False, 312), ("udp", True, 355), ("tcp", False, 351), ("tcp", True, 372)],
)
def test_what_ipv6_costs(transport: Transport, wildcard: bool, bytes_: int, from_inside: bool) -> None:
    """Three addresses of 39 characters in brackets and two of 16 bytes in base64; the 250 of DESIGN §3 cannot hold that."""
    assert sum(map(len, lines(transport, V6, wildcard=wildcard, from_inside=from_inside))) <= bytes_
