"""Contradictions between keys that are each right: errors, not warnings (DESIGN §2)."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address

from sipguard.manage.endpoints import AdminAddress, Endpoint, UpstreamAddress
from sipguard.problem import Problem


def conflicts(
    listen: Sequence[Endpoint],
    upstream: Sequence[UpstreamAddress],
    inside: Sequence[Endpoint],
    admin: Sequence[AdminAddress],
    *,
    whole: bool,
) -> list[Problem]:
    """All of them. whole: the lists hold all that was given, so that what is missing in them is missing."""
    sockets = [("listen", endpoint) for endpoint in listen] + [("inside", endpoint) for endpoint in inside]
    pages = [("admin", address, Endpoint("tcp", address.host, address.port)) for address in admin]
    places = [(key, endpoint, endpoint) for key, endpoint in sockets] + pages
    problems = [
        Problem(key, str(written), f"an address that is not taken yet, as this one by {earlier_key} {earlier}")
        for at, (key, written, place) in enumerate(places)
        for earlier_key, earlier, earlier_place in places[:at]
        if overlap(earlier_place, place)
    ]
    problems += [
        Problem(
            "inside", str(endpoint), "one address, or all with an advertise address: answers must find the way back"
        )
        for endpoint in inside
        if endpoint.wildcard and endpoint.advertise_host is None
    ]
    problems += _upstream_conflicts(sockets, upstream)
    return problems + (_unreached(listen, upstream, inside) if whole else [])


def overlap(one: Endpoint, other: Endpoint) -> bool:
    """Whether the second could not be bound while the first is. A wildcard takes every address of its family."""
    return (
        one.port != 0
        and (one.transport, one.port) == (other.transport, other.port)
        and _version(one.host) == _version(other.host)
        and (one.host == other.host or one.wildcard or other.wildcard)
    )


def _upstream_conflicts(sockets: list[tuple[str, Endpoint]], upstream: Sequence[UpstreamAddress]) -> list[Problem]:
    problems: list[Problem] = []
    seen: set[tuple[str, str, int]] = set()
    for address in upstream:
        place = (address.transport, address.host, address.port)
        if place in seen:
            problems.append(Problem("upstream", str(address), "each server once; its share is its weight"))
            continue
        seen.add(place)
        target = Endpoint(*place)
        # A guard that protects itself would send every request round in a ring until Max-Forwards ends it.
        problems += [
            Problem("upstream", str(address), f"a server other than this guard ({key} {endpoint})")
            for key, endpoint in sockets
            if overlap(endpoint, target) and (endpoint.host == address.host or address.loopback)
        ]
    return problems


def _unreached(
    listen: Sequence[Endpoint], upstream: Sequence[UpstreamAddress], inside: Sequence[Endpoint]
) -> list[Problem]:
    """What nothing leads to: upstreams of no listening transport, upstreams no inside socket can send to."""
    problems: list[Problem] = []
    if upstream and not {address.transport for address in upstream} & {endpoint.transport for endpoint in listen}:
        value = [str(address) for address in upstream]
        problems.append(Problem("upstream", value, "at least one of the transport of a listen (datagram to datagram)"))
    if inside and not upstream:
        value = [str(endpoint) for endpoint in inside]
        problems.append(Problem("inside", value, "only with an upstream: the embedded server is reached by itself"))
    elif inside:
        reached = {(endpoint.transport, _version(endpoint.host)) for endpoint in inside}
        problems += [
            Problem("upstream", str(address), "a server of the transport and the IP version of an inside, or no inside")
            for address in upstream
            if (address.transport, _version(address.host)) not in reached
        ]
    return problems


def _version(host: str) -> int:
    return ip_address(host).version
