"""The inside port stands in Record-Route and Path: a restart comes back on it without being told (DESIGN §3)."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from sipguard import assembly
from sipguard.assembly import AssemblyError, assemble
from sipguard.manage.config import load_settings
from sipguard.manage.portfile import MAX_ENTRIES, load_ports, save_ports
from tests.edge.conftest import Launch
from tests.edge.peers import UdpPeer
from tests.peers.process import free_port


def test_a_restart_takes_the_same_inside_ports(launch: Launch, tmp_path: Path) -> None:
    state, port = tmp_path / "state", free_port()
    with UdpPeer() as server:
        arguments = (
            *("--listen", f"udp:127.0.0.1:{port}", "--listen", f"tcp:127.0.0.1:{port}"),
            *("--upstream", f"udp:{server.address.text}", "--upstream", f"tcp:{server.address.text}"),
        )
        first = launch(*arguments, key_directory=state)
        inside = first.line("ready")["inside"]
        assert len(inside) == 2
        assert first.child.stop() == 0
        second = launch(*arguments, key_directory=state)
        assert second.line("ready")["inside"] == inside
        assert [line["event"] for line in second.log()] == ["start", "ready"]


def test_a_port_that_is_taken_meanwhile_stops_nothing(launch: Launch, tmp_path: Path) -> None:
    state, port = tmp_path / "state", free_port()
    with UdpPeer() as server, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as squatter:
        arguments = ("--listen", f"udp:127.0.0.1:{port}", "--upstream", f"udp:{server.address.text}")
        first = launch(*arguments, key_directory=state)
        before = first.listening(side="inside")
        assert first.child.stop() == 0
        squatter.bind(("127.0.0.1", before.port))
        second = launch(*arguments, key_directory=state)
        assert second.listening(side="inside").port not in (0, before.port)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": 0}', '{"a": true}', '{"a": "5"}', '{"a": 70000}', "\xff"])
def test_a_file_of_something_else_is_no_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "inside-ports.json").write_text(text, encoding="latin-1")
    assert load_ports(tmp_path) == {}
    assert save_ports(tmp_path, {"b": 5}) is None
    assert load_ports(tmp_path) == {"b": 5}


def test_the_file_is_bounded_and_keeps_the_others(tmp_path: Path) -> None:
    for number in range(MAX_ENTRIES + 10):
        assert save_ports(tmp_path, {f"guard {number}": 1000 + number}) is None
    kept = json.loads((tmp_path / "inside-ports.json").read_text(encoding="utf-8"))
    assert len(kept) == MAX_ENTRIES
    assert kept[f"guard {MAX_ENTRIES + 9}"] == 1000 + MAX_ENTRIES + 9


def test_a_directory_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    told = save_ports(tmp_path / "absent", {"a": 5})
    assert told is not None
    assert str(tmp_path / "absent") in told


def test_a_wildcard_guard_is_not_its_own_upstream(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any address of this machine, not loopback alone: the guard would feed itself until Max-Forwards is spent."""
    port = free_port()
    settings = load_settings(None, {"listen": [f"udp:0.0.0.0:{port}"], "upstream": [f"udp:192.0.2.2:{port}"]})
    monkeypatch.setattr(assembly, "local_address_towards", lambda host, port: host)
    with pytest.raises(AssemblyError, match=rf"upstream udp:192\.0\.2\.2:{port} is the guard's own address"):
        assemble(settings, settings.upstream)
