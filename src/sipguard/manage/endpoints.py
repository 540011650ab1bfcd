"""Addresses as the operator writes them: what the guard listens on, what it protects, where it is managed.

Hosts are numeric, so that nothing waits for DNS and a reply never goes where a name happens to point. IPv6 stands in
brackets (RFC 3261 25.1 IPv6reference). Each `parse` raises ValueError whose text says what is allowed.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Literal, get_args

Transport = Literal["udp", "tcp"]

TRANSPORTS: tuple[Transport, ...] = get_args(Transport)
LISTEN_FORM = "udp|tcp:IP:PORT[,advertise=IP[:PORT]], as udp:192.0.2.1:5060 or tcp:[2001:db8::1]:5060"
UPSTREAM_FORM = "udp|tcp:IP:PORT[,weight=1 … 1000], as udp:192.0.2.10:5060,weight=2"
ADMIN_FORM = "IP:PORT, as 127.0.0.1:8060 or [::1]:8060"
MAX_WEIGHT = 1000
MAX_PORT = 65535


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A socket of the guard's own.

    host: numeric, without brackets, in its canonical spelling. port: 0 takes a free one. advertise_host,
    advertise_port: what is written in Via and Record-Route in place of host and port (behind a NAT, on a wildcard bind).
    """

    transport: Transport
    host: str
    port: int
    advertise_host: str | None = None
    advertise_port: int | None = None

    def __str__(self) -> str:
        text = f"{self.transport}:{host_port(self.host, self.port)}"
        if self.advertise_host is None:
            return text
        if self.advertise_port is None:
            return f"{text},advertise={bracketed(self.advertise_host)}"
        return f"{text},advertise={host_port(self.advertise_host, self.advertise_port)}"

    @property
    def wildcard(self) -> bool:
        """Bound to all local addresses (0.0.0.0 or ::)."""
        return ip_address(self.host).is_unspecified

    @classmethod
    def parse(cls, text: object) -> Endpoint:
        """From `LISTEN_FORM`."""
        main, options = _split(text, LISTEN_FORM)
        transport, host, port = _address(main, LISTEN_FORM, lowest_port=0)
        advertise = _only_option(options, "advertise", LISTEN_FORM)
        if advertise is None:
            return cls(transport, str(host), port)
        advertised, advertised_port = _advertised(advertise)
        if advertised.version != host.version:
            raise ValueError(f"an advertise address of the same family as the host (IPv{host.version})")
        return cls(transport, str(host), port, str(advertised), advertised_port)


@dataclass(frozen=True, slots=True)
class UpstreamAddress:
    """A protected server. weight: its share of the new Call-IDs against the other weights of its transport."""

    transport: Transport
    host: str
    port: int
    weight: int = 1

    def __str__(self) -> str:
        text = f"{self.transport}:{host_port(self.host, self.port)}"
        return text if self.weight == 1 else f"{text},weight={self.weight}"

    @property
    def loopback(self) -> bool:
        """On this machine."""
        return ip_address(self.host).is_loopback

    @classmethod
    def parse(cls, text: object) -> UpstreamAddress:
        """From `UPSTREAM_FORM`."""
        main, options = _split(text, UPSTREAM_FORM)
        transport, host, port = _address(main, UPSTREAM_FORM, lowest_port=1)
        if host.is_unspecified:
            raise ValueError(f"the address of one server, not all addresses: {UPSTREAM_FORM}")
        given = _only_option(options, "weight", UPSTREAM_FORM)
        weight = 1 if given is None else _number(given, 1, MAX_WEIGHT, f"weight 1 … {MAX_WEIGHT}: {UPSTREAM_FORM}")
        return cls(transport, str(host), port, weight)


@dataclass(frozen=True, slots=True)
class AdminAddress:
    """Where the management pages are served. port: 0 takes a free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return host_port(self.host, self.port)

    @property
    def loopback(self) -> bool:
        """Reached from this machine only."""
        return ip_address(self.host).is_loopback

    @classmethod
    def parse(cls, text: object) -> AdminAddress:
        """From `ADMIN_FORM`."""
        if not isinstance(text, str):
            raise ValueError(ADMIN_FORM)
        host, port = _host_port(text, ADMIN_FORM)
        return cls(str(_ip(host, ADMIN_FORM)), _port(port, 0, ADMIN_FORM))


def bracketed(host: str) -> str:
    """A numeric host as it stands before a port: IPv6 in brackets."""
    return f"[{host}]" if ":" in host else host


def host_port(host: str, port: int) -> str:
    """`192.0.2.1:5060` or `[2001:db8::1]:5060`."""
    return f"{bracketed(host)}:{port}"


# -- inside ------------------------------------------------------------------------------------------------------------


def _split(text: object, form: str) -> tuple[str, list[str]]:
    if not isinstance(text, str):
        raise ValueError(form)
    main, *options = text.split(",")
    return main, options


def _only_option(options: list[str], name: str, form: str) -> str | None:
    if not options:
        return None
    key, equals, value = options[0].partition("=")
    if len(options) > 1 or key != name or not equals:
        raise ValueError(form)
    return value


def _address(main: str, form: str, lowest_port: int) -> tuple[Transport, IPv4Address | IPv6Address, int]:
    transport, _, rest = main.partition(":")
    for known in TRANSPORTS:
        if transport == known:
            host, port = _host_port(rest, form)
            return known, _ip(host, form), _port(port, lowest_port, form)
    raise ValueError(form)


def _host_port(text: str, form: str) -> tuple[str, str]:
    host, colon, port = text.rpartition(":")
    if not colon:
        raise ValueError(form)
    return _unbracketed(host, form), port


def _unbracketed(host: str, form: str) -> str:
    if host.startswith("[") and host.endswith("]") and ":" in host:
        return host[1:-1]
    if ":" in host or "[" in host:
        raise ValueError(f"an IPv6 address in brackets: {form}")
    return host


def _ip(host: str, form: str) -> IPv4Address | IPv6Address:
    try:
        address = ip_address(host)
    except ValueError:
        raise ValueError(f"a numeric IP address: {form}") from None
    # A zone has no place in SIP (RFC 3261 25.1); a datagram to a group would be answered by many.
    if address.is_multicast or "%" in host or host == "255.255.255.255":
        raise ValueError(f"a unicast IP address without a zone: {form}")
    return address


def _port(text: str, lowest: int, form: str) -> int:
    return _number(text, lowest, MAX_PORT, f"a port {max(lowest, 1)} … {MAX_PORT}: {form}")


def _number(text: str, low: int, high: int, form: str) -> int:
    # Decimal digits only: int() would take "+5", " 5" and "5_0" as well.
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and low <= int(text) <= high):
        raise ValueError(form)
    return int(text)


def _advertised(text: str) -> tuple[IPv4Address | IPv6Address, int | None]:
    port: int | None = None
    if not text.endswith("]") and ":" in text:
        host, port_text = _host_port(text, LISTEN_FORM)
        port = _port(port_text, 1, LISTEN_FORM)
    else:
        host = _unbracketed(text, LISTEN_FORM)
    address = _ip(host, LISTEN_FORM)
    if address.is_unspecified:
        raise ValueError(f"an advertise address that others can reach: {LISTEN_FORM}")
    return address, port
