"""`sipguard run` as a process: start and end, the key over restarts, descriptors that run out, and its log."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import stat
from pathlib import Path

import pytest

from sipguard.edge.connections import POOL_SIZE
from tests.edge.conftest import Launch
from tests.edge.live import Process, descriptors, start
from tests.edge.messages import Message, dialog_request, request, response
from tests.edge.peers import Address, StreamPeer, StreamServer, UdpPeer
from tests.peers.process import wait_until


def refused(directory: Path, *arguments: str, key_directory: Path | None = None) -> str:
    """What a guard that cannot start says; its exit code is 2."""
    child = start(directory, *arguments, key_directory=key_directory)
    try:
        assert child.wait(20) == 2, child.text()
    finally:
        child.stop()
    assert "Traceback" not in child.text()
    return " ".join(child.text().split())


# Start and end


@pytest.mark.parametrize("transport", ["udp", "tcp"])
def test_a_second_guard_on_the_same_port_is_refused(launch: Launch, tmp_path: Path, transport: str) -> None:
    """Exit 2 and a message that names the address; the first one is not disturbed."""
    first = launch("--listen", "udp:127.0.0.1:0", "--listen", "tcp:127.0.0.1:0")
    address = first.listening(transport)
    said = refused(tmp_path / "second", "--listen", f"{transport}:{address.text}", "--lc", "7")
    assert f"{transport}:{address.text}: Address already in use" in said
    with UdpPeer() as client:
        client.send(request("OPTIONS"), first.listening())
        assert Message.of(client.read()).status == 200


def test_a_taken_admin_address_is_refused_by_its_name(launch: Launch, tmp_path: Path) -> None:
    first = launch("--listen", "udp:127.0.0.1:0")
    said = refused(tmp_path / "second", "--listen", "udp:127.0.0.1:0", "--admin", first.admin)
    assert f"admin = {first.admin}: Address already in use" in said


def test_port_0_takes_a_free_port_and_says_which(launch: Launch) -> None:
    """What `ready` names is what is bound, each socket its own."""
    guard = launch("--listen", "udp:127.0.0.1:0", "--listen", "udp:[::1]:0", "--listen", "tcp:127.0.0.1:0")
    addresses = [Address.parse(text) for text in guard.line("ready")["listen"]]
    assert all(address.port > 0 for address in addresses)
    assert [address.host for address in addresses] == ["127.0.0.1", "::1", "127.0.0.1"]
    for address in addresses[:2]:
        with UdpPeer(address.host) as client:
            client.send(request("OPTIONS"), address)
            assert Message.of(client.read()).status == 200
    with StreamPeer.connect(addresses[2]) as caller:
        caller.send(request("OPTIONS", transport="TCP"))
        assert Message.of(caller.read()).status == 200


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_order(launch: Launch, number: signal.Signals) -> None:
    """Exit 0, connections closed, ports free, totals in the last line."""
    guard = launch("--listen", "udp:127.0.0.1:0", "--listen", "tcp:127.0.0.1:0")
    udp, tcp = guard.listening(), guard.listening("tcp")
    with StreamPeer.connect(tcp) as caller, UdpPeer() as client:
        caller.send(request("OPTIONS", transport="TCP"))
        assert Message.of(caller.read()).status == 200
        client.send(request("OPTIONS"), udp)
        client.read()
        guard.child.process.send_signal(number)
        assert guard.child.wait(10) == 0
        assert caller.ended()
    stopped = guard.line("stop")
    assert stopped["requests"] == 2
    assert stopped["verdicts"] == {"allow": 2, "reject": 0, "drop": 0}
    for kind, address in ((socket.SOCK_DGRAM, udp), (socket.SOCK_STREAM, tcp)):
        with socket.socket(socket.AF_INET, kind) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, kind == socket.SOCK_STREAM)
            sock.bind(address)
    assert {line["event"] for line in guard.log()} == {"start", "ready", "stop"}


def test_it_ends_in_order_also_in_the_middle_of_a_flood(launch: Launch, client: UdpPeer, server: UdpPeer) -> None:
    """With the filter on and datagrams in every buffer."""
    guard = launch(
        *("--listen", "udp:127.0.0.1:0", "--upstream", f"udp:{server.address.text}", "--tr", "100"),
        *("--lc", "10", "--lcdm", "drop_only", "--lrc", "100"),
    )
    for _ in range(500):
        client.send(request(), guard.listening())
    guard.await_state("critical_limit")
    for _ in range(2000):
        client.send(request(), guard.listening())
    guard.child.process.send_signal(signal.SIGTERM)
    for _ in range(2000):
        client.send(request(), guard.listening()) if guard.child.running else None
    assert guard.child.wait(10) == 0


def test_nothing_is_logged_per_packet(launch: Launch, client: UdpPeer, server: UdpPeer) -> None:
    """Issue 2 §4: garbage, refusals and resets leave counters, and not a line."""
    guard = launch(
        *("--listen", "udp:127.0.0.1:0", "--listen", "tcp:127.0.0.1:0", "--upstream", f"udp:{server.address.text}"),
        *("--upstream", f"tcp:{server.address.text}"),
    )
    server.sock.close()
    for data in (b"", b"\r\n\r\n", b"garbage", bytes(65507), request()[:80], request(max_forwards=0), request()):
        for _ in range(20):
            client.send(data, guard.listening())
    for data in (b"garbage\r\n\r\n", request(transport="TCP"), b"\r\n"):
        for _ in range(5):
            with StreamPeer.connect(guard.listening("tcp")) as caller:
                caller.send(data)
                caller.reset()
    status = guard.await_status("the refusals", lambda status: status["edge"].get("udp-refused") == 20)
    assert status["discards"]["empty"] == status["discards"]["keep-alive"] // 2 == 20
    assert [upstream["refused"] for upstream in status["upstreams"]] == [20, 0]
    assert guard.child.stop() == 0
    assert [line["event"] for line in guard.log()] == ["start", "ready", "stop"]
    assert len(guard.child.text().splitlines()) == 3


# The key


def _first_of_a_dialog(guard: Process, client: UdpPeer, servers: list[UdpPeer]) -> tuple[UdpPeer, bytes]:
    """An INVITE and its 200; the server that got it, and the 200 as that server sent it."""
    client.send(request("INVITE"), guard.listening())
    while True:
        for server in servers:
            for seen in server.drain():
                answer = response(seen)
                server.send(answer, guard.listening(side="inside"))
                assert Message.of(client.read()).status == 200
                return server, answer


def test_a_restart_breaks_no_dialog(launch: Launch, tmp_path: Path) -> None:
    """DESIGN §3: one key in the state directory, mode 0600; after a restart with reordered and reweighted upstreams the
    dialog's requests still find their server, and the server's find the client."""
    state = tmp_path / "state"
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(UdpPeer()) for _ in range(4)]
        client = stack.enter_context(UdpPeer())
        upstreams = [f"udp:{server.address.text}" for server in servers]
        first = launch(
            *("--listen", "udp:127.0.0.1:0", "--inside", "udp:127.0.0.1:0", "--admin", "127.0.0.1:0"),
            *(part for text in upstreams for part in ("--upstream", text)),
            key_directory=state,
        )
        outside, inside = first.listening(), first.listening(side="inside")
        key = state / "key"
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
        secret = key.read_bytes()
        assert len(secret) == 32
        dialogs = [_first_of_a_dialog(first, client, servers) for _ in range(12)]
        assert len({id(server) for server, _ in dialogs}) > 1
        assert first.child.stop() == 0
        second = launch(
            *("--listen", f"udp:{outside.text}", "--inside", f"udp:{inside.text}", "--no-record-route"),
            *(part for n, text in enumerate(reversed(upstreams)) for part in ("--upstream", f"{text},weight={n + 1}")),
            key_directory=state,
        )
        assert key.read_bytes() == secret
        assert [line["event"] for line in second.log()] == ["start", "ready"]
        for server, answer in dialogs:
            client.send(dialog_request("INFO", answer), outside)
            seen, source = server.receive()
            assert Message.of(seen).one("Call-ID") == Message.of(answer).one("Call-ID")
            assert Message.of(seen).all("Route") == []
            server.send(response(seen), source)
            assert Message.of(client.read()).status == 200
            server.send(dialog_request("BYE", answer, route_reversed=False, swap=True), inside)
            assert Message.of(client.read()).method == "BYE"
        # A response to a request from before the restart still finds its client: our Via is signed, not remembered.
        server, answer = dialogs[0]
        server.send(answer, inside)
        assert Message.of(client.read()).one("Call-ID") == Message.of(answer).one("Call-ID")


def test_another_key_is_a_stranger_and_the_previous_one_is_accepted(launch: Launch, tmp_path: Path) -> None:
    """DESIGN §3: key.previous counts for an hour from its renaming; without it the dialog's Routes are not ours."""
    state = tmp_path / "state"
    with UdpPeer() as server, UdpPeer() as client:
        first = launch("--listen", "udp:127.0.0.1:0", "--upstream", f"udp:{server.address.text}", key_directory=state)
        outside, inside = first.listening(), first.listening(side="inside")
        _, answer = _first_of_a_dialog(first, client, [server])
        first.child.stop()
        (state / "key").rename(state / "key.previous")
        arguments = (
            *("--listen", f"udp:{outside.text}", "--inside", f"udp:{inside.text}"),
            *("--upstream", f"udp:{server.address.text}"),
        )
        second = launch(*arguments, key_directory=state)
        assert (state / "key").read_bytes() != (state / "key.previous").read_bytes()
        server.send(answer, inside)
        assert Message.of(client.read()).status == 200
        server.send(dialog_request("BYE", answer, route_reversed=False, swap=True), inside)
        assert Message.of(client.read()).method == "BYE"
        second.child.stop()
        (state / "key.previous").unlink()
        third = launch(*arguments, key_directory=state)
        server.send(answer, inside)
        third.await_status("the stranger", lambda status: status["discards"] == {"response-not-ours": 1})
        assert client.silent()


def test_two_guards_that_start_together_agree_on_one_key(tmp_path: Path) -> None:
    """The key is linked into place whole: whoever is second takes the first one's."""
    state = tmp_path / "state"
    children = [
        start(tmp_path / f"guard{n}", "--listen", "udp:127.0.0.1:0", "--admin", "127.0.0.1:0", key_directory=state)
        for n in range(3)
    ]
    try:
        for child in children:
            wait_until(lambda child=child: '"ready"' in child.text(), 20, "ready")  # type: ignore[misc]
    finally:
        codes = [child.stop() for child in children]
    assert codes == [0, 0, 0]
    assert [path.name for path in state.iterdir()] == ["key"]
    assert len((state / "key").read_bytes()) == 32


def test_a_state_directory_that_cannot_be_written_is_a_warning(launch: Launch, tmp_path: Path, client: UdpPeer) -> None:
    """DESIGN §3, manage.keyfile: no reason not to protect; said once, and the service runs."""
    (tmp_path / "file").write_text("no directory")
    guard = launch("--listen", "udp:127.0.0.1:0", key_directory=tmp_path / "file" / "state")
    warning = guard.line("warning")["text"]
    assert f"state_dir = {tmp_path / 'file' / 'state'}: Not a directory" in warning
    assert "the key is lost at the next restart" in warning
    client.send(request("OPTIONS"), guard.listening())
    assert Message.of(client.read()).status == 200


@pytest.mark.parametrize("name", ["key", "key.previous"])
@pytest.mark.parametrize("octets", [0, 31, 33])
def test_a_file_that_is_no_key_is_refused(tmp_path: Path, name: str, octets: int) -> None:
    """Exit 2, the file and what is allowed: a damaged key silently replaced would break every open dialog."""
    state = tmp_path / "state"
    state.mkdir()
    (state / "key").write_bytes(bytes(32))
    (state / name).write_bytes(bytes(octets))
    said = refused(tmp_path / "guard", "--listen", "udp:127.0.0.1:0", key_directory=state)
    assert f"{state / name}: allowed is exactly 32 bytes" in said
    assert (state / name).read_bytes() == bytes(octets)


def test_a_key_that_others_may_read_is_a_warning(launch: Launch, tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    (state / "key").write_bytes(bytes(range(32)))
    (state / "key").chmod(0o644)
    guard = launch("--listen", "udp:127.0.0.1:0", key_directory=state)
    assert "should have mode 0600" in guard.line("warning")["text"]


# Descriptors


def _guard_of_both(launch: Launch, server: UdpPeer, stream_server: StreamServer, **options: object) -> Process:
    return launch(
        *("--listen", "udp:127.0.0.1:0", "--listen", "tcp:127.0.0.1:0", "--upstream", f"udp:{server.address.text}"),
        *("--upstream", f"tcp:{stream_server.address.text}"),
        **options,
    )


def test_connections_leave_descriptors_for_the_upstreams_and_the_admin_address(launch: Launch, server: UdpPeer) -> None:
    """However many clients connect: the cap is below what the process may open, and that is said once, at the start."""
    with StreamServer() as stream_server, contextlib.ExitStack() as stack:
        guard = _guard_of_both(launch, server, stream_server, limit_descriptors=64)
        warning = guard.line("warning")["text"]
        assert warning.startswith("max_connections = 10000: 64 descriptors leave ")
        room = int(warning.partition(" leave ")[2].partition(";")[0])
        assert room > 10
        callers = [stack.enter_context(StreamPeer.connect(guard.listening("tcp"))) for _ in range(room)]
        assert all(_is_served(caller) for caller in callers)
        strangers = [stack.enter_context(StreamPeer.connect(guard.listening("tcp"))) for _ in range(100)]
        assert not any(_is_served(stranger) for stranger in strangers)
        # Status is served, and connections to the upstream are made, one for each lane of the pool.
        assert guard.status()["edge"] == {"stream-over-cap": 100}
        for caller in callers:
            caller.send(request(transport="TCP"))
        upstreams = [stack.enter_context(stream_server.accept()) for _ in range(POOL_SIZE)]
        for upstream in upstreams:
            upstream.send(response(upstream.read()))
        guard.await_status("all forwarded", lambda status: status["connections"]["inside"] == POOL_SIZE)
        assert guard.status()["connections"] == {"outside": room, "inside": POOL_SIZE}
        assert guard.status()["edge"] == {"stream-over-cap": 100}
        assert guard.sleeps()
    assert [line["event"] for line in guard.log()] == ["start", "warning", "ready"]


def test_descriptors_run_out_and_come_back(launch: Launch, client: UdpPeer, server: UdpPeer) -> None:
    """Issue 2 §4: connections beyond them are closed and counted once each, nothing spins, UDP goes on; TCP is back when
    some are closed. Only somebody who lowers the limit of the running process (prlimit(1)) gets this far."""
    with StreamServer() as stream_server, contextlib.ExitStack() as stack:
        guard = _guard_of_both(launch, server, stream_server)
        pid = guard.child.process.pid
        limit = descriptors(pid) + 40
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, limit))
        callers = [stack.enter_context(StreamPeer.connect(guard.listening("tcp"))) for _ in range(100)]
        served = [caller for caller in callers if _is_served(caller)]
        assert 10 < len(served) < 60
        assert guard.sleeps()
        for _ in range(50):
            client.send(request(), guard.listening())
            seen, inside = server.receive()
            server.send(response(seen), inside)
            assert Message.of(client.read()).status == 200
        # No descriptor for a connection to the upstream either: the client is told.
        served[0].send(request(transport="TCP"))
        assert Message.of(served[0].read()).status == 503
        for caller in served[1:12]:
            caller.sock.close()
        status = guard.await_status("free places", lambda status: status["connections"]["outside"] == len(served) - 11)
        assert status["edge"] == {"stream-no-descriptor": 100 - len(served), "stream-connect-failed": 1}
        late = stack.enter_context(StreamPeer.connect(guard.listening("tcp")))
        late.send(request("OPTIONS", transport="TCP", max_forwards=0))
        assert Message.of(late.read()).status == 483
        assert guard.sleeps()
    assert [line["event"] for line in guard.log()] == ["start", "ready"]


def _is_served(caller: StreamPeer) -> bool:
    """Whether a request gets its answer; False when the connection was closed instead."""
    with contextlib.suppress(ConnectionError):
        caller.send(request("OPTIONS", transport="TCP", max_forwards=0))
        return Message.of(caller.read()).status == 483
    return False


def test_nothing_is_left_open_by_clients_that_come_and_go(launch: Launch) -> None:
    """As many descriptors after 300 connections as before."""
    guard = launch("--listen", "tcp:127.0.0.1:0")
    pid = guard.child.process.pid
    with StreamPeer.connect(guard.listening("tcp")) as caller:
        caller.send(request("OPTIONS", transport="TCP"))
        caller.read()
    guard.await_status("calm", lambda status: status["connections"]["outside"] == 0)
    before = descriptors(pid)
    for n in range(300):
        with StreamPeer.connect(guard.listening("tcp")) as caller:
            caller.send(request("OPTIONS", transport="TCP", max_forwards=0))
            if n % 3:
                caller.read()
            if n % 2:
                caller.reset()
    guard.await_status("calm", lambda status: status["connections"]["outside"] == 0)
    wait_until(lambda: descriptors(pid) <= before, 10, f"{before} descriptors, not {os.listdir(f'/proc/{pid}/fd')}")
