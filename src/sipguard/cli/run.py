"""`sipguard run`: the guard itself."""

from __future__ import annotations

from typing import Annotated

import typer

from sipguard.cli import options
from sipguard.manage.config import load_settings

SOCKETS = "Sockets"
ANSWERS = "Answers and headers"
STREAMS = "Streams"
HOST = "Host"

EXAMPLE = (
    "Example: sipguard run --listen udp:192.0.2.1:5060 --listen tcp:192.0.2.1:5060 --upstream udp:192.0.2.10:5060 "
    "--upstream tcp:192.0.2.10:5060 --admin 127.0.0.1:8060 --lc 100 --lcps 50"
)


def register(app: typer.Typer) -> None:
    """Make it a command of `app`."""
    app.command("run", epilog=EXAMPLE)(run)


def run(  # one argument a key
    config: options.Config = None,
    listen: Annotated[
        list[str] | None,
        typer.Option(
            help="Where clients come in: udp|tcp:IP:PORT, then ,advertise=IP or IP:PORT where Via and Record-Route should "
            "name another address. Repeat it. (default: udp:127.0.0.1:5060 and tcp:127.0.0.1:5060)",
            metavar="ENDPOINT",
            rich_help_panel=SOCKETS,
        ),
    ] = None,
    upstream: Annotated[
        list[str] | None,
        typer.Option(
            help="A protected server: udp|tcp:IP:PORT, then ,weight=1 … 1000. Repeat it. Without one the guard answers by "
            "itself.",
            metavar="SERVER",
            rich_help_panel=SOCKETS,
        ),
    ] = None,
    inside: Annotated[
        list[str] | None,
        typer.Option(
            help="The socket toward the servers, as --listen. (default: a free port on the right address)",
            metavar="ENDPOINT",
            rich_help_panel=SOCKETS,
        ),
    ] = None,
    admin: Annotated[
        str | None,
        typer.Option(
            help="IP:PORT of /healthz, /readyz, /metrics, /api/v1/status. (default: not served)",
            metavar="ADDRESS",
            rich_help_panel=SOCKETS,
        ),
    ] = None,
    lc: options.Lc = None,
    lcdm: options.Lcdm = None,
    lcps: options.Lcps = None,
    lrc: options.Lrc = None,
    pc: options.Pc = None,
    tr: options.Tr = None,
    shed: options.Shed = None,
    shadow: options.Shadow = None,
    refuse_methods: options.RefuseMethods = None,
    drop_methods: options.DropMethods = None,
    transactions: Annotated[
        str | None,
        typer.Option(
            help="A retransmission is judged by the state it meets, or gets its first copy's verdict. (default: per_request)",
            metavar="per_request|one_verdict",
            rich_help_panel=options.LAW,
        ),
    ] = None,
    exempt_uris: Annotated[
        list[str] | None,
        typer.Option(
            help="A Request-URI prefix that is always passed, as urn:service:sos. Repeat it. (default: none)",
            metavar="PREFIX",
            rich_help_panel=options.LAW,
        ),
    ] = None,
    server: Annotated[
        str | None,
        typer.Option(
            help='Server header of the guard\'s own answers; "" leaves it out. (default: sipguard)',
            rich_help_panel=ANSWERS,
        ),
    ] = None,
    source_header: Annotated[
        str | None,
        typer.Option(
            help='Header that tells the server the client\'s address; "" leaves it out. (default: X-Guard-Source)',
            rich_help_panel=ANSWERS,
        ),
    ] = None,
    record_route: Annotated[
        bool | None,
        typer.Option(
            "--record-route/--no-record-route",
            help="Stay on the path of dialogs. (default: on)",
            rich_help_panel=ANSWERS,
        ),
    ] = None,
    path: Annotated[
        bool | None,
        typer.Option("--path/--no-path", help="Path on REGISTER, RFC 3327. (default: on)", rich_help_panel=ANSWERS),
    ] = None,
    retry_after: Annotated[
        str | None,
        typer.Option(
            help='Retry-After of a 503, seconds, drawn from a range; "" sends none. (default: 10-30)',
            metavar="LOW-HIGH",
            rich_help_panel=ANSWERS,
        ),
    ] = None,
    retry_after_methods: Annotated[
        list[str] | None,
        typer.Option(
            help="Methods whose 503 carries it, with commas. (default: REGISTER,SUBSCRIBE)",
            metavar="METHODS",
            rich_help_panel=ANSWERS,
        ),
    ] = None,
    reply_budget: Annotated[
        bool | None,
        typer.Option(
            "--reply-budget/--no-reply-budget",
            help="Bytes of 503 per window at most the bytes received in it. (default: off)",
            rich_help_panel=ANSWERS,
        ),
    ] = None,
    stream_drop: Annotated[
        str | None,
        typer.Option(
            help="A drop on a stream: read and not answered, or 503. (default: drop)",
            metavar="drop|reject",
            rich_help_panel=STREAMS,
        ),
    ] = None,
    max_connections: Annotated[
        int | None, typer.Option(help="Open connections from outside. (default: 10000)", rich_help_panel=STREAMS)
    ] = None,
    max_body: Annotated[
        int | None, typer.Option(help="Largest body on a stream, bytes. (default: 65536)", rich_help_panel=STREAMS)
    ] = None,
    idle_timeout_s: Annotated[
        float | None,
        typer.Option(help="A silent connection is closed after it. (default: 600)", rich_help_panel=STREAMS),
    ] = None,
    partial_timeout_s: Annotated[
        float | None,
        typer.Option(help="A begun message must be whole within it. (default: 10)", rich_help_panel=STREAMS),
    ] = None,
    kernel_drop: Annotated[
        bool | None,
        typer.Option(
            "--kernel-drop/--no-kernel-drop",
            help="In critical_limit, drop in the kernel (UDP). (default: on)",
            rich_help_panel=HOST,
        ),
    ] = None,
    receive_buffer: Annotated[
        int | None, typer.Option(help="SO_RCVBUF asked for, bytes. (default: 4194304)", rich_help_panel=HOST)
    ] = None,
    state_dir: Annotated[
        str | None,
        typer.Option(
            help="Where the key lies. (default: $STATE_DIRECTORY, else /var/lib/sipguard for root, else "
            "~/.local/state/sipguard)",
            metavar="DIRECTORY",
            rich_help_panel=HOST,
        ),
    ] = None,
    uas_ring_ms: Annotated[
        int | None,
        typer.Option(help="How long the embedded server rings before its 200. (default: 200)", rich_help_panel=HOST),
    ] = None,
) -> None:
    """Stand in front of SIP servers and keep them from overload. Without --upstream, answer by itself."""
    flags: dict[str, object] = dict(locals())
    del flags["config"]
    for key in ("refuse_methods", "drop_methods", "retry_after_methods"):
        flags[key] = options.names(flags[key])  # type: ignore[arg-type]
    for key in ("listen", "upstream", "inside", "exempt_uris"):
        flags[key] = options.items(flags[key])  # type: ignore[arg-type]
    settings = load_settings(config, flags)
    from sipguard.app import serve

    raise typer.Exit(serve(settings))
