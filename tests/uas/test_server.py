"""The embedded server on real sockets, and called by SIPp."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import uvloop

from sipguard.uas.server import EmbeddedServer
from sipguard.wire.framing import StreamFramer
from tests.uas.messages import request

SIPP = shutil.which("sipp")


@contextlib.asynccontextmanager
async def serving(ring_ns: int = 200_000_000, max_connections: int = 10) -> AsyncIterator[EmbeddedServer]:
    server = EmbeddedServer(ring_ns=ring_ns, max_connections=max_connections)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


Run = Callable[[Callable[[], Awaitable[None]]], None]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs one asynchronous test, bounded in time, on the loop of the standard library and on the guard's."""

    def run_on_loop(body: Callable[[], Awaitable[None]]) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(60):
                await body()

        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(bounded())

    return run_on_loop


async def read_messages(reader: asyncio.StreamReader, count: int) -> list[bytes]:
    framer, messages = StreamFramer(), list[bytes]()
    while len(messages) < count:
        data = await reader.read(65_536)
        assert data, messages
        messages += [frame.data for frame in framer.feed(data, 0)]
    return messages


async def stuck(writer: asyncio.StreamWriter, data: bytes) -> bool:
    """Write more than all buffers on the way hold; true when nothing is taken any more."""
    for _ in range(5000):
        writer.write(data)
        try:
            async with asyncio.timeout(2):
                await writer.drain()
        except TimeoutError:
            return True
    return False


def test_udp_call_rings_and_is_answered(run: Run) -> None:
    async def body() -> None:
        async with serving(ring_ns=50_000_000) as server:
            loop = asyncio.get_running_loop()
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
                client.setblocking(False)
                client.connect(("127.0.0.1", server.udp_port))
                via = f"SIP/2.0/UDP 127.0.0.1:{client.getsockname()[1]};branch=z9hG4bKa"
                client.send(b"")
                client.send(b"\x00" * 65_000)
                client.send(request("INVITE", via=via))
                answers = [await loop.sock_recv(client, 65_535) for _ in range(3)]
        assert [answer[:12] for answer in answers] == [b"SIP/2.0 100 ", b"SIP/2.0 180 ", b"SIP/2.0 200 "]
        assert f"Contact: <sip:sipguard@127.0.0.1:{server.agent.addresses['udp'].decode()[10:]}>".encode() in answers[2]

    run(body)


def test_an_icmp_refusal_does_not_end_the_service(run: Run) -> None:
    async def body() -> None:
        async with serving() as server:
            loop = asyncio.get_running_loop()
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as gone:
                gone.bind(("127.0.0.1", 0))
                port = gone.getsockname()[1]
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
                client.setblocking(False)
                client.connect(("127.0.0.1", server.udp_port))
                for n in range(5):
                    via = f"SIP/2.0/UDP 127.0.0.1:{port};branch=z9hG4bK{n}"
                    client.send(request("OPTIONS", via=via))
                    await asyncio.sleep(0.01)
                client.send(request("OPTIONS", via=f"SIP/2.0/UDP 127.0.0.1:{port};rport;branch=z9hG4bKlast"))
                assert (await loop.sock_recv(client, 65_535)).startswith(b"SIP/2.0 200 ")

    run(body)


def test_tcp_in_pieces_with_keep_alives(run: Run) -> None:
    # RFC 3261 18.3, RFC 5626 4.4.1.
    async def body() -> None:
        async with serving(ring_ns=0) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.tcp_port)
            via = "SIP/2.0/TCP 127.0.0.1:9;branch=z9hG4bK"
            data = request("OPTIONS", via=via + "1") + request("INVITE", via=via + "2")
            for n in range(0, len(data), 7):
                writer.write(data[n : n + 7])
                await writer.drain()
            messages = await read_messages(reader, 4)
            assert [message[8:11] for message in messages] == [b"200", b"100", b"180", b"200"]
            writer.write(b"\r\n\r\n")
            writer.close()

    run(body)


def test_tcp_keep_alive_is_answered(run: Run) -> None:
    async def body() -> None:
        async with serving() as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.tcp_port)
            writer.write(b"\r\n\r\n")
            assert await reader.readexactly(2) == b"\r\n"
            writer.close()

    run(body)


def test_tcp_with_lost_framing_gets_400_and_the_end(run: Run) -> None:
    async def body() -> None:
        async with serving() as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.tcp_port)
            writer.write(request("OPTIONS").replace(b"Content-Length: 0", b"Content-Length: x"))
            answer = await reader.read()
            assert answer.startswith(b"SIP/2.0 400 ")
            writer.close()

    run(body)


def test_the_longest_silent_stream_makes_room(run: Run) -> None:
    async def body() -> None:
        async with serving(max_connections=2) as server:
            streams = [await asyncio.open_connection("127.0.0.1", server.tcp_port) for _ in range(2)]
            streams[0][1].write(b"\r\n\r\n")
            assert await streams[0][0].readexactly(2) == b"\r\n"
            third = await asyncio.open_connection("127.0.0.1", server.tcp_port)
            with contextlib.suppress(ConnectionResetError):
                assert await streams[1][0].read() == b""
            for reader, writer in (streams[0], third):
                writer.write(b"\r\n\r\n")
                assert await reader.readexactly(2) == b"\r\n"
                writer.close()
            streams[1][1].close()

    run(body)


def test_a_stream_that_does_not_read_is_not_read_and_hurts_no_other(run: Run) -> None:
    async def body() -> None:
        async with serving() as server:
            _, deaf = await asyncio.open_connection("127.0.0.1", server.tcp_port)
            data = request("OPTIONS", via="SIP/2.0/TCP 127.0.0.1:9;branch=z9hG4bK1") * 100
            assert await stuck(deaf, data)
            reader, writer = await asyncio.open_connection("127.0.0.1", server.tcp_port)
            writer.write(b"\r\n\r\n")
            assert await reader.readexactly(2) == b"\r\n"
            writer.close()
            deaf.transport.abort()

    run(body)


def test_stop_twice_and_before_start(run: Run) -> None:
    async def body() -> None:
        server = EmbeddedServer()
        await server.stop()
        await server.start()
        assert server.udp_port
        assert server.tcp_port
        await server.stop()
        await server.stop()
        assert (server.udp_port, server.tcp_port) == (0, 0)

    run(body)


@pytest.mark.peer
@pytest.mark.parametrize("transport", ["u1", "t1"])
def test_sipp_calls(transport: str, run: Run, tmp_path: Path) -> None:
    """SIPp's own UAC scenario: INVITE, 100, 180, 200, ACK, BYE, 200; every call must succeed."""
    assert SIPP is not None, "sipp is not installed: scripts/install-peers"
    sipp = SIPP

    async def body() -> None:
        async with serving(ring_ns=100_000_000) as server:
            port = server.udp_port if transport == "u1" else server.tcp_port
            options = f"-sn uac -t {transport} -i 127.0.0.1 -m 60 -r 60 -d 200 -nostdin -timeout 30 -timeout_error"
            process = await asyncio.create_subprocess_exec(
                *(sipp, *options.split(), f"127.0.0.1:{port}"),
                cwd=tmp_path,
                env={**os.environ, "TERM": "dumb"},
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            output = (await process.communicate())[0].decode("latin-1")
            assert process.returncode == 0, output[-3000:]
            assert repr(server.agent).startswith("<UserAgentServer invites=60 dialogs=0 ")

    run(body)
