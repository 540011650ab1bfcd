"""The settings of one guard: every key, its type, its default and what is allowed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictBool, StrictInt

from sipguard.core.parameters import Parameters
from sipguard.core.policy import Policy
from sipguard.manage.endpoints import ADMIN_FORM, LISTEN_FORM, UPSTREAM_FORM, AdminAddress, Endpoint, UpstreamAddress
from sipguard.manage.headers import (
    SERVER_FORM,
    SOURCE_HEADER_FORM,
    server_value,
    source_header_name,
    uri_prefix,
)
from sipguard.manage.headers import method_name as _method_name

StreamDrop = Literal["drop", "reject"]
TransactionMode = Literal["per_request", "one_verdict"]

MAX_RETRY_AFTER_S = 3600
RETRY_AFTER_FORM = f'seconds, 1 … {MAX_RETRY_AFTER_S}, as "10-30" or "15"; "" sends none'
METHODS_FORM = "a list of SIP method names"
BOOL_FORM = "true or false"


@dataclass(frozen=True, slots=True)
class Allowed:
    """What a key takes, in words; kept beside its type, for the error messages and the papers."""

    words: str


class RetryAfter(NamedTuple):
    """The range a Retry-After is drawn from, in seconds, both ends included (RFC 3261 20.33; never 0)."""

    low_s: int
    high_s: int

    def __str__(self) -> str:
        return f"{self.low_s}-{self.high_s}"


def parse_retry_after(value: object) -> RetryAfter | None:
    """From RETRY_AFTER_FORM. Raises ValueError."""
    if value == "" or value is None:
        return None
    if isinstance(value, RetryAfter):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise ValueError(RETRY_AFTER_FORM)
    ends = value.split("-")
    if len(ends) > 2 or not all(end.isascii() and end.isdigit() and len(end) <= 5 for end in ends):
        raise ValueError(RETRY_AFTER_FORM)
    low_s, high_s = int(ends[0]), int(ends[-1])
    if not 1 <= low_s <= high_s <= MAX_RETRY_AFTER_S:
        raise ValueError(RETRY_AFTER_FORM)
    return RetryAfter(low_s, high_s)


def _endpoint(value: object) -> Endpoint:
    return value if isinstance(value, Endpoint) else Endpoint.parse(value)


def _upstream(value: object) -> UpstreamAddress:
    return value if isinstance(value, UpstreamAddress) else UpstreamAddress.parse(value)


def _admin(value: object) -> AdminAddress | None:
    return value if value is None or isinstance(value, AdminAddress) else AdminAddress.parse(value)


def _path(value: object) -> Path | None:
    if value is None or isinstance(value, Path):
        return value
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError("a directory")
    return Path(value).expanduser()


Endpoints = tuple[Annotated[Endpoint, BeforeValidator(_endpoint)], ...]
Upstreams = tuple[Annotated[UpstreamAddress, BeforeValidator(_upstream)], ...]
Methods = tuple[Annotated[str, BeforeValidator(_method_name)], ...]
Switch = Annotated[StrictBool, Allowed(BOOL_FORM)]


def _integer(low: int, high: int, unit: str) -> Any:
    return Field(ge=low, le=high), Allowed(f"an integer {low} … {high} ({unit})")


class Settings(BaseModel):
    """One guard's settings, checked; immutable. Made by `manage.config.load_settings`, which names every problem.

    The keys of a TOML file are these names, but for `parameters` and `policy`, which are flat there: lc, lcdm, lcps,
    lrc, pc, tr, and shed, shadow, refuse_methods, drop_methods.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    parameters: Parameters = Parameters()
    """LC, LCDM, LCPS, LRC, PC, TR (SPEC §1)."""
    policy: Policy = Policy()
    """shed, shadow (enforce = not shadow), refuse_methods, drop_methods (SPEC §7, V1)."""

    listen: Annotated[Endpoints, Field(min_length=1), Allowed(f"a list of at least one {LISTEN_FORM}")] = (
        Endpoint("udp", "127.0.0.1", 5060),
        Endpoint("tcp", "127.0.0.1", 5060),
    )
    """Outside: where clients come in."""
    upstream: Annotated[Upstreams, Allowed(f"a list of {UPSTREAM_FORM}")] = ()
    """The protected servers. None: the guard answers by itself (embedded UAS)."""
    inside: Annotated[Endpoints, Allowed(f"a list of {LISTEN_FORM}")] = ()
    """Sockets toward the upstreams. None: free ports on the right addresses."""
    admin: Annotated[AdminAddress | None, BeforeValidator(_admin), Allowed(ADMIN_FORM)] = None
    """/healthz, /readyz, /metrics, /api/v1/status. None: not served."""

    transactions: Annotated[TransactionMode, Allowed("per_request or one_verdict")] = "per_request"
    """Each copy of a request judged by the state it meets, or all by the first one's verdict (SPEC X3)."""
    exempt_uris: Annotated[
        tuple[Annotated[str, BeforeValidator(uri_prefix)], ...], Allowed("a list of Request-URI prefixes")
    ] = ()
    """Request-URI prefixes that are always passed; still counted (DESIGN §3)."""
    server: Annotated[str, BeforeValidator(server_value), Allowed(SERVER_FORM)] = "sipguard"
    """The Server header of the guard's own answers; "" leaves it out."""
    source_header: Annotated[str, BeforeValidator(source_header_name), Allowed(SOURCE_HEADER_FORM)] = "X-Guard-Source"
    """Tells the upstream `ip;port;transport` of the client; stripped from outside. "" leaves it out."""
    record_route: Switch = True
    """Record-Route on dialog-forming requests (RFC 3261 16.6)."""
    path: Switch = True
    """Path on REGISTER (RFC 3327)."""

    retry_after: Annotated[RetryAfter | None, BeforeValidator(parse_retry_after), Allowed(RETRY_AFTER_FORM)] = (
        RetryAfter(10, 30)
    )
    """Retry-After on 503, from the range by a keyed hash: each client its own, each copy the same (RFC 7339 5.10.2)."""
    retry_after_methods: Annotated[Methods, Allowed(METHODS_FORM)] = ("REGISTER", "SUBSCRIBE")
    """The methods whose 503 carries it, and only with exactly one Via."""
    reply_budget: Switch = False
    """Bytes of 503 per window ≤ bytes received in it; the rest silent, counted as suppressed."""
    kernel_drop: Switch = True
    """In critical_limit, drop in the kernel (UDP, Linux)."""
    receive_buffer: Annotated[StrictInt, *_integer(4096, 1 << 30, "bytes")] = 4_194_304
    """SO_RCVBUF asked for on each UDP socket."""
    stream_drop: Annotated[StreamDrop, Allowed("drop or reject")] = "drop"
    """What a drop is on a stream: read and not answered, or 503."""
    max_connections: Annotated[StrictInt, *_integer(1, 1_000_000, "connections")] = 10_000
    """Open stream connections from outside, all listeners together; and no more than the descriptors allow."""
    max_body: Annotated[StrictInt, *_integer(0, 1 << 24, "bytes")] = 65_536
    """The largest body on a stream; more is 400 and close."""
    idle_timeout_s: Annotated[
        float, Field(strict=True, ge=1, le=86_400, allow_inf_nan=False), Allowed("seconds, 1 … 86400")
    ] = 600.0
    """A connection on which nothing comes for so long is closed."""
    partial_timeout_s: Annotated[
        float, Field(strict=True, ge=0.1, le=3600, allow_inf_nan=False), Allowed("seconds, 0.1 … 3600")
    ] = 10.0
    """A message that has begun on a stream must be whole within it, and a new connection must say something."""
    state_dir: Annotated[Path | None, BeforeValidator(_path), Allowed("a directory")] = None
    """Where the key lies; None: see `state_path`."""
    uas_ring_ms: Annotated[StrictInt, *_integer(0, 60_000, "ms")] = 200
    """How long the embedded UAS rings before its 200."""

    @property
    def state_path(self) -> Path:
        """state_dir, or where this process may keep state (systemd's StateDirectory=, root, a user)."""
        return self.state_dir or default_state_dir(os.environ, os.geteuid())


def default_state_dir(environ: Mapping[str, str], euid: int) -> Path:
    """$STATE_DIRECTORY (its first path), else /var/lib/sipguard for root, else ~/.local/state/sipguard."""
    given = environ.get("STATE_DIRECTORY", "").split(":")[0]
    if given:
        return Path(given)
    return Path("/var/lib/sipguard") if euid == 0 else Path("~/.local/state/sipguard").expanduser()
