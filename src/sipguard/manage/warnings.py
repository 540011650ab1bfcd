"""What a configuration may say and its operator will regret: said once, at the start and by `sipguard check`."""

from __future__ import annotations

import resource

from sipguard.core.policy import SHEDDABLE_METHODS
from sipguard.manage.descriptors import places, reserved
from sipguard.manage.settings import Settings

#: IANA SIP methods; another name is legal and most likely a slip.
KNOWN_METHODS = SHEDDABLE_METHODS | {"ACK", "BYE", "CANCEL", "NOTIFY", "PUBLISH"}
#: Shedding these ends nothing and frees nothing: calls and transactions stay up in the servers.
ENDING_METHODS = frozenset(("ACK", "BYE", "CANCEL"))


def warnings(settings: Settings) -> list[str]:
    """Each a sentence that begins with its key; empty when there is nothing to say."""
    return [
        *settings.parameters.warnings(),
        *_address_warnings(settings),
        *_method_warnings(settings),
        *_transaction_warnings(settings),
        # The hard limit: `run` raises the soft one to it.
        *descriptor_warnings(settings, resource.getrlimit(resource.RLIMIT_NOFILE)[1]),
    ]


def descriptor_warnings(settings: Settings, descriptors: int) -> list[str]:
    """Whether so many descriptors (RLIMIT_NOFILE) are enough for the connections asked for."""
    room = places(settings, descriptors)
    if room >= settings.max_connections or all(endpoint.transport == "udp" for endpoint in settings.listen):
        return []
    return [
        f"max_connections = {settings.max_connections}: {descriptors} descriptors leave {room}; "
        f"ulimit -n {settings.max_connections + reserved(settings)} (systemd: LimitNOFILE=) allows it"
    ]


def _address_warnings(settings: Settings) -> list[str]:
    found: list[str] = []
    found += [
        f"listen = {endpoint}: a wildcard address without advertise: Via and Record-Route will name the local "
        "address a packet came to, which a NAT in front hides"
        for endpoint in settings.listen
        if endpoint.wildcard and endpoint.advertise_host is None
    ]
    if settings.upstream:
        reached = {address.transport for address in settings.upstream}
        found += [
            f"listen = {endpoint}: no upstream speaks {endpoint.transport}, so what comes in here is answered "
            "503 by the guard itself"
            for endpoint in settings.listen
            if endpoint.transport not in reached
        ]
    if settings.admin is not None and not settings.admin.loopback:
        found.append(f"admin = {settings.admin}: served without a password to whoever reaches this address")
    return found


def _transaction_warnings(settings: Settings) -> list[str]:
    if settings.transactions == "per_request" or not settings.kernel_drop:
        return []
    if not settings.policy.enforce or all(endpoint.transport != "udp" for endpoint in settings.listen):
        return []
    return [
        "transactions = one_verdict: the kernel cannot tell a copy from a new request, so it drops nothing and a flood costs "
        "the process; kernel_drop = false says so in the file"
    ]


def _method_warnings(settings: Settings) -> list[str]:
    policy = settings.policy
    found: list[str] = []
    for key, methods in (
        ("refuse_methods", policy.refuse_methods),
        ("drop_methods", policy.drop_methods),
        ("retry_after_methods", frozenset(settings.retry_after_methods)),
    ):
        found += [
            f"{key}: {method} is no method of SIP's; method names are case-sensitive (RFC 3261 7.1)"
            for method in sorted(methods - KNOWN_METHODS)
        ]
    if "ACK" in policy.refuse_methods:
        found.append("refuse_methods: ACK is never answered, so here it has no effect (RFC 3261 17)")
    found += [
        f"{key}: {method} frees the servers; shedding it keeps calls up"
        for key, methods in (("refuse_methods", policy.refuse_methods - {"ACK"}), ("drop_methods", policy.drop_methods))
        for method in sorted(methods & ENDING_METHODS)
    ]
    if settings.retry_after is not None and "INVITE" in settings.retry_after_methods:
        found.append(
            "retry_after_methods: a Retry-After on INVITE takes a whole trunk out of service at its sender (RFC 7339 5.10.2)"
        )
    return found
