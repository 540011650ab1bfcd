"""Kamailio as the protected server: a configuration of our own in the test's directory, a child in the foreground."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from tests.peers.process import Child, PeerError, executable, host_port, wait_until

_GLOBAL = """#!KAMAILIO
debug=0
log_stderror=yes
fork=yes
children={children}
tcp_children={children}
auto_aliases=no
dns=no
rev_dns=no
use_dns_cache=off
dns_try_ipv6=no
tcp_connection_lifetime=600
listen=udp:{address}
listen=tcp:{address}
"""

_READY = """
event_route[core:worker-one-init] {
    xlog("L_ALERT", "WORKER READY\\n");
}
"""

# What the record of a request holds, in the order of Seen's fields (Kamailio's pseudo-variables).
_SEEN_FIELDS = (
    "$TV(Sn)", "$rm", "$ci", "$cs", "$proto;$si;$sp", "$hdrc(X-Guard-Source)", "$hdr(X-Guard-Source)", "$hdrc(Via)",
    "$hdr(Path)", "$hdr(Max-Forwards)", "$tt", "$ru",
)  # fmt: skip

# Stateful: calls go to the callee behind it, all else it answers itself; every request it is given leaves a line.
# A request inside a dialog without a Route of its own is refused: then Record-Route has failed somewhere.
_STATEFUL = """
loadmodule "tm.so"
loadmodule "sl.so"
loadmodule "rr.so"
loadmodule "pv.so"
loadmodule "textops.so"
loadmodule "siputils.so"
loadmodule "maxfwd.so"
loadmodule "xlog.so"
modparam("rr", "append_fromtag", 0)

request_route {{
    xlog("L_ALERT", "SEEN\\t{fields}\\n");
    if (!mf_process_maxfwd_header("10")) {{
        sl_send_reply("483", "Too Many Hops");
        exit;
    }}
    if (is_method("CANCEL")) {{
        if (t_check_trans()) {{ t_relay(); }}
        exit;
    }}
    if (has_totag()) {{
        if (!loose_route()) {{
            # The ACK to a failure is this hop's own: tm takes it by its branch.
            if (is_method("ACK")) {{ t_check_trans(); exit; }}
            sl_send_reply("481", "No Route Of Mine");
            exit;
        }}
        t_relay();
        exit;
    }}
    if (!is_method("INVITE")) {{
        t_newtran();
        t_reply("200", "OK");
        exit;
    }}
    t_check_trans();
    record_route();
    $du = "sip:{callee};transport=udp";
    t_relay();
    exit;
}}
"""

_REFUSE = """
loadmodule "sl.so"
loadmodule "xlog.so"
modparam("sl", "bind_tm", 0)

request_route {{
    sl_send_reply("503", "Service Unavailable");
    exit;
}}
"""

_FORWARD = """
loadmodule "pv.so"
loadmodule "xlog.so"

request_route {{
    $du = "sip:{callee}";
    forward();
    exit;
}}
"""

_DROP = """
loadmodule "xlog.so"
request_route {{
    exit;
}}
"""


class Role(Enum):
    """What Kamailio does; the stateless ones are the benchmark's counterparts of the guard."""

    STATEFUL = _STATEFUL
    REFUSE = _REFUSE
    FORWARD = _FORWARD
    DROP = _DROP


@dataclass(frozen=True, slots=True)
class Seen:
    """A request as it reached Kamailio."""

    wall_s: float
    method: str
    call_id: str
    cseq: int
    source: str  # transport;ip;port it came from
    guard_source_count: int  # how many X-Guard-Source headers
    guard_source: str
    via_count: int
    path: str
    max_forwards: str
    to_tag: str
    request_uri: str


@dataclass(slots=True)
class Kamailio:
    """A running Kamailio, UDP and TCP on one port."""

    host: str
    port: int
    child: Child

    @classmethod
    def start(
        cls,
        directory: Path,
        *,
        port: int,
        role: Role = Role.STATEFUL,
        callee: str = "",
        host: str = "127.0.0.1",
        children: int = 1,
        prefix: Sequence[str] = (),
    ) -> Kamailio:
        """Start it and wait until its first worker runs; `callee` (host:port) is where calls go, `prefix` e.g. a taskset."""
        text = _GLOBAL.format(address=host_port(host, port), children=children) + role.value.format(
            callee=callee, fields="\\t".join(_SEEN_FIELDS)
        )
        configuration = directory / "kamailio.cfg"
        configuration.write_text(text + _READY)
        argv = [*prefix, executable("kamailio"), "-DD", "-E", "-f", str(configuration), "-m", "64", "-M", "8"]
        argv += ["-w", str(directory), "-Y", str(directory)]
        kamailio = cls(host, port, Child.start("kamailio", argv, directory))
        try:
            wait_until(kamailio._is_ready, 10, "Kamailio's first worker")
            if role in (Role.STATEFUL, Role.REFUSE):
                kamailio._await_answer()
        except BaseException:
            kamailio.stop()
            raise
        return kamailio

    @property
    def address(self) -> str:
        return host_port(self.host, self.port)

    def seen(self, *methods: str, call_prefix: str = "") -> list[Seen]:
        """Requests that reached it so far (a stateful one only), in order; of these methods, or all."""
        found = []
        for line in self.child.text().splitlines():
            _, marker, record = line.partition("SEEN\t")
            if not marker:
                continue
            seen = _read_seen(record.split("\t"))
            if (not methods or seen.method in methods) and seen.call_id.startswith(call_prefix):
                found.append(seen)
        return found

    def stop(self) -> int:
        return self.child.stop()

    def _is_ready(self) -> bool:
        if not self.child.running:
            raise PeerError(f"Kamailio ended:\n{self.child.tail()}")
        return "WORKER READY" in self.child.text()

    def _await_answer(self) -> None:
        """Until an OPTIONS over UDP is answered."""
        with socket.socket(socket.AF_INET6 if ":" in self.host else socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind((self.host, 0))
            probe.settimeout(0.25)
            local = host_port(self.host, probe.getsockname()[1])
            for number in range(20):
                probe.sendto(_options(self.address, local, number), (self.host, self.port))
                try:
                    if probe.recv(4096).startswith(b"SIP/2.0 "):
                        return
                except TimeoutError:
                    continue
                except ConnectionError:
                    time.sleep(0.1)
        raise PeerError(f"Kamailio does not answer:\n{self.child.tail()}")


def _options(target: str, local: str, number: int) -> bytes:
    return (
        f"OPTIONS sip:{target} SIP/2.0\r\nVia: SIP/2.0/UDP {local};rport;branch=z9hG4bKready{number}\r\n"
        f"Max-Forwards: 70\r\nFrom: <sip:ready@{local}>;tag=r{number}\r\nTo: <sip:{target}>\r\n"
        f"Call-ID: ready-{number}@{local}\r\nCSeq: {number + 1} OPTIONS\r\nContent-Length: 0\r\n\r\n"
    ).encode()


def _read_seen(fields: list[str]) -> Seen:
    texts = ["" if field == "<null>" else field for field in fields]
    return Seen(
        wall_s=float(texts[0]),
        method=texts[1],
        call_id=texts[2],
        cseq=int(texts[3]),
        source=texts[4],
        guard_source_count=int(texts[5]),
        guard_source=texts[6],
        via_count=int(texts[7]),
        path=texts[8],
        max_forwards=texts[9],
        to_tag=texts[10],
        request_uri=texts[11],
    )
