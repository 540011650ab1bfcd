"""What is allowed and will be regretted (SPEC P4; issue: the edge's pitfalls)."""

from __future__ import annotations

import resource

import pytest

from sipguard.edge.connections import POOL_SIZE
from sipguard.manage.config import load_settings, warnings
from sipguard.manage.descriptors import PER_STREAM_UPSTREAM, places, reserved
from sipguard.manage.warnings import descriptor_warnings


@pytest.fixture(autouse=True)
def _plenty(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine's own limit on descriptors is no part of these tests."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, resource.RLIM_INFINITY))


def warned(**flags: object) -> list[str]:
    return warnings(load_settings(None, flags))


def test_the_defaults_give_no_warning() -> None:
    assert warned() == []


@pytest.mark.parametrize(("tr", "nearest"), [(600, 500), (300, 250), (110, 100), (999, 1000)])
def test_p4_a_tr_that_does_not_divide_1000_names_the_nearest(tr: int, nearest: int) -> None:
    """SPEC P4."""
    (warning,) = warned(tr=tr)
    assert warning.startswith(f"TR = {tr}: ")
    assert f"the nearest exact TR is {nearest} " in warning


def test_p4_tr_600_reads_40_percent_low() -> None:
    """SPEC P4: the worked number."""
    assert "40 % low" in warned(tr=600)[0]


@pytest.mark.parametrize("tr", [100, 125, 200, 250, 500, 1000])
def test_p4_an_exact_tr_is_not_warned_about(tr: int) -> None:
    """SPEC P4."""
    assert warned(tr=tr) == []


def test_a_listener_without_an_upstream_of_its_transport() -> None:
    (warning,) = warned(upstream=["udp:192.0.2.10:5060"])
    assert warning.startswith("listen = tcp:127.0.0.1:5060: no upstream speaks tcp")
    assert warned(upstream=["udp:192.0.2.10:5060", "tcp:192.0.2.10:5060"]) == []


def test_a_wildcard_without_advertise() -> None:
    (warning,) = warned(listen=["udp:0.0.0.0:5060"])
    assert warning.startswith("listen = udp:0.0.0.0:5060: a wildcard address without advertise")
    assert warned(listen=["udp:0.0.0.0:5060,advertise=192.0.2.1"]) == []


def test_an_admin_address_that_others_reach() -> None:
    assert [w.split(":")[0] for w in warned(admin="192.0.2.1:8060")] == ["admin = 192.0.2.1"]
    assert warned(admin="[::1]:8060") == []


def test_methods_that_are_slips_or_keep_calls_up() -> None:
    assert "INVITe is no method" in warned(drop_methods=["INVITe"])[0]
    assert "ACK is never answered" in warned(refuse_methods=["ACK"])[0]
    assert [w.split(";")[0] for w in warned(drop_methods=["BYE", "INVITE"])] == ["drop_methods: BYE frees the servers"]
    assert "RFC 7339 5.10.2" in warned(retry_after_methods=["INVITE"])[0]
    assert warned(retry_after_methods=["INVITE"], retry_after="") == []


def test_one_verdict_keeps_the_kernel_from_dropping() -> None:
    """SPEC X3, DESIGN §3: a flood then costs the process; said once, where the filter would have been used."""
    (warning,) = warned(transactions="one_verdict")
    assert warning.startswith("transactions = one_verdict: the kernel cannot tell a copy from a new request")
    for flags in ({"kernel_drop": False}, {"shadow": True}, {"listen": ["tcp:127.0.0.1:5060"]}):
        assert warned(transactions="one_verdict", **flags) == []


def test_fewer_descriptors_than_connections_asked_for() -> None:
    """getrlimit(2): what is left after sockets, pool and admin, and the limit that would do, which then does."""
    settings = load_settings(None, {"upstream": ["udp:192.0.2.10:5060", "tcp:192.0.2.10:5060"], "max_connections": 900})
    (warning,) = descriptor_warnings(settings, 512)
    room = places(settings, 512)
    assert warning.startswith(f"max_connections = 900: 512 descriptors leave {room};")
    enough = 900 + reserved(settings)
    assert f"ulimit -n {enough} " in warning
    assert 0 < room == 512 - reserved(settings) < 480
    assert descriptor_warnings(settings, enough - 1)
    assert descriptor_warnings(settings, enough) == descriptor_warnings(settings, resource.RLIM_INFINITY) == []


def test_the_hard_limit_counts_for_run_raises_the_soft_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (64, 20_000))
    assert warned() == []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (64, 4096))
    assert [text.split(":")[0] for text in warned()] == ["max_connections = 10000"]
    assert warned(listen=["udp:127.0.0.1:5060"]) == []


def test_what_is_reserved_grows_with_what_is_configured() -> None:
    """A pool of connections to each stream upstream; there is always a place for one client."""
    few = reserved(load_settings(None, {"upstream": ["tcp:192.0.2.10:5060"]}))
    more = reserved(load_settings(None, {"upstream": ["tcp:192.0.2.10:5060", "tcp:192.0.2.11:5060"]}))
    assert more - few >= PER_STREAM_UPSTREAM >= 2 * POOL_SIZE
    assert places(load_settings(None, {}), 8) == 1
