"""/metrics: what the names, types and units of Prometheus' own guide ask, checked on the parsed text."""

from __future__ import annotations

import re
from typing import Any

import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import REGISTRY

from sipguard.manage.metrics import MAX_LABELS, GuardMetrics

STATUS: dict[str, Any] = {
    "state": "around_critical_limit",
    "rps": 350,
    "origin_ns": 1,
    "now_ns": 2,
    "patience_run": 3,
    "relax_run": 0,
    "parameters": {"LC": 100, "LCDM": "denial_to_drop", "LCPS": 50, "LRC": 15, "PC": 50, "TR": 200},
    "policy": {"shed": "all", "enforce": True, "refuse_methods": ["INVITE"], "transactions": "one_verdict"},
    "transactions": {"remembered": 40, "copies": 41, "evicted": 42},
    "requests": {"INVITE": 70, "REGISTER": 30},
    "verdicts": {"allow": 60, "reject": 30, "drop": 10},
    "shadow": {"reject": 1, "drop": 2},
    "kernel_dropped": 7,
    "lcps_refused": 8,
    "edge": {"send_refused": 9},
    "absorbed": 5,
    "overflowed": 4,
    "responses": {"outside": 1, "inside": 55},
    "discards": {"not_sip": 3},
    "outcomes": {"max_forwards": 2},
    "checks": {"adl": 1},
    "kernel": {"available": True, "attached": False, "attachments": 2, "sampled": 6, "errors": 0},
    "evaluation": {"cycles": 9, "late_ms_p50": 0.5, "late_ms_p99": 2.0, "late_ms_max": 8},
    "listeners": [{"transport": "udp", "address": "127.0.0.1:5060", "receive_buffer": 212992}],
    "upstreams": [{"id": "a", "address": "192.0.2.10:5060", "transport": "udp", "weight": 2, "sent": 60, "refused": 1}],
    "connections": {"outside": 3, "inside": 1},
    "version": "0.1.0",
    "uptime_s": 12.5,
}


def families(status: dict[str, Any]) -> dict[str, Metric]:
    text = GuardMetrics(lambda: status).text().decode("utf-8")
    return {family.name: family for family in text_string_to_metric_families(text)}


def value(name: str, labels: dict[str, str]) -> float:
    found = [
        sample.value
        for family in families(STATUS).values()
        for sample in family.samples
        if sample.name == name and sample.labels == labels
    ]
    assert len(found) == 1, (name, labels, found)
    return found[0]


@pytest.mark.parametrize(
    ("name", "labels", "expected"),
    [
        ("sipguard_state", {"state": "normal"}, 0),
        ("sipguard_state", {"state": "around_critical_limit"}, 1),
        ("sipguard_state", {"state": "critical_limit"}, 0),
        ("sipguard_rps", {}, 350),
        ("sipguard_level_critical", {}, 100),
        ("sipguard_limit_critical_per_second", {}, 50),
        ("sipguard_window_seconds", {}, 0.2),
        ("sipguard_patience_seconds", {}, 10),
        ("sipguard_relax_seconds", {}, 3),
        (
            "sipguard_policy_info",
            {"shed": "all", "enforce": "true", "transactions": "one_verdict", "lcdm": "denial_to_drop"},
            1,
        ),
        ("sipguard_transactions", {}, 40),
        ("sipguard_transaction_copies_total", {}, 41),
        ("sipguard_transactions_evicted_total", {}, 42),
        ("sipguard_requests_total", {"method": "INVITE"}, 70),
        ("sipguard_verdicts_total", {"verdict": "reject"}, 30),
        ("sipguard_shadow_verdicts_total", {"verdict": "drop"}, 2),
        ("sipguard_kernel_dropped_total", {}, 7),
        ("sipguard_lcps_refused_total", {}, 8),
        ("sipguard_edge_events_total", {"event": "send_refused"}, 9),
        ("sipguard_absorbed_total", {}, 5),
        ("sipguard_receive_overflows_total", {}, 4),
        ("sipguard_responses_total", {"side": "inside"}, 55),
        ("sipguard_discards_total", {"reason": "not_sip"}, 3),
        ("sipguard_outcomes_total", {"reason": "max_forwards"}, 2),
        ("sipguard_checks_total", {"check": "adl"}, 1),
        ("sipguard_kernel_filter_available", {}, 1),
        ("sipguard_kernel_filter_attached", {}, 0),
        ("sipguard_evaluated_cycles_total", {}, 9),
        ("sipguard_evaluation_lateness_p99_seconds", {}, 0.002),
        ("sipguard_receive_buffer_bytes", {"transport": "udp", "address": "127.0.0.1:5060"}, 212992),
        ("sipguard_upstream_sent_total", {"upstream": "a", "transport": "udp", "address": "192.0.2.10:5060"}, 60),
        ("sipguard_connections", {"side": "outside"}, 3),
        ("sipguard_build_info", {"version": "0.1.0"}, 1),
        ("sipguard_uptime_seconds", {}, 12.5),
    ],
)
def test_a_figure_of_the_status_comes_out(name: str, labels: dict[str, str], expected: float) -> None:
    assert value(name, labels) == expected


def test_names_units_and_help_are_as_promtool_asks() -> None:
    """promtool check metrics: counters and only they end in _total, base units, help on each, no reserved suffixes."""
    found = families(STATUS)
    assert len(found) > 30
    for name, family in found.items():
        assert re.fullmatch(r"sipguard_[a-z0-9]+(_[a-z0-9]+)*", name)
        assert family.documentation.endswith(".")
        assert not re.search(r"_(ms|msec|us|ns|sec|secs|minutes|kb|mb|counter|gauge|summary|histogram)(_|$)", name)
        assert not name.endswith(("_count", "_sum", "_bucket"))
        for sample in family.samples:
            assert sample.name.endswith("_total") == (family.type == "counter")
            assert set(sample.labels).isdisjoint({"quantile", "le", "__name__", "job", "instance"})
            assert sample.value >= 0
        keys = [tuple(sorted(sample.labels.items())) for sample in family.samples]
        assert len(keys) == len(set(keys))


@pytest.mark.parametrize("missing", sorted(STATUS))
def test_a_status_without_a_key_gives_the_rest(missing: str) -> None:
    less = {key: part for key, part in STATUS.items() if key != missing}
    assert set(families(less)) <= set(families(STATUS))
    assert len(families(less)) > 20


@pytest.mark.parametrize("key", sorted(STATUS))
@pytest.mark.parametrize("odd", [None, "x", [], [None], {}, {"a": None}, [{}], {"a": {"b": 1}}])
def test_an_odd_part_hurts_nothing_else(key: str, odd: object) -> None:
    assert len(families({**STATUS, key: odd})) > 20


def test_an_empty_status_gives_an_empty_page() -> None:
    assert GuardMetrics(dict).text() == b""


def test_labels_that_remote_input_names_are_escaped_and_capped() -> None:
    methods = {f"M{number:03d}": 1 for number in range(MAX_LABELS + 36)}
    status = {"requests": {**methods, 'X"\n\\': 1000, "OTHER": 5}}
    samples = families(status)["sipguard_requests"].samples
    assert len(samples) == MAX_LABELS + 1
    assert samples[0].labels == {"method": 'X"\n\\'}
    assert sum(sample.value for sample in samples) == MAX_LABELS + 36 + 1000 + 5
    assert samples[-1].labels == {"method": "OTHER"}


def test_nothing_goes_to_the_global_registry() -> None:
    GuardMetrics(lambda: STATUS).text()
    assert not [family.name for family in REGISTRY.collect() if family.name.startswith("sipguard")]
