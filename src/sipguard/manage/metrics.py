"""/metrics: the status of the guard as Prometheus metric families (exposition format 0.0.4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from sipguard.core.levels import State

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
#: Values of one label that come out one by one; the rest, which only remote input could make so many, add up as OTHER.
MAX_LABELS = 64
OTHER = "OTHER"

Status = Mapping[str, Any]
Families = Iterator[Metric]


class GuardMetrics(Collector):
    """One guard's figures, read from its status when they are asked for. What a status lacks is left out.

    Its registry is its own: nothing global, and no figures of the Python process among the guard's.
    """

    def __init__(self, status: Callable[[], Status]) -> None:
        self._status = status
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def text(self) -> bytes:
        """The exposition of this moment."""
        return generate_latest(self._registry)

    def describe(self) -> list[Metric]:
        """Nothing ahead: the names are known when the status is."""
        return []

    def collect(self) -> Families:
        """All families of one status."""
        status = self._status()
        for part in (_level, _parameters, _requests, _kernel, _evaluation, _sockets, _process):
            yield from part(status)


# -- the parts of a status ---------------------------------------------------------------------------------------------


def _level(status: Status) -> Families:
    state = status.get("state")
    if state is not None:
        family = GaugeMetricFamily("sipguard_state", "1 for the state in force, 0 for the others.", labels=["state"])
        for known in State:
            family.add_metric([known.value], float(known.value == state))
        yield family
    yield from _gauge(
        "sipguard_rps", "Requests a second in the last evaluated window (scaled by 1000 div TR).", status, "rps"
    )
    yield from _gauge("sipguard_patience_run_cycles", "Cycles above LC in a row, toward PC.", status, "patience_run")
    yield from _gauge("sipguard_relax_run_cycles", "Cycles below LC in a row, toward LRC.", status, "relax_run")


def _parameters(status: Status) -> Families:
    given = _part(status, "parameters")
    yield from _gauge(
        "sipguard_level_critical", "LC: the rate above which the guard sheds, requests a second.", given, "LC"
    )
    yield from _gauge(
        "sipguard_limit_critical_per_second", "LCPS: growth allowed in one second, requests.", given, "LCPS"
    )
    window_ms = _number(given.get("TR"))
    if window_ms is not None:
        yield _plain_gauge("sipguard_window_seconds", "TR: the sampling period.", window_ms / 1000)
        for key, name, help_ in (
            ("PC", "sipguard_patience_seconds", "PC times TR: how long 503 lasts before the silent drop."),
            ("LRC", "sipguard_relax_seconds", "LRC times TR: how long the calm must last."),
        ):
            cycles = _number(given.get(key))
            if cycles is not None:
                yield _plain_gauge(name, help_, cycles * window_ms / 1000)
    policy = _part(status, "policy")
    labels = {key: _word(policy[key]) for key in ("shed", "enforce", "transactions") if key in policy}
    if "LCDM" in given:
        labels["lcdm"] = _word(given["LCDM"])
    if labels:
        yield InfoMetricFamily("sipguard_policy", "How the law is applied.", value=labels)


def _requests(status: Status) -> Families:
    yield from _counter_by("sipguard_requests", "SIP requests offered.", status, "requests", "method")
    yield from _counter_by("sipguard_verdicts", "What became of them.", status, "verdicts", "verdict")
    yield from _counter_by(
        "sipguard_shadow_verdicts", "What would have become of them (shadow mode).", status, "shadow", "verdict"
    )
    yield from _counter_by(
        "sipguard_outcomes", "What happened to messages beyond their verdict.", status, "outcomes", "reason"
    )
    yield from _counter_by("sipguard_checks", "Requests a named check refused or discarded.", status, "checks", "check")
    yield from _counter_by(
        "sipguard_responses", "SIP responses, by the side they came from.", status, "responses", "side"
    )
    yield from _counter_by(
        "sipguard_discards", "What came and was no SIP or could not be used.", status, "discards", "reason"
    )
    yield from _counter("sipguard_lcps_refused", "Requests refused for growth past LCPS.", status, "lcps_refused")
    yield from _counter_by("sipguard_edge_events", "What the sockets met, by kind.", status, "edge", "event")
    yield from _counter("sipguard_absorbed", "ACKs to the guard's own final responses.", status, "absorbed")
    yield from _transactions(_part(status, "transactions"))


def _transactions(figures: Status) -> Families:
    yield from _gauge("sipguard_transactions", "Remembered for one verdict (32 s each).", figures, "remembered")
    yield from _counter("sipguard_transaction_copies", "Requests given their first copy's verdict.", figures, "copies")
    yield from _counter("sipguard_transactions_evicted", "Forgotten before their time, for room.", figures, "evicted")


def _kernel(status: Status) -> Families:
    yield from _counter("sipguard_kernel_dropped", "Requests dropped in the kernel.", status, "kernel_dropped")
    yield from _counter("sipguard_receive_overflows", "Datagrams lost to full receive buffers.", status, "overflowed")
    kernel = _part(status, "kernel")
    yield from _gauge("sipguard_kernel_filter_available", "1 when this kernel takes the filter.", kernel, "available")
    yield from _gauge("sipguard_kernel_filter_attached", "1 while the filter drops.", kernel, "attached")
    yield from _counter("sipguard_kernel_filter_attachments", "Times it was attached.", kernel, "attachments")
    yield from _counter(
        "sipguard_kernel_filter_sampled", "Sheddable requests it let through as samples.", kernel, "sampled"
    )
    yield from _counter("sipguard_kernel_filter_errors", "Times it could not be attached or read.", kernel, "errors")


def _evaluation(status: Status) -> Families:
    evaluation = _part(status, "evaluation")
    yield from _counter("sipguard_evaluated_cycles", "Windows evaluated.", evaluation, "cycles")
    for key, what in (("p50", "median"), ("p99", "99th percentile"), ("max", "largest")):
        late_ms = _number(evaluation.get(f"late_ms_{key}"))
        if late_ms is not None:
            name = f"sipguard_evaluation_lateness_{key}_seconds"
            yield _plain_gauge(name, f"Evaluation against its grid time, {what}.", late_ms / 1000)


def _sockets(status: Status) -> Families:
    buffers = GaugeMetricFamily(
        "sipguard_receive_buffer_bytes", "SO_RCVBUF granted to a listener.", labels=["transport", "address"]
    )
    for listener in _rows(status, "listeners"):
        granted = _number(listener.get("receive_buffer"))
        if granted is not None:
            buffers.add_metric([_word(listener.get("transport")), _word(listener.get("address"))], granted)
    upstream_labels = ["upstream", "transport", "address"]
    sent = CounterMetricFamily("sipguard_upstream_sent", "Messages sent to an upstream.", labels=upstream_labels)
    refused = CounterMetricFamily(
        "sipguard_upstream_refused", "Sends an upstream's host refused.", labels=upstream_labels
    )
    weight = GaugeMetricFamily("sipguard_upstream_weight", "An upstream's configured weight.", labels=upstream_labels)
    for upstream in _rows(status, "upstreams"):
        labels = [_word(upstream.get(key)) for key in ("id", "transport", "address")]
        for family, key in ((sent, "sent"), (refused, "refused"), (weight, "weight")):
            value = _number(upstream.get(key))
            if value is not None:
                family.add_metric(labels, value)
    for family in (buffers, sent, refused, weight):
        if family.samples:
            yield family
    connections = GaugeMetricFamily("sipguard_connections", "Open stream connections.", labels=["side"])
    for side, open_now in _part(status, "connections").items():
        value = _number(open_now)
        if value is not None:
            connections.add_metric([_word(side)], value)
    if connections.samples:
        yield connections


def _process(status: Status) -> Families:
    yield from _gauge("sipguard_uptime_seconds", "Since the guard started.", status, "uptime_s")
    if "version" in status:
        yield InfoMetricFamily("sipguard_build", "The version that runs.", value={"version": _word(status["version"])})


# -- families ----------------------------------------------------------------------------------------------------------


def _plain_gauge(name: str, help_: str, value: float) -> Metric:
    return GaugeMetricFamily(name, help_, value=value)


def _gauge(name: str, help_: str, part: Status, key: str) -> Families:
    value = _number(part.get(key))
    if value is not None:
        yield GaugeMetricFamily(name, help_, value=value)


def _counter(name: str, help_: str, part: Status, key: str) -> Families:
    value = _number(part.get(key))
    if value is not None:
        yield CounterMetricFamily(name, help_, value=value)


def _counter_by(name: str, help_: str, status: Status, key: str, label: str) -> Families:
    counts = {
        _word(given): number for given, count in _part(status, key).items() if (number := _number(count)) is not None
    }
    if not counts:
        return
    family = CounterMetricFamily(name, help_, labels=[label])
    rest = counts.pop(OTHER, None)
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    for given, count in ranked[:MAX_LABELS]:
        family.add_metric([given], count)
    if rest is not None or len(ranked) > MAX_LABELS:
        family.add_metric([OTHER], (rest or 0) + sum(count for _, count in ranked[MAX_LABELS:]))
    yield family


# -- what a status holds -----------------------------------------------------------------------------------------------


def _part(status: Status, key: str) -> Status:
    part = status.get(key)
    return part if isinstance(part, Mapping) else {}


def _rows(status: Status, key: str) -> list[Status]:
    rows = status.get(key)
    return [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, list | tuple) else []


def _number(value: object) -> float | None:
    """A figure; None for what is none. true and false are 1 and 0."""
    return float(value) if isinstance(value, int | float) else None


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
