"""The embedded server on loopback sockets: UDP by `add_reader` in batches, TCP by Content-Length framing."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Iterable
from typing import cast

from sipguard.uas.agent import UserAgentServer
from sipguard.uas.peer import Peer, Send
from sipguard.wire.framing import BROKEN, PING, StreamFramer

_BATCH = 128
_MAX_DATAGRAM = 65_535
_RECEIVE_BUFFER = 4 * 1024 * 1024


class EmbeddedServer:
    """A `UserAgentServer` on UDP and TCP ports of its own choosing; an upstream like any other to the guard.

    host: a numeric loopback address. max_connections: streams beyond it are closed, the longest silent first.
    `unsent`: messages the sockets would not take, whole life (the peer asks again: SIP over UDP repeats).
    """

    def __init__(self, *, host: str = "127.0.0.1", ring_ns: int = 200_000_000, max_connections: int = 1000) -> None:
        self.host = host
        self.max_connections = max_connections
        self.unsent = 0
        self.agent = UserAgentServer(ring_ns=ring_ns, key=os.urandom(32))
        self._udp: socket.socket | None = None
        self._tcp: asyncio.Server | None = None
        self._streams: dict[int, _Stream] = {}  # the longest silent first
        self._connections = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ns = 0

    @property
    def udp_port(self) -> int:
        """The UDP port; 0 before `start`."""
        return int(self._udp.getsockname()[1]) if self._udp is not None else 0

    @property
    def tcp_port(self) -> int:
        """The TCP port; 0 before `start`."""
        return int(self._tcp.sockets[0].getsockname()[1]) if self._tcp is not None and self._tcp.sockets else 0

    async def start(self) -> None:
        """Bind and serve. Raises OSError when loopback gives no port."""
        loop = asyncio.get_running_loop()
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        udp = socket.socket(family, socket.SOCK_DGRAM)
        try:
            udp.setblocking(False)
            udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
            udp.bind((self.host, 0))
            self._tcp = await loop.create_server(lambda: _Stream(self), self.host, 0, family=family)
        except OSError:
            udp.close()
            raise
        self._udp = udp
        shown = f"[{self.host}]" if ":" in self.host else self.host
        self.agent.addresses = {
            "udp": f"{shown}:{self.udp_port}".encode(),
            "tcp": f"{shown}:{self.tcp_port}".encode(),
        }
        loop.add_reader(udp.fileno(), self._read_datagrams)

    async def stop(self) -> None:
        """Close everything; calls in progress are forgotten. May be called twice."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._udp is not None:
            asyncio.get_running_loop().remove_reader(self._udp.fileno())
            self._udp.close()
            self._udp = None
        for stream in list(self._streams.values()):
            stream.abort()
        if self._tcp is not None:
            self._tcp.close()
            await self._tcp.wait_closed()
            self._tcp = None

    # -- in --------------------------------------------------------------------------------------------------------

    def _read_datagrams(self) -> None:
        udp = self._udp
        if udp is None:
            return
        now_ns = time.monotonic_ns()
        receive = self.agent.receive
        for _ in range(_BATCH):
            try:
                data, address = udp.recvfrom(_MAX_DATAGRAM)
            except BlockingIOError:
                break
            except OSError:
                continue  # an ICMP refusal of something sent earlier
            sends = receive(data, Peer("udp", address[0], address[1]), now_ns)
            if sends:
                self._send(sends)
        self._arm(now_ns)

    def heard(self, stream: _Stream, data: bytes) -> None:
        """Bytes came on a stream."""
        now_ns = time.monotonic_ns()
        if self._streams.pop(stream.number, None) is None:
            return
        self._streams[stream.number] = stream  # to the end of the line: the first in it has been silent longest
        for frame in stream.framer.feed(data, now_ns):
            if frame.kind == PING:
                stream.write(b"\r\n")  # RFC 5626 4.4.1
                continue
            if frame.data:
                self._send(self.agent.receive(frame.data, stream.peer, now_ns))
            if frame.kind == BROKEN:
                stream.close()
                break
        self._arm(now_ns)

    def connected(self, stream: _Stream) -> int:
        """A stream is open; its number."""
        if len(self._streams) >= self.max_connections:
            next(iter(self._streams.values())).abort()
        self._connections += 1
        self._streams[self._connections] = stream
        return self._connections

    def disconnected(self, stream: _Stream) -> None:
        """A stream is closed, or about to be."""
        self._streams.pop(stream.number, None)

    # -- out -------------------------------------------------------------------------------------------------------

    def _send(self, sends: Iterable[Send]) -> None:
        for data, destination in sends:
            if destination.connection:
                stream = self._streams.get(destination.connection)
                if stream is None or not stream.write(data):
                    self.unsent += 1
            elif self._udp is not None:
                try:
                    self._udp.sendto(data, (destination.host, destination.port))
                except (OSError, OverflowError):
                    self.unsent += 1

    # -- time ------------------------------------------------------------------------------------------------------

    def _arm(self, now_ns: int) -> None:
        """One timer, at the agent's next deadline."""
        deadline_ns = self.agent.next_deadline()
        if deadline_ns is None or self._udp is None:
            return
        if self._timer is not None:
            if self._timer_ns <= deadline_ns:
                return
            self._timer.cancel()
        self._timer_ns = deadline_ns
        delay_s = max(0, deadline_ns - now_ns) / 1e9
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        now_ns = time.monotonic_ns()
        self._send(self.agent.tick(now_ns))
        self._arm(now_ns)


class _Stream(asyncio.Protocol):
    """One TCP connection. A peer that does not read its answers is not read either."""

    def __init__(self, server: EmbeddedServer) -> None:
        self.framer = StreamFramer()
        self.number = 0
        self.peer = Peer("tcp", "", 0)
        self._server = server
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass of asyncio's
        self.number = self._server.connected(self)
        address = transport.get_extra_info("peername") or ("", 0)
        self.peer = Peer("tcp", address[0], address[1], self.number)

    def data_received(self, data: bytes) -> None:
        self._server.heard(self, data)

    def pause_writing(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        if self._transport is not None:
            self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (asyncio names it)
        self._transport = None
        self._server.disconnected(self)

    def write(self, data: bytes) -> bool:
        """False: gone, or it owes us too much reading."""
        transport = self._transport
        if transport is None or transport.is_closing() or transport.get_write_buffer_size() > 1024 * 1024:
            return False
        transport.write(data)
        return True

    def close(self) -> None:
        """Close after what is written has gone out."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once and leave the table."""
        self._server.disconnected(self)
        if self._transport is not None:
            self._transport.abort()
