"""What is compared: for each scenario the load, how the guard and Kamailio are set up, and what counts as done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from bench.messages import invite, register


class Done(Enum):
    """What one unit of work is."""

    ANSWERED = "answers at the clients"
    FORWARDED = "requests at the upstream"
    RETURNED = "responses at the clients"
    TAKEN = "datagrams read from the socket"


@dataclass(frozen=True, slots=True)
class Scenario:
    """One pair. message: template by (client port, server port). target: the ratio to reach, None for none."""

    name: str
    title: str
    message: Callable[[int, int], bytes]
    done: Done
    guard: tuple[str, ...]
    kamailio: str
    target: float | None
    note: str = ""


_REFUSE = ("--lc", "1", "--lcps", "1", "--lcdm", "denial_only")
# What LC and LCPS allow at most is less than it can forward: shadow mode lets everything through and decides as ever.
_PASS = ("--lc", "10000", "--lcps", "10000", "--shadow")
_BARE = ("--no-record-route", "--no-path", "--source-header", "")

_K_REFUSE = '    sl_send_reply("503", "Service Unavailable");\n    exit;'
_K_HOPS = '    if (!mf_process_maxfwd_header("10")) {\n        sl_send_reply("483", "Too Many Hops");\n        exit;\n    }\n'
_K_FORWARD = '    forward("127.0.0.1", UPSTREAM);\n    exit;'

SCENARIOS: tuple[Scenario, ...] = (
    Scenario("503", "503, INVITE", invite, Done.ANSWERED, _REFUSE, _K_REFUSE, 1 / 3),
    Scenario(
        "forward",
        "forward, INVITE",
        invite,
        Done.FORWARDED,
        _PASS,
        _K_HOPS + "    record_route();\n" + _K_FORWARD,
        1 / 2,
        "guard as it is by default (two Record-Routes, X-Guard-Source); Kamailio: maxfwd, record_route(), forward()",
    ),
    Scenario(
        "response",
        "response, 200 to INVITE",
        invite,
        Done.RETURNED,
        _PASS,
        _K_HOPS + "    record_route();\n" + _K_FORWARD,
        None,
    ),
    Scenario(
        "drop",
        "silent drop in the process",
        invite,
        Done.TAKEN,
        ("--lc", "1", "--lcps", "1", "--lcdm", "drop_only", "--no-kernel-drop"),
        "    exit;",
        None,
    ),
    Scenario(
        "forward-bare",
        "forward, INVITE, Via only",
        invite,
        Done.FORWARDED,
        (*_PASS, *_BARE),
        _K_HOPS + _K_FORWARD,
        1 / 2,
        "neither side adds more than its Via: guard --no-record-route --source-header ''; Kamailio: maxfwd, forward()",
    ),
    Scenario("503-register", "503, REGISTER", register, Done.ANSWERED, _REFUSE, _K_REFUSE, 1 / 3),
    Scenario(
        "forward-register",
        "forward, REGISTER",
        register,
        Done.FORWARDED,
        _PASS,
        _K_HOPS + "    add_path();\n" + _K_FORWARD,
        1 / 2,
        "guard as it is by default (Path, X-Guard-Source); Kamailio: maxfwd, add_path(), forward()",
    ),
)
