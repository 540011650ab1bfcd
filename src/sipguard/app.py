"""The composition root: one guard, its edge, its embedded server where there is nothing to protect, its admin address."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import gc
import resource
import signal
import sys
import time
from typing import Any

import uvloop

from sipguard import __version__
from sipguard.assembly import Assembly, AssemblyError, assemble, guard_settings
from sipguard.core.controller import OverloadController
from sipguard.core.verdicts import Change
from sipguard.edge.edge import Edge, EdgeSettings
from sipguard.edge.limits import StreamLimits
from sipguard.guard.flows import host_port
from sipguard.guard.guard import Guard
from sipguard.guard.keys import Key, Keyring
from sipguard.guard.status import status_of
from sipguard.manage.descriptors import places
from sipguard.manage.endpoints import UpstreamAddress
from sipguard.manage.http import AdminServer
from sipguard.manage.keyfile import KeyFileError, Secrets, load_secrets
from sipguard.manage.log import EventLog
from sipguard.manage.portfile import load_ports, save_ports
from sipguard.manage.settings import Settings
from sipguard.manage.warnings import warnings
from sipguard.uas.server import EmbeddedServer

#: How long the admin thread waits for the edge's answer before it serves the last one.
SNAPSHOT_WAIT_S = 0.5

#: The admin thread may hold the interpreter this long; the default 5 ms would show in the evaluation's lateness.
SWITCH_INTERVAL_S = 0.0005


def serve(settings: Settings) -> int:
    """Run until SIGTERM or SIGINT. The exit code: 0, or 2 when the settings cannot work here (said on stderr)."""
    try:
        secrets = load_secrets(settings.state_path)
        _raise_descriptor_limit()
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(settings, secrets))
    except (OSError, AssemblyError, KeyFileError) as error:
        text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        print(f"sipguard: {text}", file=sys.stderr)
        return 2
    return 0


async def _serve(settings: Settings, secrets: Secrets) -> None:
    log = EventLog()
    log.start(
        version=__version__,
        parameters=settings.parameters.as_dict(),
        shed=settings.policy.shed,
        shadow=not settings.policy.enforce,
    )
    embedded = None
    upstreams: tuple[UpstreamAddress, ...] = settings.upstream
    if not upstreams:
        embedded = EmbeddedServer(ring_ns=settings.uas_ring_ms * 1_000_000)
        await embedded.start()
        upstreams = (
            UpstreamAddress("udp", embedded.host, embedded.udp_port),
            UpstreamAddress("tcp", embedded.host, embedded.tcp_port),
        )
    try:
        assembly = assemble(settings, upstreams, load_ports(settings.state_path))
        if embedded is None and (lost := save_ports(settings.state_path, assembly.taken_ports)):
            log.warning(lost)
        for text in (*warnings(settings), *secrets.warnings):
            log.warning(text)
        # What lives from the start lives to the end: the collector need not look at it again. Before the service, whose
        # origin is the first window's start.
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 100)
        await _Service(settings, secrets, assembly, log).run()
    finally:
        if embedded is not None:
            await embedded.stop()


class _Service:
    """One running guard."""

    def __init__(self, settings: Settings, secrets: Secrets, assembly: Assembly, log: EventLog) -> None:
        self._settings = settings
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._started_ns = time.monotonic_ns()
        self._assembly = assembly
        previous = Key(secrets.previous) if secrets.previous else None
        keyring = Keyring(
            Key(secrets.current), previous, self._started_ns + round(secrets.previous_for_s * 1_000_000_000)
        )
        controller = OverloadController(settings.parameters, settings.policy, origin_ns=time.monotonic_ns())
        self._guard = Guard(controller, guard_settings(settings, assembly), keyring)
        limits = StreamLimits(
            settings.max_connections,
            settings.max_body,
            round(settings.idle_timeout_s * 1e9),
            round(settings.partial_timeout_s * 1e9),
            places=places(settings, resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
        )
        self._edge = Edge(
            self._guard,
            assembly.sockets,
            EdgeSettings(settings.receive_buffer, limits),
            self._changed,
        )
        self._ready = False
        self._last_status: dict[str, Any] = {}

    async def run(self) -> None:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, stop.set)
        admin = self._admin()
        self._edge.start()
        self._ready = True
        for listener, granted in self._edge.short_buffers():
            self._log.warning(
                f"receive_buffer = {self._settings.receive_buffer}: the system granted {granted} bytes on {listener!r}; "
                "raise net.core.rmem_max"
            )
        try:
            if admin is not None:
                admin.start()
            self._log.ready(
                listen=[str(address) for address in self._edge.addresses(inside=False)],
                inside=[str(address) for address in self._edge.addresses(inside=True)],
                upstream=[repr(upstream) for upstream in self._assembly.upstreams],
                admin=None if admin is None else "{}:{}".format(*admin.address),
                origin_ns=self._guard.controller.origin_ns,
            )
            await stop.wait()
        finally:
            self._ready = False
            if admin is not None:
                admin.stop()
            totals = status_of(self._guard)
            self._edge.stop()
            # Aborted connections are told in the next turn of the loop.
            await asyncio.sleep(0)
        self._log.stop(requests=sum(totals["requests"].values()), verdicts=totals["verdicts"])

    def _admin(self) -> AdminServer | None:
        address = self._settings.admin
        if address is None:
            return None
        return AdminServer((address.host, address.port), self._status_from_thread, lambda: self._ready)

    def _changed(self, change: Change) -> None:
        self._log.state(change, shadow=not self._settings.policy.enforce)

    def _status(self) -> dict[str, Any]:
        now_ns = time.monotonic_ns()
        return {
            **status_of(self._guard),
            **self._edge.status(),
            "upstreams": [
                {
                    "id": upstream.id.hex(),
                    "transport": upstream.transport,
                    "address": host_port(upstream.host, upstream.port).decode(),
                    "weight": upstream.weight,
                    "sent": self._guard.counters.sent.get(upstream.id, 0),
                    # By ICMP, so of datagrams only.
                    "refused": self._edge.counters.refused.get((upstream.host, upstream.port), 0)
                    if upstream.transport == "udp"
                    else 0,
                }
                for upstream in self._assembly.upstreams
            ],
            "now_ns": now_ns,
            "uptime_s": (now_ns - self._started_ns) / 1e9,
            "version": __version__,
        }

    def _status_from_thread(self) -> dict[str, Any]:
        """As of now, asked of the edge's thread; when that is too busy to answer, as of the last time."""
        answer: concurrent.futures.Future[dict[str, Any]] = concurrent.futures.Future()

        def tell() -> None:
            if answer.set_running_or_notify_cancel():
                answer.set_result(self._status())

        with contextlib.suppress(RuntimeError, concurrent.futures.TimeoutError):
            self._loop.call_soon_threadsafe(tell)
            self._last_status = answer.result(SNAPSHOT_WAIT_S)
        answer.cancel()
        return self._last_status


def _raise_descriptor_limit() -> None:
    """As many descriptors as we may have: each stream connection takes one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
