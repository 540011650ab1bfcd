"""The two servers under load, each a process on a core of its own: the guard and Kamailio, set up for one role."""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.peers.process import Child, PeerError, executable, free_port, wait_until

_READY_S = 15.0

# As quick as it can be made by settings alone: one UDP worker, no debugging, no DNS, no TCP, a short Server header.
_KAMAILIO = """#!KAMAILIO
debug=0
log_stderror=yes
fork=yes
children=1
disable_tcp=yes
auto_aliases=no
dns=no
rev_dns=no
use_dns_cache=off
dns_try_ipv6=no
server_header="Server: kamailio"
listen=udp:127.0.0.1:{port}

loadmodule "sl.so"
loadmodule "rr.so"
loadmodule "path.so"
loadmodule "maxfwd.so"
loadmodule "pv.so"
loadmodule "xlog.so"
modparam("sl", "bind_tm", 0)
modparam("rr", "append_fromtag", 0)

request_route {{
{route}
}}

event_route[core:worker-one-init] {{
    xlog("L_ALERT", "WORKER READY\\n");
}}
"""


@dataclass(frozen=True, slots=True)
class Server:
    """One server on 127.0.0.1."""

    port: int  # UDP
    child: Child
    admin: int = 0  # the guard's HTTP port

    def status(self) -> dict[str, Any]:
        """The guard's /api/v1/status."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/api/v1/status", timeout=5) as answer:
            document: dict[str, Any] = json.load(answer)
        return document

    def stop(self) -> None:
        """End it and what it forked."""
        self.child.stop()


def start_guard(directory: Path, core: int, upstream: int, flags: Sequence[str]) -> Server:
    """`sipguard run` in front of 127.0.0.1:`upstream`, ready. Raises PeerError."""
    port, admin = free_port(), free_port()
    argv = [*_pinned(core), sys.executable, "-m", "sipguard", "run", "--listen", f"udp:127.0.0.1:{port}"]
    argv += ["--upstream", f"udp:127.0.0.1:{upstream}", "--admin", f"127.0.0.1:{admin}", *flags]
    child = Child.start("sipguard", argv, directory, {"STATE_DIRECTORY": str(directory)})
    _await(child, lambda: _answers_ready(admin), "the guard's /readyz")
    return Server(port, child, admin)


def start_kamailio(directory: Path, core: int, upstream: int, route: str, options: Sequence[str] = ()) -> Server:
    """Kamailio with this request_route, `UPSTREAM` in it standing for the port, ready. Raises PeerError."""
    port = free_port()
    configuration = directory / "kamailio.cfg"
    configuration.write_text(_KAMAILIO.format(port=port, route=route.replace("UPSTREAM", str(upstream))))
    argv = [*_pinned(core), executable("kamailio"), "-DD", "-E", "-f", str(configuration), "-m", "64", "-M", "8"]
    argv += ["-w", str(directory), "-Y", str(directory), *options]
    child = Child.start("kamailio", argv, directory)
    _await(child, lambda: "WORKER READY" in child.text(), "Kamailio's worker")
    return Server(port, child)


def _pinned(core: int) -> list[str]:
    return [executable("taskset"), "-c", str(core)]


def _await(child: Child, ready: Callable[[], bool], what: str) -> None:
    def probe() -> bool:
        if not child.running:
            raise PeerError(f"{child.name} ended:\n{child.tail()}")
        return ready()

    try:
        wait_until(probe, _READY_S, what)
    except BaseException:
        child.stop()
        raise


def _answers_ready(admin: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{admin}/readyz", timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False
