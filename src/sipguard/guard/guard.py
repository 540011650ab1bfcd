"""The guard, sans-IO: bytes and time in, actions out. The live edge and the tests drive this same object."""

from __future__ import annotations

from collections.abc import Iterable

from sipguard.core.controller import OverloadController
from sipguard.core.levels import State
from sipguard.core.verdicts import Change, Verdict
from sipguard.guard.answers import Answers
from sipguard.guard.checks import CheckChain
from sipguard.guard.costly import EASY_BYTES, is_costly
from sipguard.guard.counters import Counters
from sipguard.guard.flows import Flow, Send
from sipguard.guard.forwarding import Forwarder
from sipguard.guard.keys import Keyring
from sipguard.guard.meters import ListenerMeter
from sipguard.guard.ports import PlaneReading
from sipguard.guard.refused import RefusedInvites
from sipguard.guard.routing import Routing
from sipguard.guard.sampling import Samples
from sipguard.guard.settings import GuardSettings
from sipguard.guard.tokens import FlowTokens
from sipguard.guard.transactions import Transactions
from sipguard.wire.head import Head, read_head
from sipguard.wire.scan import is_response, request_line, request_method

_ALLOW, _REJECT, _DROP = Verdict.ALLOW, Verdict.REJECT, Verdict.DROP
_NORMAL = State.NORMAL


class Guard:
    """Counts, judges, answers and forwards (DESIGN §3).

    `receive` takes whole messages (datagrams, or framed out of a stream) and never raises on hostile bytes. `tick` must be
    called at `next_deadline()`: receiving never evaluates a cycle.
    """

    __slots__ = (
        "_answers",
        "_budget_in",
        "_budget_out",
        "_checks",
        "_enforce",
        "_exempt",
        "_forwarder",
        "_kernel_drop",
        "_meters",
        "_refused",
        "_samples",
        "_settings",
        "_shadowed",
        "_shed_methods",
        "_source_header",
        "_upstream_hosts",
        "controller",
        "counters",
        "kernel_filters",
        "transactions",
    )

    def __init__(
        self,
        controller: OverloadController,
        settings: GuardSettings,
        keyring: Keyring,
        checks: CheckChain | None = None,
    ) -> None:
        self.controller = controller
        self.counters = Counters()
        self._settings = settings
        self._checks = checks or CheckChain()
        self._exempt = tuple(prefix.lower().encode() for prefix in settings.exempt_uris)
        self._source_header = settings.source_header.lower()
        self._refused = RefusedInvites()
        self._samples = Samples(controller.policy.drop_methods)
        self._meters = {listener.id: ListenerMeter() for listener in settings.listeners}
        tokens = FlowTokens(keyring, settings.listeners)
        routing = Routing(settings.listeners, settings.upstreams, tokens)
        self._answers = Answers(settings, keyring, self._refused)
        self._forwarder = Forwarder(settings, keyring, tokens, routing, self._answers, self.counters)
        policy = controller.policy
        self._enforce = policy.enforce
        #: Only what may be shed in some state has a verdict worth remembering.
        self._shed_methods = policy.refuse_methods | policy.drop_methods
        self.transactions = Transactions(keyring.current) if settings.one_verdict else None
        # The kernel cannot tell a copy from a new request.
        self._kernel_drop = settings.kernel_drop and policy.enforce and not settings.one_verdict
        #: Set by the edge: the kernel filter is on, so what is dropped here are its samples.
        self.kernel_filters = False
        self._budget_in = self._budget_out = 0
        self._shadowed = (0, 0)
        self._upstream_hosts = frozenset(upstream.host for upstream in settings.upstreams)

    def __repr__(self) -> str:
        return f"<Guard {self.controller!r}>"

    # -- time ------------------------------------------------------------------------------------------------------

    def next_deadline(self) -> int:
        """When `tick` is due, ns."""
        return self.controller.next_deadline_ns

    def tick(self, now_ns: int, readings: Iterable[PlaneReading] = ()) -> list[Change]:
        """The end of a window: what the kernel dropped is counted into it, then the level is evaluated.

        Returns the changes of state since the last tick; the cycles stay with the controller for `advance`.
        """
        self._count_readings(readings, now_ns)
        for meter in self._meters.values():
            meter.clear()
        self.controller.advance_to(now_ns)
        self._refused.forget_old(now_ns)
        self._budget_in = self._budget_out = 0
        return self.controller.changes()

    @property
    def drops_in_kernel(self) -> bool:
        """Whether the kernel filter should be on now: enforced, critical_limit, nothing more to serve in this window."""
        return self._kernel_drop and self.controller.sheds_all

    @property
    def exempt_uris(self) -> tuple[str, ...]:
        """Request-URI prefixes that always pass; the kernel filter must pass them too."""
        return self._settings.exempt_uris

    def is_inside_host(self, host: str) -> bool:
        """Whether a host has business on an inside socket: the upstreams' hosts do."""
        return host in self._upstream_hosts

    def _count_readings(self, readings: Iterable[PlaneReading], now_ns: int) -> None:
        filtered = lost = 0
        for reading in readings:
            filtered += reading.filtered
            if reading.overflowed:
                lost += self._meters[reading.listener.id].requests_among(reading.overflowed)
        counters = self.counters
        counters.overflowed += lost
        counters.kernel_dropped += filtered
        # Once for all listeners: the samples are those of the cycle, wherever they came in.
        for method, n in self._samples.share(filtered, counters.requests).items():
            counters.count_method(method, n)
        if filtered or lost:
            self.controller.count(filtered + lost, now_ns=now_ns)

    # -- messages --------------------------------------------------------------------------------------------------

    def receive(self, data: bytes, flow: Flow, now_ns: int) -> Send | None:
        """One message from one flow: the action it leads to, None for none (dropped, absorbed, not SIP)."""
        if flow.listener.inside:
            return self._receive_inside(data, flow, now_ns)
        meter = self._meters[flow.listener.id]
        meter.datagrams += 1
        method = request_method(data)
        if method is None:
            return self._receive_no_request(data, flow, now_ns)
        costly = len(data) > EASY_BYTES and is_costly(data)
        head = None
        if method == "ACK" and not costly:
            head = read_head(data, self._source_header)
            if self._answers.is_own_ack(head, now_ns):
                self.counters.absorbed += 1
                return None
        meter.requests += 1
        self.counters.count_method(method)
        name = first = None
        if self.transactions is not None and not costly and method in self._shed_methods:
            head = head or read_head(data, self._source_header)
            name = self.transactions.name_of(head, method)
            first = self.transactions.repeated(name, now_ns)
        exempt = bool(self._exempt) and self._is_exempt(data)
        verdict = law = self.controller.judge(method, now_ns=now_ns, sheddable=not exempt, first=first)
        if not self._enforce:
            law = self._unenforced()
        if name is not None and first is None:
            assert self.transactions is not None
            self.transactions.remember(name, law, now_ns)
        if verdict is _DROP:
            return self._drop(data, method, flow, now_ns)
        if costly:
            self.counters.outcomes.add("too-complex")
            return None
        self._budget_in += len(data)
        if verdict is _REJECT:
            if first is None and self.controller.state is _NORMAL:
                self.counters.lcps_refused += 1
            return self._within_budget(
                self._answers.refuse_plain(data, method, flow)
                or self._answers.answer(head or read_head(data, self._source_header), 503, flow, now_ns)
            )
        head = head or read_head(data, self._source_header)
        if self._checks:
            found = self._check(head, flow, now_ns, law)
            if found is not _ALLOW:
                return self._refuse(head, flow, now_ns) if found is _REJECT else None
        return self._forwarder.inward(head, flow, now_ns)

    def _unenforced(self) -> Verdict:
        """Shadow mode: what the law said of the request just judged; the controller's counters tell it (SPEC X2)."""
        controller = self.controller
        rejected, dropped = self._shadowed
        self._shadowed = (controller.shadow_rejected, controller.shadow_dropped)
        if controller.shadow_rejected != rejected:
            return _REJECT
        return _DROP if controller.shadow_dropped != dropped else _ALLOW

    def _drop(self, data: bytes, method: str, flow: Flow, now_ns: int) -> Send | None:
        """Silence (SPEC V2); 503 on a stream where the operator chose it."""
        if flow.listener.transport == "udp":
            if self.kernel_filters:
                self._samples.add(method)
                self.counters.kernel_sampled += 1
            return None
        if self._settings.stream_drop != "reject":
            return None
        self._budget_in += len(data)
        self.counters.outcomes.add("stream-drop-refused")
        return self._refuse(read_head(data, self._source_header), flow, now_ns)

    def _check(self, head: Head, flow: Flow, now_ns: int, law: Verdict) -> Verdict:
        """What the chain says of a request that the law lets through (SPEC V5).

        In shadow mode the law lets everything through: what it would have refused reaches no check, and what a check would
        end is counted and goes on (SPEC X2).
        """
        if law is not _ALLOW:
            return _ALLOW
        found = self._checks.judge(head, flow, now_ns)
        if found is None:
            return _ALLOW
        self.counters.checks.add(found[0])
        return found[1] if self._enforce else _ALLOW

    def broken(self, data: bytes, reason: str, flow: Flow, now_ns: int) -> Send | None:
        """A stream that lost its framing (RFC 3261 18.3): a 400 where one can be built; the edge then closes."""
        self.counters.discards.add(reason)
        if request_method(data) is None:
            return None
        return self._answers.answer(read_head(data), 400, flow, now_ns)

    def undeliverable(self, action: Send, now_ns: int) -> Send | None:
        """A request that could not be sent on a stream: the 503 its sender gets in the upstream's stead."""
        origin = self._forwarder.origin_of(action.data, now_ns)
        if origin is None:
            return None
        self.counters.outcomes.add("unreachable")
        return self._answers.answer(origin[0], 503, origin[1], now_ns)

    def _receive_inside(self, data: bytes, flow: Flow, now_ns: int) -> Send | None:
        """From the protected servers: not counted, never refused.

        A request from a host that is no upstream goes nowhere: an inside port that strangers reach is no open relay.
        """
        if len(data) > EASY_BYTES and is_costly(data):
            self.counters.discards.add("inside-too-complex")
            return None
        if is_response(data):
            self.counters.responses_inside += 1
            return self._forwarder.response(data, flow, now_ns)
        if request_method(data) is not None:
            if flow.remote[0] not in self._upstream_hosts:
                self.counters.discards.add("inside-stranger")
                return None
            head = read_head(data, self._source_header)
            if head.method == "ACK" and self._answers.is_own_ack(head, now_ns):
                self.counters.absorbed += 1
                return None
            self.counters.outcomes.add("from-inside")
            return self._forwarder.outward(head, flow, now_ns)
        return self._discard(data, inside=True)

    def _receive_no_request(self, data: bytes, flow: Flow, now_ns: int) -> Send | None:
        if len(data) > EASY_BYTES and is_costly(data):
            self.counters.discards.add("too-complex")
            return None
        if is_response(data):
            self.counters.responses_outside += 1
            return self._forwarder.response(data, flow, now_ns)
        return self._discard(data, inside=False)

    def _discard(self, data: bytes, *, inside: bool) -> Send | None:
        """Not SIP: never counted as a request, never answered."""
        self.counters.discards.add(("inside-" if inside else "") + _kind_of(data))
        return None

    def _refuse(self, head: Head, flow: Flow, now_ns: int) -> Send | None:
        return self._within_budget(self._answers.answer(head, 503, flow, now_ns))

    def _within_budget(self, answer: Send | None) -> Send | None:
        """A 503, unless none could be built or the reply budget is spent; both are counted."""
        if answer is None:
            self.counters.outcomes.add("unanswerable")
            return None
        if self._settings.reply_budget:
            if self._budget_out + len(answer.data) > self._budget_in:
                self.counters.outcomes.add("reply-suppressed")
                return None
            self._budget_out += len(answer.data)
        return answer

    def _is_exempt(self, data: bytes) -> bool:
        line = request_line(data)
        return line is not None and line[1].lower().startswith(self._exempt)


def _kind_of(data: bytes) -> str:
    """A short name for what is not SIP: a closed set."""
    if not data:
        return "empty"
    if not data.strip(b"\r\n\0 "):
        return "keep-alive"
    # RFC 5389 6: the two top bits are 0, and the magic cookie.
    if data[0] < 4 and data[4:8] == b"\x21\x12\xa4\x42":
        return "stun"
    return "not-sip"
