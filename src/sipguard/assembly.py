"""From settings to bound sockets, listeners, upstreams and the guard's own settings."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from sipguard.edge.sockets import local_address_towards, open_tcp, open_udp
from sipguard.guard.flows import WILDCARDS, Flow, Listener, Transport, Upstream, host_port
from sipguard.guard.settings import GuardSettings
from sipguard.guard.tokens import NO_UPSTREAM
from sipguard.manage.endpoints import Endpoint, UpstreamAddress
from sipguard.manage.settings import Settings

#: A listener's id is one byte in a token.
MAX_LISTENERS = 256


class AssemblyError(Exception):
    """Settings that cannot work on this machine; the text names the key, the value and what is allowed."""


@dataclass(slots=True)
class Assembly:
    """What was opened. The sockets belong to the edge once it is built; `close` is for when it is not."""

    sockets: list[tuple[Listener, socket.socket]] = field(default_factory=list)
    #: Inside ports taken without being told, by name of the socket; `known_ports`: those of an earlier start.
    taken_ports: dict[str, int] = field(default_factory=dict)
    known_ports: Mapping[str, int] = field(default_factory=dict)
    name: str = ""
    upstreams: list[Upstream] = field(default_factory=list)

    @property
    def listeners(self) -> tuple[Listener, ...]:
        """Outside ones first, in the order of the settings."""
        return tuple(listener for listener, _ in self.sockets)

    def close(self) -> None:
        """Close every socket."""
        for _, sock in self.sockets:
            sock.close()


def assemble(
    settings: Settings, upstreams: Sequence[UpstreamAddress], known_ports: Mapping[str, int] | None = None
) -> Assembly:
    """Bind everything. Raises OSError (the address in its text) or AssemblyError, with nothing left open.

    known_ports: where inside sockets were at an earlier start; taken again when free.
    """
    assembly = Assembly(known_ports=known_ports or {}, name=str(settings.listen[0]))
    try:
        for endpoint in settings.listen:
            _bind(assembly, endpoint, inside=False)
        for endpoint in settings.inside:
            _bind(assembly, endpoint, inside=True)
        for upstream in upstreams:
            assembly.upstreams.append(_upstream(assembly, upstream, chosen=bool(settings.inside)))
    except (OSError, AssemblyError):
        assembly.close()
        raise
    return assembly


def guard_settings(settings: Settings, assembly: Assembly) -> GuardSettings:
    """The guard's part of the settings."""
    retry_after = settings.retry_after
    return GuardSettings(
        listeners=assembly.listeners,
        upstreams=tuple(assembly.upstreams),
        server=settings.server.encode() or None,
        source_header=settings.source_header.encode(),
        record_route=settings.record_route,
        path=settings.path,
        retry_after_s=None if retry_after is None else (retry_after.low_s, retry_after.high_s),
        retry_after_methods=frozenset(settings.retry_after_methods),
        reply_budget=settings.reply_budget,
        exempt_uris=settings.exempt_uris,
        stream_drop=settings.stream_drop,
        kernel_drop=settings.kernel_drop,
        one_verdict=settings.transactions == "one_verdict",
    )


def _bind(assembly: Assembly, endpoint: Endpoint, *, inside: bool) -> Listener:
    if len(assembly.sockets) >= MAX_LISTENERS:
        raise AssemblyError(f"listen and inside: allowed are {MAX_LISTENERS} sockets in all")
    if endpoint.transport == "udp":
        sock = open_udp(endpoint.host, endpoint.port, wildcard=endpoint.host in WILDCARDS, inside=inside)
    else:
        sock = open_tcp(endpoint.host, endpoint.port)
    port = sock.getsockname()[1]
    advertise = None
    if endpoint.advertise_host is not None:
        advertise = host_port(endpoint.advertise_host, endpoint.advertise_port or port)
    text = f"{'inside' if inside else 'outside'} {endpoint.transport}:{endpoint.host}:{port}"
    identity = _stable_id(text, 1, {bytes((listener.id,)) for listener in assembly.listeners})
    listener = Listener(identity[0], endpoint.transport, endpoint.host, port, inside, advertise)
    assembly.sockets.append((listener, sock))
    return listener


def _upstream(assembly: Assembly, address: UpstreamAddress, *, chosen: bool) -> Upstream:
    family_is_v6 = ":" in address.host
    if chosen:
        fitting = [
            listener
            for listener in assembly.listeners
            if listener.inside and listener.transport == address.transport and (":" in listener.host) == family_is_v6
        ]
        if not fitting:
            raise AssemblyError(
                f"inside: nothing for upstream {address}; allowed is at least one {address.transport} socket of its family"
            )
        listener = fitting[0]
    else:
        listener = _inside_towards(assembly, address.transport, address.host, address.port)
    remote = (address.host, address.port, 0, 0) if family_is_v6 else (address.host, address.port)
    text = f"{address.transport}:{address.host}:{address.port}"
    identity = _stable_id(text, 2, {upstream.id for upstream in assembly.upstreams})
    return Upstream(identity, address.transport, address.host, address.port, address.weight, Flow(listener, remote))


def _inside_towards(assembly: Assembly, transport: Transport, host: str, port: int) -> Listener:
    """The inside socket on the address that packets to this upstream leave from; one for all that share it."""
    local = local_address_towards(host, port)
    for listener in assembly.listeners:
        if listener.inside and listener.transport == transport and listener.host == local:
            return listener
    if host == local and any(_covers(other, transport, host, port) for other in assembly.listeners):
        raise AssemblyError(
            f"upstream {transport}:{host}:{port} is the guard's own address; allowed is another server's"
        )
    name = f"{assembly.name} inside {transport}:{local}"
    try:
        listener = _bind(assembly, Endpoint(transport, local, assembly.known_ports.get(name, 0)), inside=True)
    except OSError:
        if name not in assembly.known_ports:
            raise
        listener = _bind(assembly, Endpoint(transport, local, 0), inside=True)
    assembly.taken_ports[name] = listener.port
    return listener


def _covers(listener: Listener, transport: Transport, host: str, port: int) -> bool:
    """A wildcard listener that would hear what goes to this port of this machine: the guard would feed itself."""
    wanted = (transport, port, ":" in host)
    return (
        listener.wildcard
        and not listener.inside
        and (listener.transport, listener.port, ":" in listener.host) == wanted
    )


def _stable_id(text: str, octets: int, taken: set[bytes]) -> bytes:
    """A short name for what text names, so that a token still means it after a restart with a longer list."""
    for attempt in range(1 << 16):
        identity = blake2b(text.encode(), digest_size=octets, salt=attempt.to_bytes(4)).digest()
        if identity != NO_UPSTREAM and identity not in taken:
            return identity
    raise AssemblyError(f"{text}: too many of its kind")
