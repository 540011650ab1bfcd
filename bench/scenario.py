"""What is compared: for each scenario the load, how the guard and Kamailio are set up, and what counts as done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
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


# The shortest window gives the most evaluations; the calm between two loads must not relax the level.
_LAW = ("--tr", "100", "--lrc", "100")
_REFUSE = (*_LAW, "--lc", "1", "--lcps", "1", "--lcdm", "denial_only")
_NORMAL = (*_LAW, "--lc", "10000", "--lcps", "10000")
# What LC and LCPS allow at most is less than it can forward: shadow mode lets everything through and decides as ever.
_PASS = (*_NORMAL, "--shadow")
_BARE = ("--no-record-route", "--no-path", "--source-header", "")

_K_REFUSE = '    sl_send_reply("503", "Service Unavailable");\n    exit;'
_K_HOPS = (
    '    if (!mf_process_maxfwd_header("10")) {\n        sl_send_reply("483", "Too Many Hops");\n        exit;\n    }\n'
)
_K_FORWARD = '    forward("127.0.0.1", UPSTREAM);\n    exit;'

_K_RECORD = _K_HOPS + "    record_route();\n"

_INVITE_503 = Scenario("503", "503, INVITE", invite, Done.ANSWERED, _REFUSE, _K_REFUSE, 1 / 3)
_INVITE_FORWARD = Scenario(
    "forward",
    "forward, INVITE",
    invite,
    Done.FORWARDED,
    _PASS,
    _K_RECORD + _K_FORWARD,
    1 / 2,
    "guard by default (two Record-Routes, X-Guard-Source), in shadow mode; Kamailio: maxfwd, record_route(), forward()",
)

#: At saturation, in the order of what matters most.
SCENARIOS: tuple[Scenario, ...] = (
    _INVITE_503,
    _INVITE_FORWARD,
    Scenario("response", "response, 200 to INVITE", invite, Done.RETURNED, _PASS, _K_RECORD + _K_FORWARD, None),
    Scenario(
        "drop",
        "silent drop in the process",
        invite,
        Done.TAKEN,
        (*_LAW, "--lc", "1", "--lcps", "1", "--lcdm", "drop_only", "--no-kernel-drop"),
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
        "neither adds more than its Via: guard --no-record-route --source-header '' --shadow; Kamailio: maxfwd, forward()",
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
        "guard by default (Path, X-Guard-Source), in shadow mode; Kamailio: maxfwd, add_path(), forward()",
    ),
)

#: At steady rates: the guard is not in shadow mode, the rates are below LC.
PACED: tuple[Scenario, ...] = (_INVITE_503, replace(_INVITE_FORWARD, guard=_NORMAL))


def kernel_drop(lc: int) -> Scenario:
    """The guard alone, dropping in the kernel what is above LC (requests/s)."""
    flags = (*_LAW, "--lc", str(lc), "--lcps", "10000", "--lcdm", "drop_only")
    return Scenario("kernel", "silent drop by the kernel", invite, Done.TAKEN, flags, "", None)
