"""A guard with both sides around it, driven with integer times: the addresses are documentation ones (RFC 5737, RFC 3849)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sipguard.core.controller import OverloadController
from sipguard.core.levels import State
from sipguard.core.parameters import Parameters
from sipguard.core.policy import Policy
from sipguard.guard.checks import CheckChain
from sipguard.guard.flows import Flow, Listener, Send, SocketAddress, Transport, Upstream
from sipguard.guard.guard import Guard
from sipguard.guard.keys import Key, Keyring
from sipguard.guard.ports import PlaneReading
from sipguard.guard.settings import GuardSettings
from tests.guard import messages

MS = 10**6
SECOND = 10**9

SECRET = bytes(range(32))
OTHER_SECRET = bytes(range(100, 132))

CLIENT = "198.51.100.7"
CLIENT6 = "2001:db8:c::7"
SERVER = "10.0.0.10"
SERVER6 = "2001:db8:5::10"

#: transport, host, port, weight.
Server = tuple[Transport, str, int, int]

N, A, C = State.NORMAL, State.AROUND, State.CRITICAL


def address(host: str, port: int) -> SocketAddress:
    """As the socket module gives it."""
    return (host, port, 0, 0) if ":" in host else (host, port)


def parameters(**given: Any) -> Parameters:
    """LC 100 at TR 100 (11 requests in a window are over, 10 equal, 9 below), LRC 3, PC 4; LCPS out of the way."""
    return Parameters(**{"LC": 100, "LCDM": "denial_to_drop", "LCPS": 10000, "LRC": 3, "PC": 4, "TR": 100, **given})


class Rig:
    """One guard. Outside: udp and tcp on 192.0.2.1 and [2001:db8:1::1], 5060; inside: 10.0.0.1 and [2001:db8:5::1], 5070."""

    def __init__(
        self,
        *,
        policy: Policy | None = None,
        keyring: Keyring | None = None,
        checks: CheckChain | None = None,
        outside_host: str = "192.0.2.1",
        advertise: bytes | None = None,
        servers: tuple[Server, ...] = (("udp", SERVER, 5080, 1), ("tcp", SERVER, 5080, 1)),
        law: dict[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        self.udp = Listener(0, "udp", outside_host, 5060, advertise=advertise)
        self.tcp = Listener(1, "tcp", outside_host, 5060, advertise=advertise)
        self.udp6 = Listener(2, "udp", "2001:db8:1::1", 5060)
        self.tcp6 = Listener(3, "tcp", "2001:db8:1::1", 5060)
        self.inside_udp = Listener(4, "udp", "10.0.0.1", 5070, inside=True)
        self.inside_tcp = Listener(5, "tcp", "10.0.0.1", 5070, inside=True)
        self.inside_udp6 = Listener(6, "udp", "2001:db8:5::1", 5070, inside=True)
        self.servers = tuple(self._server(number, *server) for number, server in enumerate(servers, start=1))
        listeners = (
            self.udp, self.tcp, self.udp6, self.tcp6, self.inside_udp, self.inside_tcp, self.inside_udp6,
        )  # fmt: skip
        self.settings = GuardSettings(listeners=listeners, upstreams=self.servers, **settings)
        self.guard = Guard(
            OverloadController(parameters(**(law or {})), policy),
            self.settings,
            keyring or Keyring(Key(SECRET)),
            checks,
        )
        self.counters = self.guard.counters
        self.controller = self.guard.controller
        self.now_ns = 0

    def _server(self, number: int, transport: Transport, host: str, port: int, weight: int) -> Upstream:
        if ":" in host:
            listener = self.inside_udp6
        else:
            listener = self.inside_udp if transport == "udp" else self.inside_tcp
        flow = Flow(listener, address(host, port))
        return Upstream(number.to_bytes(2), transport, host, port, weight, flow)

    def restarted(self, keyring: Keyring) -> Guard:
        """A new guard on the same sockets."""
        return Guard(OverloadController(self.controller.parameters), self.settings, keyring)

    def reconfigured(self, **changes: Any) -> Guard:
        """A new guard on the same sockets, with other settings and the same key."""
        return Guard(
            OverloadController(self.controller.parameters), replace(self.settings, **changes), Keyring(Key(SECRET))
        )

    # -- flows -----------------------------------------------------------------------------------------------------

    def client(self, host: str = CLIENT, port: int = 5062, transport: str = "udp", *, local: str = "") -> Flow:
        """A client's flow; on TCP its connection's number is its port."""
        listener = {
            ("udp", False): self.udp,
            ("tcp", False): self.tcp,
            ("udp", True): self.udp6,
            ("tcp", True): self.tcp6,
        }[transport, ":" in host]
        return Flow(listener, address(host, port), port if transport == "tcp" else 0, local)

    def server(self, number: int = 0, *, port: int | None = None, stream: int = 0) -> Flow:
        """A server's flow as it sends; port: another than it listens on (a connection it made)."""
        flow = self.servers[number].flow
        return flow._replace(
            remote=address(self.servers[number].host, port or self.servers[number].port), stream=stream
        )

    # -- what happens ----------------------------------------------------------------------------------------------

    def receive(self, data: bytes, flow: Flow | None = None) -> Send | None:
        """A message now; without a flow from the usual UDP client."""
        return self.guard.receive(data, flow or self.client(), self.now_ns)

    def sent(self, data: bytes, flow: Flow | None = None) -> Send:
        """As `receive`, where something must be sent."""
        action = self.receive(data, flow)
        assert action is not None, (data, self.counters.outcomes, self.counters.discards)
        return action

    def forwarded(self, data: bytes, flow: Flow | None = None) -> Send:
        """As `sent`, where a request must go on."""
        action = self.sent(data, flow)
        assert messages.status_of(action.data) == 0, action.data
        return action

    def answered(self, data: bytes, flow: Flow | None = None) -> Send:
        """As `sent`, where the guard must answer itself."""
        action = self.sent(data, flow)
        assert messages.status_of(action.data) > 0, action.data
        return action

    def tick(self, *readings: PlaneReading) -> State:
        """The end of the open window; the state after it."""
        self.now_ns = self.guard.next_deadline()
        self.guard.tick(self.now_ns, readings)
        return self.controller.state

    def overload(self, n: int = 11, method: str = "OPTIONS") -> State:
        """A window over LC, and its end; each request is a transaction of its own."""
        for k in range(n):
            name = f"load{k}-{self.now_ns}"
            self.receive(messages.request(method, branch=f"z9hG4bK{name}", call_id=name))
        return self.tick()

    def into(self, state: State) -> Rig:
        """Overload until that state, by its own rules."""
        for _ in range(20):
            if self.controller.state is state:
                return self
            self.overload()
        raise AssertionError(f"{state} not reached: {self.controller!r}")


def total(tally: dict[str, int]) -> int:
    """All of a tally."""
    return sum(tally.values())


def judged(guard: Guard) -> int:
    """allow + reject + drop, kernel drops included: what must equal the requests."""
    controller = guard.controller
    return controller.allowed + controller.rejected + controller.dropped + guard.counters.kernel_dropped
