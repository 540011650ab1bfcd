"""The admin address, spoken to through real sockets by good and by hostile peers."""

from __future__ import annotations

import json
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from sipguard.manage import http
from sipguard.manage.http import MAX_CONNECTIONS, AdminServer
from sipguard.manage.pages import MAX_HEAD

STATUS = {"state": "normal", "rps": 3, "requests": {"INVITE": 3}}


class Guard:
    def __init__(self) -> None:
        self.ready = True
        self.threads: set[int] = set()
        self.fails = False

    def status(self) -> dict[str, object]:
        self.threads.add(threading.get_ident())
        if self.fails:
            raise RuntimeError("secret")
        return dict(STATUS)


@pytest.fixture
def guard() -> Guard:
    return Guard()


@pytest.fixture
def server(guard: Guard) -> Iterator[AdminServer]:
    server = AdminServer(("127.0.0.1", 0), guard.status, lambda: guard.ready)
    server.start()
    yield server
    server.stop()


def raw(server: AdminServer, data: bytes, *, shut: bool = False) -> bytes:
    """Everything that comes back until the server closes."""
    with socket.create_connection(server.address, timeout=10) as sock:
        sock.sendall(data)
        if shut:
            sock.shutdown(socket.SHUT_WR)
        return drained(sock)


def drained(sock: socket.socket) -> bytes:
    parts = []
    while part := sock.recv(65536):
        parts.append(part)
    return b"".join(parts)


def get(server: AdminServer, path: str) -> tuple[int, str, bytes]:
    """By urllib, an HTTP client of its own."""
    url = f"http://127.0.0.1:{server.address[1]}{path}"
    try:
        with urllib.request.urlopen(url, timeout=10) as response:
            return response.status, response.headers["Content-Type"], response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers["Content-Type"], error.read()


def test_the_pages(server: AdminServer, guard: Guard) -> None:
    assert get(server, "/healthz") == (200, "text/plain; charset=utf-8", b"ok\n")
    assert get(server, "/readyz")[0] == 200
    guard.ready = False
    assert get(server, "/readyz")[0] == 503
    assert get(server, "/healthz")[0] == 200
    code, kind, body = get(server, "/api/v1/status?pretty")
    assert (code, kind, json.loads(body)) == (200, "application/json", STATUS)
    code, kind, body = get(server, "/metrics")
    assert (code, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert b'\nsipguard_requests_total{method="INVITE"} 3.0\n' in body


def test_all_figures_are_asked_for_in_one_thread_that_is_not_the_callers(server: AdminServer, guard: Guard) -> None:
    for _ in range(5):
        get(server, "/api/v1/status")
    assert len(guard.threads) == 1
    assert threading.get_ident() not in guard.threads


def test_what_is_not_there_names_what_is(server: AdminServer) -> None:
    code, kind, body = get(server, "/admin")
    assert (code, kind) == (404, "application/json")
    assert json.loads(body)["allowed"] == ["/api/v1/status", "/healthz", "/metrics", "/readyz"]
    answer = raw(server, b"DELETE /api/v1/status HTTP/1.1\r\nHost: x\r\n\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 405 ")
    assert b"\r\nAllow: GET, HEAD\r\n" in head
    assert json.loads(body)["allowed"] == ["GET", "HEAD"]


def test_head_has_the_length_and_no_body(server: AdminServer) -> None:
    answer = raw(server, b"HEAD /healthz HTTP/1.1\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"\r\nContent-Length: 3\r\n" in answer
    assert answer.endswith(b"\r\n\r\n")


def test_a_failing_status_is_a_500_and_tells_no_more_than_its_kind(server: AdminServer, guard: Guard) -> None:
    guard.fails = True
    for page in ("/api/v1/status", "/metrics"):
        code, _, body = get(server, page)
        assert (code, json.loads(body)) == (500, {"error": "RuntimeError"})
    assert get(server, "/healthz")[0] == 200


def test_a_request_in_single_bytes_and_with_bare_lf(server: AdminServer) -> None:
    with socket.create_connection(server.address, timeout=10) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in b"GET /healthz HTTP/1.1\nHost: x\n\n":
            sock.sendall(bytes([byte]))
        assert drained(sock).endswith(b"ok\n")


@pytest.mark.parametrize(
    "garbage",
    [
        b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /healthz\r\n\r\n",
        b"GET /healthz HTTP/2.0\r\n\r\n",
        b"GET http://evil/ HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n\n",
        b"OPTIONS sip:x SIP/2.0\r\nVia: SIP/2.0/TCP 192.0.2.1\r\n\r\n",
        b"\xff\x00 /\xff HTTP/1.1 \r\n\r\n",
    ],
)
def test_garbage_is_a_400_and_the_next_peer_is_served(server: AdminServer, garbage: bytes) -> None:
    assert raw(server, garbage).startswith(b"HTTP/1.1 400 ")
    assert get(server, "/healthz")[0] == 200


@pytest.mark.parametrize("filler", [b"GET /" + b"a" * 100_000, b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 50_000])
def test_an_endless_head_is_refused_with_its_limit(server: AdminServer, filler: bytes) -> None:
    answer = raw(server, filler)
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert str(MAX_HEAD).encode() in answer
    assert get(server, "/healthz")[0] == 200


def test_a_head_at_the_limit_is_served_and_one_byte_more_is_not(server: AdminServer) -> None:
    start, end = b"GET /healthz HTTP/1.1\r\nA: ", b"\r\n\r\n"
    fill = MAX_HEAD - len(start) - len(end)
    assert raw(server, start + b"x" * fill + end).startswith(b"HTTP/1.1 200 ")
    assert raw(server, start + b"x" * (fill + 1) + end).startswith(b"HTTP/1.1 431 ")


def test_a_body_is_read_away_and_the_answer_arrives(server: AdminServer) -> None:
    body = b"x" * 200_000
    head = b"PATCH /api/v1/status HTTP/1.1\r\nContent-Length: 200000\r\n\r\n"
    assert raw(server, head + body, shut=True).startswith(b"HTTP/1.1 405 ")


def test_a_peer_that_leaves_at_any_moment_hurts_nobody(server: AdminServer) -> None:
    for data in (b"", b"GET /me", b"GET /metrics HTTP/1.1\r\n\r\n"):
        sock = socket.create_connection(server.address, timeout=10)
        sock.sendall(data)
        # RST, not FIN.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        sock.close()
    assert raw(server, b"GET /healthz HTTP/1.1\r\n", shut=True) == b""
    assert get(server, "/healthz")[0] == 200


def test_slow_peers_beyond_the_cap_lock_nobody_out(server: AdminServer) -> None:
    """Slowloris: twice the cap of half requests; the oldest go, a whole request is answered."""
    slow = [socket.create_connection(server.address, timeout=10) for _ in range(2 * MAX_CONNECTIONS)]
    try:
        for sock in slow:
            try:
                sock.sendall(b"GET /healthz HTTP/1.1\r\nX: ")
            except OSError:
                continue  # one of the oldest, already closed
        assert get(server, "/healthz")[0] == 200
        assert len(server._connections) <= MAX_CONNECTIONS
    finally:
        for sock in slow:
            sock.close()


def drips_until_closed(sock: socket.socket, most: int) -> int:
    """How many bytes, one each 20 ms, went out before the server closed."""
    for sent in range(most):
        try:
            sock.sendall(b"a")
        except OSError:
            return sent
        time.sleep(0.02)
    return most


def test_a_slow_request_is_cut_off_however_steadily_it_drips(monkeypatch: pytest.MonkeyPatch, guard: Guard) -> None:
    """The deadline is for the whole head, so a byte now and then does not extend it."""
    monkeypatch.setattr(http, "PHASE_TIMEOUT_S", 0.3)
    server = AdminServer(("127.0.0.1", 0), guard.status, lambda: True)
    server.start()
    try:
        with socket.create_connection(server.address, timeout=10) as sock:
            assert drips_until_closed(sock, most=1000) < 1000
        assert get(server, "/healthz")[0] == 200
    finally:
        server.stop()


def test_a_peer_that_does_not_read_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "PHASE_TIMEOUT_S", 0.3)
    big = {"state": "normal", "filler": "x" * 30_000_000}
    server = AdminServer(("127.0.0.1", 0), lambda: big, lambda: True)
    server.start()
    try:
        with socket.create_connection(server.address, timeout=10) as sock:
            sock.sendall(b"GET /api/v1/status HTTP/1.1\r\n\r\n")
            until = time.monotonic() + 10
            while time.monotonic() < until and not server._connections:
                time.sleep(0.01)
            while time.monotonic() < until and server._connections:
                time.sleep(0.01)
            assert not server._connections
    finally:
        server.stop()


def test_ipv6_and_a_taken_address() -> None:
    server = AdminServer(("::1", 0), dict, lambda: True)
    server.start()
    try:
        assert raw(server, b"GET /healthz HTTP/1.0\r\n\r\n").endswith(b"ok\n")
        with pytest.raises(OSError, match=rf"admin = \[::1\]:{server.address[1]}: "):
            AdminServer(server.address, dict, lambda: True).start()
    finally:
        server.stop()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(server.address, timeout=10)


def test_stop_comes_twice_or_first() -> None:
    server = AdminServer(("127.0.0.1", 0), dict, lambda: True)
    server.stop()
    server.start()
    server.stop()
    server.stop()
    assert repr(server).endswith("stopped 0 connections>")
