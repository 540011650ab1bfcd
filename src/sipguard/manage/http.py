"""The admin address: one small thread that serves `Pages` and can neither delay a cycle nor be held up.

One thread and not one per connection: threads that wait for the interpreter lock stand in the way of the guard's own.
Everything a peer can make it keep is capped: connections, bytes of a request, time.
"""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections.abc import Callable
from http import HTTPStatus

from sipguard.guard.ports import StatusSource
from sipguard.manage.endpoints import host_port
from sipguard.manage.pages import MAX_HEAD, Pages, failure

MAX_CONNECTIONS = 32
#: From accept to the last byte of the request; then as long again for the response, then for the peer's close.
PHASE_TIMEOUT_S = 5.0
#: After work of some length the thread rests as long, so a flood of requests takes half a core at most.
MAX_REST_S = 0.05
_ACCEPT_PAUSE_S = 0.5
_READ = 4096


class _Connection:
    """One peer: reading its head, then sending the response, then (sent) waiting for its close."""

    __slots__ = ("deadline_s", "head", "response", "sent", "sock")

    def __init__(self, sock: socket.socket, deadline_s: float) -> None:
        self.sock = sock
        self.deadline_s = deadline_s
        self.head = bytearray()
        self.response: memoryview | None = None
        self.sent = False


class AdminServer:
    """Serves GET /healthz, /readyz, /metrics and /api/v1/status on one address.

    address: numeric host and port (0: a free one; see `address` after `start`). status, ready: see `Pages`; called in
    this server's thread. Fails away from the guard: whatever happens here, the guard goes on.
    """

    def __init__(self, address: tuple[str, int], status: StatusSource, ready: Callable[[], bool]) -> None:
        self.address = address
        self._pages = Pages(status, ready)
        self._connections: dict[int, _Connection] = {}
        self._thread: threading.Thread | None = None

    def __repr__(self) -> str:
        running = "serving" if self._thread is not None else "stopped"
        return f"<AdminServer {host_port(*self.address)} {running} {len(self._connections)} connections>"

    def start(self) -> None:
        """Bind and serve. Raises OSError, with the address in its text, when it cannot be bound."""
        host, port = self.address
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind((host, port))
            listener.listen(MAX_CONNECTIONS)
            listener.setblocking(False)
        except OSError as error:
            listener.close()
            raise OSError(error.errno, f"admin = {host_port(host, port)}: {error.strerror}") from error
        self.address = listener.getsockname()[:2]
        self._listener = listener
        self._wake_read, self._wake_write = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ)
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        self._accept_again_s = 0.0
        self._thread = threading.Thread(target=self._serve, name="sipguard-admin", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Close everything and wait for the thread (a second at most). Does nothing when not started."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._wake_write.close()
        thread.join(timeout=1)

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        try:
            while self._serve_once():
                pass
        finally:
            for connection in list(self._connections.values()):
                self._close(connection)
            self._selector.close()
            self._listener.close()
            self._wake_read.close()

    def _serve_once(self) -> bool:
        ready = self._selector.select(self._wait_s())
        began_s = time.monotonic()
        for key, _ in ready:
            if key.fileobj is self._wake_read:
                return False
            if key.fileobj is self._listener:
                self._accept(began_s)
            elif (connection := self._connections.get(key.fd)) is not None:
                self._step(connection, began_s)
        for connection in [c for c in self._connections.values() if c.deadline_s <= began_s]:
            self._close(connection)
        if self._accept_again_s and began_s >= self._accept_again_s:
            self._accept_again_s = 0.0
            self._selector.register(self._listener, selectors.EVENT_READ)
        if ready:
            time.sleep(min(time.monotonic() - began_s, MAX_REST_S))
        return True

    def _wait_s(self) -> float | None:
        moments = [connection.deadline_s for connection in self._connections.values()]
        if self._accept_again_s:
            moments.append(self._accept_again_s)
        return max(0.0, min(moments) - time.monotonic()) if moments else None

    def _accept(self, now_s: float) -> None:
        try:
            sock, _ = self._listener.accept()
        except BlockingIOError:
            return
        except OSError:
            # Out of descriptors: the pending connection keeps the listener readable, so look away for a while.
            self._selector.unregister(self._listener)
            self._accept_again_s = now_s + _ACCEPT_PAUSE_S
            return
        if len(self._connections) >= MAX_CONNECTIONS:
            # The oldest has had the longest to be done (a dict keeps its order): slow peers lock nobody out.
            self._close(next(iter(self._connections.values())))
        sock.setblocking(False)
        self._connections[sock.fileno()] = _Connection(sock, now_s + PHASE_TIMEOUT_S)
        self._selector.register(sock, selectors.EVENT_READ)

    def _step(self, connection: _Connection, now_s: float) -> None:
        try:
            if connection.response is None:
                self._read(connection, now_s)
            elif connection.sent:
                # What a peer sends beyond its request is read away: closing on it would reset the response.
                if not connection.sock.recv(_READ):
                    self._close(connection)
            else:
                self._send(connection, now_s)
        except BlockingIOError:
            return
        except OSError:
            self._close(connection)

    def _read(self, connection: _Connection, now_s: float) -> None:
        data = connection.sock.recv(_READ)
        if not data:
            self._close(connection)
            return
        head = connection.head
        head += data
        end = _end_of_head(head)
        if end is None and len(head) <= MAX_HEAD:
            return
        if end is None or end > MAX_HEAD:
            answer = failure(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "request head too long", {"allowed": f"{MAX_HEAD} bytes"}
            )
        else:
            answer = self._pages.respond(bytes(head[:end]))
        head.clear()
        connection.response = memoryview(answer)
        connection.deadline_s = now_s + PHASE_TIMEOUT_S
        self._selector.modify(connection.sock, selectors.EVENT_WRITE)

    def _send(self, connection: _Connection, now_s: float) -> None:
        assert connection.response is not None
        connection.response = connection.response[connection.sock.send(connection.response) :]
        if not connection.response:
            connection.sent = True
            connection.deadline_s = now_s + PHASE_TIMEOUT_S
            connection.sock.shutdown(socket.SHUT_WR)
            self._selector.modify(connection.sock, selectors.EVENT_READ)

    def _close(self, connection: _Connection) -> None:
        self._connections.pop(connection.sock.fileno(), None)
        self._selector.unregister(connection.sock)
        connection.sock.close()


def _end_of_head(head: bytearray) -> int | None:
    """Where the empty line ends; a bare LF ends a line as CRLF does (RFC 9112 2.2)."""
    ends = [at + len(mark) for mark in (b"\r\n\r\n", b"\n\n") if (at := head.find(mark)) >= 0]
    return min(ends) if ends else None
