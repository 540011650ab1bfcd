"""The evaluation is the timer's, on an absolute grid, whatever the traffic does (SPEC M1, issue 2 §4)."""

from __future__ import annotations

import contextlib
import time

from sipguard.core.verdicts import Change
from tests.edge.conftest import Launch, Start
from tests.edge.live import ThreadGuard
from tests.edge.messages import Message, request
from tests.edge.peers import StreamPeer, UdpPeer
from tests.peers.process import wait_until

MS = 1_000_000


def grid_of(guard: ThreadGuard) -> list[int]:
    """When the cycles so far were evaluated for, in TR from the origin; whole numbers only."""
    controller = guard.guard.controller
    tr_ns = controller.parameters.TR * MS
    offsets = [cycle.time_ns - controller.origin_ns for cycle in guard.cycles()]
    assert [offset % tr_ns for offset in offsets] == [0] * len(offsets)
    return [offset // tr_ns for offset in offsets]


def test_cycles_are_evaluated_on_the_grid_without_any_traffic(start: Start, server: UdpPeer) -> None:
    """SPEC M1: cycle k at exactly origin + k·TR, each once; lateness does not add up."""
    guard = start(upstream=[f"udp:{server.address.text}"], tr=100)
    guard.await_status("12 cycles", lambda status: status["evaluation"]["cycles"] >= 12)
    evaluation = guard.status()["evaluation"]
    grid = grid_of(guard)
    assert grid == list(range(1, len(grid) + 1))
    assert len(grid) >= evaluation["cycles"] >= 12
    assert set(evaluation) == {"cycles", "late_ms_p50", "late_ms_p99", "late_ms_max"}
    assert 0 < evaluation["late_ms_p50"] <= evaluation["late_ms_p99"] <= evaluation["late_ms_max"]


def test_no_cycle_is_missed_under_a_flood_of_datagrams(launch: Launch, client: UdpPeer, server: UdpPeer) -> None:
    """As many evaluations as the guard's own clock says windows have ended, while it has all it can do."""
    guard = launch(
        *("--listen", "udp:127.0.0.1:0", "--upstream", f"udp:{server.address.text}", "--tr", "500"),
        *("--lc", "10000", "--lcps", "10000", "--shadow"),
    )
    address, data = guard.listening(), request()
    end_s = time.monotonic() + 2.2
    looks = []
    while time.monotonic() < end_s:
        for _ in range(3000):
            client.send(data, address)
        status = guard.status()
        looks.append((status["now_ns"] - status["origin_ns"]) // (500 * MS) - status["evaluation"]["cycles"])
        server.drain()
    assert sum(status["requests"].values()) > 2000
    assert status["evaluation"]["cycles"] >= 4
    # One may be due at the very moment of the look.
    assert set(looks) <= {0, 1}
    assert looks.count(0) > len(looks) // 2


def test_a_change_of_state_is_told_with_the_time_of_its_cycle(start: Start, client: UdpPeer, server: UdpPeer) -> None:
    """SPEC L1, L5: the grid's time, not the time at which somebody noticed."""
    guard = start(upstream=[f"udp:{server.address.text}"], lc=5, tr=100, lrc=3, lcdm="denial_only")
    origin_ns = guard.guard.controller.origin_ns
    for _ in range(50):
        client.send(request(), guard.address())
    wait_until(lambda: len(guard.changes) >= 2, 10, "there and back")
    there, back = guard.changes[:2]
    assert (there.after.value, back.after.value) == ("around_critical_limit", "normal")
    assert [(change.time_ns - origin_ns) % (100 * MS) for change in (there, back)] == [0, 0]
    assert back.relax_run == 3
    assert there.rps > 5


def test_a_listener_that_fails_does_not_end_the_evaluation(start: Start, client: UdpPeer, server: UdpPeer) -> None:
    """guard.ports.ChangeListener: its failure must not reach the edge."""
    guard = start(upstream=[f"udp:{server.address.text}"], lc=5, tr=100, lrc=2)

    def fail(change: Change) -> None:
        raise RuntimeError(f"an alarm that is broken: {change.after.value}")

    guard.call(lambda: setattr(guard.edge, "_on_change", fail))
    for _ in range(50):
        client.send(request(), guard.address())
    guard.await_status("the change", lambda status: status["state"] != "normal")
    cycles = guard.status()["evaluation"]["cycles"]
    guard.await_status("the way back", lambda status: status["state"] == "normal")
    assert guard.status()["evaluation"]["cycles"] > cycles
    assert guard.problems
    assert all("an alarm that is broken" in problem for problem in guard.problems)
    guard.problems.clear()


def test_a_silent_drop_on_a_stream_is_read_and_not_answered(start: Start, server: UdpPeer) -> None:
    """SPEC V2, DESIGN §3 (streams): the connection lives on, and what cannot be shed passes."""
    with contextlib.ExitStack() as stack:
        for stream_drop, answered in (("drop", False), ("reject", True)):
            guard = start(
                upstream=[f"udp:{server.address.text}", "tcp:127.0.0.1:9"],
                lc=5,
                tr=100,
                lrc=50,
                lcdm="drop_only",
                stream_drop=stream_drop,
            )
            caller = stack.enter_context(StreamPeer.connect(guard.address("tcp")))
            for _ in range(20):
                caller.send(request("OPTIONS", transport="TCP", max_forwards=0))
                caller.read()
            guard.await_status("critical_limit", lambda status: status["state"] == "critical_limit")
            caller.send(request("OPTIONS", transport="TCP", max_forwards=0))
            if answered:
                assert Message.of(caller.read()).status == 503
            else:
                assert caller.silent()
            assert guard.status()["verdicts"]["drop"] == 1
            caller.send(request("BYE", transport="TCP", max_forwards=0))
            assert Message.of(caller.read()).status == 483
