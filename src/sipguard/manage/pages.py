"""What the admin address answers: bytes of one HTTP request in, bytes of the response out. No socket here."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from http import HTTPStatus

from sipguard.guard.ports import StatusSource
from sipguard.manage.metrics import CONTENT_TYPE as METRICS_TYPE
from sipguard.manage.metrics import GuardMetrics

#: Request line and headers together; nothing that is served here needs more.
MAX_HEAD = 8192
METHODS = ("GET", "HEAD")
_JSON = "application/json"
_TEXT = "text/plain; charset=utf-8"


class Pages:
    """The pages of one guard.

    status: its figures at this moment (called in the admin thread; what it returns is not kept). ready: whether it serves.
    An exception in either becomes a 500 and goes no further.
    """

    __slots__ = ("_metrics", "_ready", "_routes", "_status")

    def __init__(self, status: StatusSource, ready: Callable[[], bool]) -> None:
        self._status = status
        self._ready = ready
        self._metrics = GuardMetrics(status)
        self._routes: dict[str, Callable[[], tuple[HTTPStatus, str, bytes]]] = {
            "/healthz": self._healthz,
            "/readyz": self._readyz,
            "/metrics": self._metrics_text,
            "/api/v1/status": self._status_json,
        }

    def respond(self, head: bytes) -> bytes:
        """The whole response to a request head, which ends with an empty line (RFC 9112 3, 5). Closes the connection."""
        words = head.split(b"\n", 1)[0].rstrip(b"\r").split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1.") or not words[1].startswith(b"/"):
            return failure(HTTPStatus.BAD_REQUEST, "not an HTTP/1 request line")
        method, path = (word.decode("latin-1") for word in words[:2])
        page = self._routes.get(path.partition("?")[0])
        if page is None:
            return failure(HTTPStatus.NOT_FOUND, "no such page", {"allowed": sorted(self._routes)})
        if method not in METHODS:
            return failure(
                HTTPStatus.METHOD_NOT_ALLOWED, "this method is not for this page", {"allowed": list(METHODS)}
            )
        try:
            status, content_type, body = page()
        except Exception as error:  # the guard goes on whatever its pages meet
            return failure(HTTPStatus.INTERNAL_SERVER_ERROR, type(error).__name__)
        return _response(status, content_type, body, with_body=method != "HEAD")

    def _healthz(self) -> tuple[HTTPStatus, str, bytes]:
        return HTTPStatus.OK, _TEXT, b"ok\n"

    def _readyz(self) -> tuple[HTTPStatus, str, bytes]:
        if self._ready():
            return HTTPStatus.OK, _TEXT, b"ready\n"
        return HTTPStatus.SERVICE_UNAVAILABLE, _TEXT, b"not ready\n"

    def _metrics_text(self) -> tuple[HTTPStatus, str, bytes]:
        return HTTPStatus.OK, METRICS_TYPE, self._metrics.text()

    def _status_json(self) -> tuple[HTTPStatus, str, bytes]:
        return HTTPStatus.OK, _JSON, json.dumps(self._status(), default=str).encode() + b"\n"


def failure(status: HTTPStatus, error: str, more: Mapping[str, object] | None = None) -> bytes:
    """A response that says in JSON what is wrong and, in `allowed`, what would be right."""
    body = json.dumps({"error": error, **(more or {})}).encode() + b"\n"
    extra = f"Allow: {', '.join(METHODS)}\r\n" if status is HTTPStatus.METHOD_NOT_ALLOWED else ""
    return _response(status, _JSON, body, extra=extra)


def _response(status: HTTPStatus, content_type: str, body: bytes, *, with_body: bool = True, extra: str = "") -> bytes:
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\n"
        f"Content-Type: {content_type}\r\n"
        f"Content-Length: {len(body)}\r\n"
        f"{extra}"
        "Cache-Control: no-store\r\n"
        "X-Content-Type-Options: nosniff\r\n"
        "Connection: close\r\n"
        "\r\n"
    )
    return head.encode("latin-1") + (body if with_body else b"")
