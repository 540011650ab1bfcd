"""The loop: every request ends once, the same seed gives the same run, and clients do what they are said to do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sipguard.lab.sim.engine import Run, Simulation
from sipguard.lab.sim.measure import BIN_NS, Count
from sipguard.lab.sim.scenario import Callers, Endpoints, Flood, Outage, Restart, Scenario
from sipguard.lab.sim.transactions import Outcome, Role
from tests.lab.sim.storms import guard, rate, run, server, steady, storm, total


def crowded(**more: Any) -> Scenario:
    """All kinds of clients at two small servers, one of which restarts; loss, a power cut, overload."""
    clients = (
        Callers(
            "phones", rate((0, 60), (20, 300), (40, 60)), talk_s=5, redial_probability=0.8, patience_s=15, failover=True
        ),
        Callers("trunk", rate((0, 40)), transport="tcp", talk_s=3, redial_probability=0.5, redial_s=(0, 0)),
        Endpoints("devices", 800, expires_s=40, outage=Outage(10, 15, 3), failover=True),
        Endpoints("probes", 20, method="OPTIONS", expires_s=5, spread=0, retry_s=None),
        Flood("flood", rate((0, 0), (25, 0), (25, 200), (30, 200), (30, 0)), method="REGISTER"),
    )
    servers = (
        server(150, queue=100, costs={"ACK": 0.2}, retransmission_cost=0.3, thrash=0.5),
        server(100, name="b", queue=50, full="refuse"),
    )
    restarts = (Restart("server", "a", 33, 4, slow=2, slow_s=5), Restart("guard", "a", 45))
    return storm(*clients, duration_s=70.0, servers=servers, restarts=restarts, loss=0.05, **more)


GUARDS = {
    "none": None,
    "all": guard("all", LC=150, LCPS=120, LRC=5, PC=10, TR=200),
    "excess": guard("excess", LC=150, LCPS=120, LRC=5, PC=10, TR=200),
}


@pytest.fixture(scope="module")
def runs() -> dict[str, Run]:
    return {name: Simulation(crowded(guard=spec), seed=7).run() for name, spec in GUARDS.items()}


@pytest.mark.parametrize("name", GUARDS)
def test_every_request_ends_in_exactly_one_outcome(name: str) -> None:
    """Issue 3 §2, conservation: by population and role; what is not ended is still in the table, and nothing twice."""
    simulation = Simulation(crowded(guard=GUARDS[name]), seed=7)
    ran = simulation.run()
    measure, table = ran.measure, simulation._table
    ended = measure.outcomes.sum(axis=2)
    assert (measure.outcomes[:, :, Outcome.LIVE] == 0).all()
    live = table.outcome[: table.next - table.base] == Outcome.LIVE
    waiting = np.zeros_like(ended)
    np.add.at(
        waiting,
        (table.population[: len(live)][live].astype(int), table.role[: len(live)][live].astype(int)),
        1,
    )
    assert (ended + waiting).tolist() == measure.opened.tolist()
    assert measure.opened.sum() == table.next
    # Every kind of end is there, or this says little.
    kinds = {Outcome.SERVED, Outcome.TIMED_OUT, Outcome.LOST, Outcome.GONE, Outcome.REFUSED}
    assert {outcome for outcome in kinds if measure.outcomes[:, :, outcome].sum()} == kinds
    assert ran.pending >= 0


@pytest.mark.parametrize("name", GUARDS)
def test_every_message_at_the_guard_is_judged_once(runs: dict[str, Run], name: str) -> None:
    """SPEC M2: allowed, refused and dropped add up to what came, bin by bin; the bins are those of the outcomes."""
    bins, outcomes = runs[name].measure.bins, runs[name].measure.outcomes
    came = bins[Count.FRESH] + bins[Count.COPIES]
    assert (came == bins[Count.ALLOWED] + bins[Count.REJECTED] + bins[Count.DROPPED]).all()
    assert (bins >= 0).all()
    attempts = outcomes[:, Role.ATTEMPT]
    assert attempts[:, Outcome.SERVED].sum() == bins[Count.SERVED].sum() == len(runs[name].measure.all_delays()[0])
    assert attempts[:, Outcome.REFUSED].sum() == bins[Count.REFUSED].sum()
    assert attempts[:, Outcome.TIMED_OUT].sum() == bins[Count.TIMED_OUT].sum()


def test_the_guards_own_counters_agree() -> None:
    """The controllers are those of the law: their totals are the simulator's."""
    ran = Simulation(storm(steady(300), guard=guard("excess", LC=100, TR=100), duration_s=20.0)).run()
    front = ran.sites[0].front
    assert front is not None
    law = front.controller
    assert law.allowed == total(ran, Count.ALLOWED)
    assert law.rejected == total(ran, Count.REJECTED) > 0
    assert law.dropped == total(ran, Count.DROPPED)


@pytest.mark.parametrize("name", GUARDS)
def test_the_same_seed_gives_the_same_run(runs: dict[str, Run], name: str) -> None:
    again = Simulation(crowded(guard=GUARDS[name]), seed=7).run()
    first = runs[name]
    assert (again.measure.bins == first.measure.bins).all()
    assert (again.measure.outcomes == first.measure.outcomes).all()
    assert (again.measure.all_delays()[0] == first.measure.all_delays()[0]).all()
    assert again.changes == first.changes


def test_another_seed_gives_another_run() -> None:
    first, other = (run(steady(50), duration_s=5.0, seed=seed) for seed in (7, 8))
    assert (other.measure.bins != first.measure.bins).any()


def test_with_another_guard_the_same_people_call() -> None:
    """Random numbers are each population's own: what is wanted does not depend on the guard."""
    wanted = [
        run(steady(200), duration_s=10.0, guard=spec).measure.bins[Count.WANTED].tolist() for spec in GUARDS.values()
    ]
    assert wanted[0] == wanted[1] == wanted[2]


def test_slots_do_not_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slots look ahead; they do not round: with even arrivals and fixed service, slots of 25 ms and of 1 ms agree wholly."""
    clients = steady(130, spacing="even")
    told = []
    for longest_ns in (50_000_000, 1_000_000):
        monkeypatch.setattr("sipguard.lab.sim.engine._LONGEST_SLOT_NS", longest_ns)
        simulation = Simulation(
            storm(clients, duration_s=40.0, guard=GUARDS["excess"], servers=(server(90, service="fixed", queue=50),))
        )
        ran = simulation.run()
        told.append((simulation.slot_ns, [int(n) for n in ran.measure.bins.sum(axis=1)][: Count.INSIDE], ran.changes))
    assert [slot for slot, _, _ in told] == [25_000_000, 1_000_000]
    assert told[0][1:] == told[1][1:]


# -- what clients do ---------------------------------------------------------------------------------------------------


def refusing(**parameters: Any) -> Any:
    """A guard that refuses everything sheddable from the second window on."""
    return guard(LC=1, LCDM="denial_only", TR=100, LRC=100, **parameters)


def test_redials_follow_their_probability_and_number() -> None:
    """Everyone refused redials 3 s later, at most 3 tries in all: 1 + p + p² attempts each."""
    clients = steady(
        0, rate=rate((0, 50), (100, 50), (100, 0)), redial_probability=0.5, redial_s=(3.0, 3.0), attempts=3
    )
    ran = run(clients, duration_s=120.0, guard=refusing())
    attempts, wanted = int(ran.measure.opened[0, Role.ATTEMPT]), total(ran, Count.WANTED)
    served = total(ran, Count.SERVED)  # in the first window, before the level knows
    assert served < 50
    # The number of tries has variance 11/16 (1: 1/2, 2: 1/4, 3: 1/4): five deviations.
    assert abs(attempts - 1.75 * wanted) < 5 * (11 / 16 * wanted) ** 0.5 + 2 * served
    assert total(ran, Count.GIVEN_UP) == wanted - served
    assert ran.pending == 0


def test_a_retry_after_is_waited_for_by_who_honours_it() -> None:
    """DESIGN §3: 10–30 s on REGISTER. Who honours it comes back not before 10 s, who does not by its own back-off of 1–2 s."""
    for honours, earliest_s, latest_s in ((True, 10.0, 30.1), (False, 1.0, 2.1)):
        devices = Endpoints("devices", 400, expires_s=4, spread=0, retry_s=(2.0, 2.0), honours_retry_after=honours)
        ran = run(devices, duration_s=35.0, servers=(server(1e5),), guard=refusing())
        fresh, refused = ran.measure.bins[Count.FRESH], ran.measure.bins[Count.REFUSED]
        begins_s = np.flatnonzero(refused)[0] * BIN_NS / 1e9
        # From 4.2 s on all have sent their first one; what comes then is second tries.
        after = np.flatnonzero(fresh[42:])[0] * BIN_NS / 1e9 + 4.2
        assert after - begins_s == pytest.approx(max(earliest_s, 4.2 - begins_s), abs=0.6)
        if honours:
            assert fresh[42 : int((begins_s + 9.9) * 10)].sum() == 0
            assert fresh[: int((4.2 + latest_s) * 10)].sum() >= 2 * 400 - total(ran, Count.SERVED)


def test_failover_goes_to_the_second_server_at_once() -> None:
    """RFC 3263 4.3: a 503 or a timeout sends the client to the next server; each is tried once."""
    servers = (server(10, queue=1, full="refuse", refuse_cost=0.0), server(1e5, name="b"))
    ran = run(steady(100, failover=True), duration_s=30.0, servers=servers)
    assert total(ran, Count.GIVEN_UP) == 0
    assert ran.measure.opened[0, Role.ATTEMPT] == total(ran, Count.WANTED) + total(ran, Count.REFUSED)
    assert ran.sites[1].server.accepted == pytest.approx(total(ran, Count.REFUSED), abs=20)
    delays_s, _ = ran.measure.all_delays()
    # Two round trips for most: the delay runs from the first try.
    assert np.median(delays_s) == pytest.approx(0.1, abs=0.01)


def test_a_call_has_an_ack_and_a_bye_on_its_server() -> None:
    """RFC 3261 13.2.2.4 and 15: both come after the answer; the BYE has timers of its own."""
    calls = steady(0, rate=rate((0, 20), (50, 20), (50, 0)), method="INVITE", answer_s=1.0, talk_s=2.0)
    ran = run(calls, duration_s=100.0, servers=(server(1e5),))
    answered = total(ran, Count.SERVED)
    assert ran.measure.opened[0].tolist() == [answered, answered, answered]
    assert ran.measure.outcomes[0, :, Outcome.SERVED].tolist() == [answered] * 3


def test_in_a_critical_state_ack_and_bye_pass() -> None:
    """SPEC V1: what cannot be shed counts and passes."""
    calls = steady(40, method="INVITE", answer_s=0.5, talk_s=20.0)
    ran = run(calls, duration_s=60.0, servers=(server(1e5),), guard=guard(LC=60, LCDM="drop_only", TR=100, LRC=10))
    outcomes = ran.measure.outcomes[0]
    assert total(ran, Count.DROPPED) > 0
    assert outcomes[Role.WITHIN, Outcome.TIMED_OUT] == outcomes[Role.LONE, Outcome.DROPPED] == 0


def test_a_flood_takes_no_notice() -> None:
    """Nothing is repeated and nothing waited for: what was sent is served, refused, dropped or lost."""
    flood = Flood("flood", rate((0, 500)))
    ran = run(flood, duration_s=20.0, guard=guard(LC=50, LCPS=10_000, PC=50, TR=100), servers=(server(100, queue=20),))
    lone = ran.measure.outcomes[0, Role.LONE]
    assert total(ran, Count.COPIES) == total(ran, Count.WANTED) == 0
    assert lone[Outcome.REFUSED] == total(ran, Count.REJECTED) > 0
    assert lone[Outcome.DROPPED] == total(ran, Count.DROPPED) > 0
    assert lone[Outcome.LOST] == total(ran, Count.OVERFLOW) > 0
    assert lone[Outcome.TIMED_OUT] == 0


def test_devices_come_back_together_after_a_power_cut() -> None:
    """Nothing from them while it lasts; each of them once within the time they need to come back."""
    devices = Endpoints("devices", 3000, expires_s=600, spread=0.1, outage=Outage(20, 30, 5))
    ran = run(devices, duration_s=50.0, servers=(server(1e5),))
    fresh = ran.measure.bins[Count.FRESH]
    assert fresh[:200].sum() > 0
    assert fresh[201:300].sum() == 0
    assert fresh[300:351].sum() == 3000
    assert fresh[351:].sum() < 10  # the next refresh is ten minutes away


def test_registrations_come_at_their_steady_rate() -> None:
    """N devices that refresh every E·(1 − s/2) on average: N/(E(1 − s/2)) a second."""
    devices = Endpoints("devices", 5000, expires_s=50, spread=0.2)
    ran = run(devices, duration_s=300.0, servers=(server(1e5),))
    expected = 5000 / (50 * 0.9) * 200
    assert ran.measure.bins[Count.FRESH][1000:].sum() == pytest.approx(expected, rel=0.02)


def test_a_dead_server_forgets_and_comes_back() -> None:
    """Its queue and its transactions are gone; copies of what it had are new work to its next life."""
    spec = server(20, service="fixed", queue=1000, retransmission_cost=0.0)
    clients = steady(0, rate=rate((0, 100), (2, 100), (2, 0)), spacing="even")
    plain = run(clients, duration_s=60.0, servers=(spec,))
    assert plain.sites[0].server.busy_by(60 * 10**9) / 1e9 == pytest.approx(200 / 20)
    ran = run(clients, duration_s=60.0, servers=(spec,), restarts=(Restart("server", "a", 4.0, 3.0),))
    served = np.flatnonzero(ran.measure.bins[Count.SERVED]) * BIN_NS / 1e9
    assert total(plain, Count.SERVED) == total(ran, Count.SERVED) == 200
    assert not ((served > 4.2) & (served < 7.0)).any()
    # 200 requests at 20/s; about 79 of them were done when it died, 121 begin again after 7 s.
    assert served.max() == pytest.approx(7 + 121 / 20, abs=1.5)


def test_a_drowned_server_loses_goodput() -> None:
    """RFC 5390: past its capacity a server with copies to answer and a thrashing queue serves less than it can."""
    spec = server(100, queue=400, thrash=1.0, retransmission_cost=0.5)
    calm, drowned = (run(steady(per_second), duration_s=120.0, servers=(spec,)) for per_second in (90.0, 200.0))
    late = slice(600, None)
    assert drowned.measure.bins[Count.SERVED][late].sum() < 0.7 * calm.measure.bins[Count.SERVED][late].sum()
    assert drowned.measure.bins[Count.COPIES].sum() > drowned.measure.bins[Count.FRESH].sum()
    gentle = replace(spec, thrash=0.0, retransmission_cost=0.0)
    better = run(steady(200.0), duration_s=120.0, servers=(gentle,))
    assert better.measure.bins[Count.SERVED][late].sum() > drowned.measure.bins[Count.SERVED][late].sum()


def test_a_long_run_keeps_no_old_requests() -> None:
    """Rows are used again: the table holds what may still be asked for, about 40 s of requests."""
    simulation = Simulation(storm(steady(200), duration_s=300.0, servers=(server(1000),)))
    simulation.run()
    table = simulation._table
    assert table.next > 59_000
    assert len(table.outcome) <= 16_384


def test_a_server_that_dies_again_while_it_is_away_was_not_at_work() -> None:
    """Twice, of 20 s in all 11 away: at work for no more than the other 9, and back when the later restart says."""
    restarts = (Restart("server", "a", 4.0, 10.0), Restart("server", "a", 10.0, 5.0))
    ran = run(steady(50), duration_s=20.0, servers=(server(100, service="fixed"),), restarts=restarts)
    busy_s = ran.sites[0].server.busy_by(20 * 10**9) / 1e9
    # At 50/s half of its time, and copies of what came meanwhile.
    assert (20 - 11) * 0.5 - 0.2 < busy_s < 20 - 11
    assert total(ran, Count.SERVED) >= 50 * 8


def test_services_longer_than_any_run_are_just_never_over() -> None:
    spec = server(0.01, costs={"MESSAGE": 1000.0}, thrash=100.0, queue=1_000_000)
    ran = run(steady(2000), duration_s=10.0, servers=(spec,))
    assert total(ran, Count.SERVED) == 0
    assert 0 <= ran.sites[0].server.busy_by(10 * 10**9) <= 10 * 10**9
