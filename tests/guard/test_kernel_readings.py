"""What the kernel dropped, brought into the law and the counters (DESIGN §3, the kernel drop plane; SPEC M2, X2)."""

from __future__ import annotations

from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sipguard.core.policy import SHEDDABLE_METHODS, Policy
from sipguard.guard.ports import PlaneReading
from sipguard.guard.sampling import Samples
from tests.guard.messages import ack_of, request
from tests.guard.rig import MS, A, C, N, Rig, judged, total


def test_a_reading_counts_into_the_window_that_ends_before_it_is_evaluated() -> None:
    """DESIGN §3, order at a window's end: read, count into the closing window, then evaluate."""
    rig = Rig()
    for _ in range(3):
        rig.receive(request())
    rig.tick(PlaneReading(rig.udp, 8, 0))
    (cycle,) = rig.controller.advance(now_ns=rig.now_ns)
    assert (cycle.requests, cycle.state) == (11, A)
    # Nothing of it is left for the next one.
    rig.tick()
    (cycle,) = rig.controller.advance(now_ns=rig.now_ns)
    assert cycle.requests == 0


def test_the_kernels_drops_keep_the_level_up_and_their_end_brings_calm() -> None:
    """SPEC M2: dropped requests count; L5: LRC cycles of calm."""
    rig = Rig(law={"LCDM": "drop_only"})
    rig.overload()
    for _ in range(10):
        assert rig.tick(PlaneReading(rig.udp, 1000, 0)) is C
        assert rig.controller.rps == 10_000
    assert [rig.tick() for _ in range(3)] == [C, C, N]
    assert rig.counters.kernel_dropped == 10_000


@pytest.mark.parametrize("late", [1, 2, 3, 7, 30])
@pytest.mark.parametrize("dropped", [0, 1, 6, 100, 1001])
def test_a_late_reading_is_spread_evenly_over_the_windows_it_covers(late: int, dropped: int) -> None:
    """DESIGN §3: a late read is spread evenly over the cycles it covers; to the last request."""
    rig = Rig()
    rig.guard.tick(late * 100 * MS + 5, [PlaneReading(rig.udp, dropped, 0)])
    counts = [cycle.requests for cycle in rig.controller.advance(now_ns=late * 100 * MS + 5)]
    assert len(counts) == late
    assert sum(counts) == dropped
    assert max(counts) - min(counts) <= 1
    assert counts == sorted(counts, reverse=True)


def test_readings_of_several_listeners_are_one_count() -> None:
    rig = Rig()
    rig.guard.tick(300 * MS, [PlaneReading(rig.udp, 4, 0), PlaneReading(rig.udp6, 5, 0)])
    assert [cycle.requests for cycle in rig.controller.advance(now_ns=300 * MS)] == [3, 3, 3]
    assert rig.counters.kernel_dropped == 9


# -- by method ---------------------------------------------------------------------------------------------------------


def in_kernel_drop(policy: Policy | None = None) -> Rig:
    """In critical_limit with the filter on, as the edge would set it; the counters start here."""
    rig = Rig(law={"LCDM": "drop_only"}, policy=policy)
    assert rig.overload() is C
    assert rig.guard.drops_in_kernel
    rig.guard.kernel_filters = True
    rig.counters.requests.clear()
    return rig


def test_drops_are_shared_out_by_the_samples_of_the_cycle() -> None:
    """One in 64 is let through and dropped here: these scale the figures by method."""
    rig = in_kernel_drop()
    for method, samples in (("REGISTER", 3), ("INVITE", 1), ("OPTIONS", 6)):
        for _ in range(samples):
            assert rig.receive(request(method)) is None
    assert rig.counters.kernel_sampled == 10
    rig.tick(PlaneReading(rig.udp, 630, 0))
    assert rig.counters.requests == {"REGISTER": 3 + 189, "INVITE": 1 + 63, "OPTIONS": 6 + 378}
    assert rig.controller.rps == (630 + 10) * 10


def test_the_samples_of_a_cycle_are_those_of_all_its_listeners() -> None:
    """What came in on one listener says the same of the other: no sample is used up by the first reading."""
    rig = in_kernel_drop()
    for _ in range(4):
        rig.receive(request("REGISTER"), rig.client("2001:db8:c::7"))
    rig.tick(PlaneReading(rig.udp, 100, 0), PlaneReading(rig.udp6, 200, 0))
    assert rig.counters.requests == {"REGISTER": 304}


def test_samples_do_not_outlive_their_cycle() -> None:
    rig = in_kernel_drop()
    rig.receive(request("REGISTER"))
    rig.tick()
    rig.receive(request("INVITE"))
    rig.tick(PlaneReading(rig.udp, 64, 0))
    assert rig.counters.requests == {"REGISTER": 1, "INVITE": 65}


def test_what_is_dropped_on_streams_is_no_sample() -> None:
    """The filter is on datagrams only: a stream's drops say nothing of them."""
    rig = in_kernel_drop()
    for _ in range(50):
        assert rig.receive(request("REGISTER"), rig.client(transport="tcp")) is None
    rig.receive(request("INVITE"))
    assert rig.counters.kernel_sampled == 1
    rig.tick(PlaneReading(rig.udp, 64, 0))
    assert rig.counters.requests == {"REGISTER": 50, "INVITE": 65}


def test_without_the_filter_a_drop_is_no_sample() -> None:
    rig = in_kernel_drop()
    rig.guard.kernel_filters = False
    rig.receive(request("INVITE"))
    assert rig.counters.kernel_sampled == 0


def test_a_cycle_without_a_sample_is_shared_out_by_what_was_offered_before() -> None:
    rig = in_kernel_drop()
    for method, n in (("REGISTER", 3), ("BYE", 100), ("INVITE", 1)):
        for _ in range(n):
            rig.receive(request(method, to_tag="x"))
    rig.tick()
    rig.tick(PlaneReading(rig.udp, 8, 0))
    assert rig.counters.requests == {"REGISTER": 9, "BYE": 100, "INVITE": 3}


def test_with_nothing_to_go_by_the_drops_are_of_no_method() -> None:
    rig = in_kernel_drop()
    rig.tick(PlaneReading(rig.udp, 8, 0))
    assert rig.counters.requests == {"OTHER": 8}


@given(
    st.lists(st.lists(st.sampled_from(sorted(SHEDDABLE_METHODS)), max_size=40), min_size=1, max_size=6),
    st.lists(st.integers(0, 10**7), min_size=6, max_size=6),
)
def test_shares_are_exact_in_sum_and_within_one_of_their_proportion(cycles: list[list[str]], drops: list[int]) -> None:
    """DESIGN §3: totals stay exact."""
    samples = Samples(SHEDDABLE_METHODS)
    for methods, dropped in zip(cycles, drops, strict=False):
        for method in methods:
            samples.add(method)
        shares = samples.share(dropped, {"INVITE": 3, "BYE": 5})
        assert sum(shares.values()) == dropped
        assert all(n >= 0 for n in shares.values())
        if methods:
            for method in set(methods):
                exact = dropped * methods.count(method) / len(methods)
                assert int(exact) <= shares.get(method, 0) <= ceil(exact)
            assert set(shares) <= set(methods)
        else:
            assert set(shares) <= {"INVITE"}


# -- overflow ----------------------------------------------------------------------------------------------------------


def test_overflow_counts_in_the_proportion_of_requests_among_the_datagrams_read() -> None:
    """DESIGN §3: else a storm of keep-alives would look like requests."""
    rig = Rig()
    for _ in range(3):
        rig.receive(request())
    for data in (b"\r\n\r\n", b"", b"\0\0\0\0", b"SIP/2.0 200 OK\r\n\r\n", b"garbage"):
        rig.receive(data)
    rig.tick(PlaneReading(rig.udp, 0, 800))
    assert rig.counters.overflowed == 300
    assert rig.controller.rps == 3030
    # Apart from the requests, of which verdicts were given.
    assert rig.counters.requests == {"INVITE": 3}
    assert total(rig.counters.requests) == judged(rig.guard)


def test_an_absorbed_ack_is_a_datagram_but_no_request() -> None:
    rig = Rig().into(A)
    invite = request()
    ack = ack_of(invite, rig.answered(invite).data)
    rig.tick()
    for _ in range(3):
        rig.receive(ack)
    rig.receive(request())
    rig.tick(PlaneReading(rig.udp, 0, 100))
    assert rig.counters.overflowed == 25


def test_a_storm_of_keep_alives_is_no_overload() -> None:
    rig = Rig()
    for _ in range(1000):
        rig.receive(b"\r\n\r\n")
    assert rig.tick(PlaneReading(rig.udp, 0, 100_000)) is N
    assert rig.controller.rps == 0


def test_with_nothing_read_all_that_was_lost_is_taken_for_requests() -> None:
    """The guard was too busy to look: RPS must not read low."""
    rig = Rig()
    rig.tick(PlaneReading(rig.udp, 0, 50))
    assert rig.controller.rps == 500


def test_the_proportion_is_the_listeners_own_and_this_cycles() -> None:
    """From that socket, in the cycle."""
    rig = Rig()
    for _ in range(10):
        rig.receive(request())
        rig.receive(b"", rig.client("2001:db8:c::7"))
        rig.receive(request(), rig.client(transport="tcp"))
    rig.tick(PlaneReading(rig.udp6, 0, 100))
    assert rig.counters.overflowed == 0
    rig.receive(b"")
    rig.tick(PlaneReading(rig.udp, 0, 100))
    assert rig.counters.overflowed == 0
    rig.tick(PlaneReading(rig.udp, 0, 100))
    assert rig.counters.overflowed == 100


def test_both_kinds_in_one_reading() -> None:
    rig = in_kernel_drop()
    rig.receive(request("INVITE"))
    rig.receive(b"")
    rig.tick(PlaneReading(rig.udp, 64, 10))
    assert (rig.counters.kernel_dropped, rig.counters.overflowed) == (64, 5)
    assert rig.controller.rps == (1 + 64 + 5) * 10


# -- when the filter is wanted -----------------------------------------------------------------------------------------


def test_the_filter_is_wanted_in_critical_limit_only() -> None:
    rig = Rig()
    wanted = []
    for load in (0, 11, 11, 11, 11, 11, 11, 0, 0, 0, 0):
        wanted.append((rig.controller.state is C, rig.guard.drops_in_kernel))
        for _ in range(load):
            rig.receive(request("OPTIONS"))
        rig.tick()
    assert (True, True) in wanted
    assert (False, False) in wanted
    assert all(critical == kernel for critical, kernel in wanted)


@pytest.mark.parametrize(("policy", "kernel_drop"), [(Policy(enforce=False), True), (Policy(), False)])
def test_the_filter_is_never_wanted_in_shadow_or_when_switched_off(policy: Policy, kernel_drop: bool) -> None:
    rig = Rig(policy=policy, kernel_drop=kernel_drop, law={"LCDM": "drop_only"})
    assert rig.overload() is C
    assert not rig.guard.drops_in_kernel


def test_under_excess_the_filter_waits_until_the_allowance_is_spent() -> None:
    """DESIGN §3, SPEC X1: LC / (1000 div TR) = 10 a window are served first, of whatever method."""
    rig = Rig(policy=Policy(shed="excess"), law={"LCDM": "drop_only"})
    assert rig.overload() is C
    for _ in range(3):
        for served in range(10):
            assert not rig.guard.drops_in_kernel, served
            rig.forwarded(request("BYE" if served % 3 else "INVITE", to_tag="x"))
        assert rig.guard.drops_in_kernel
        assert rig.receive(request("INVITE")) is None
        assert rig.tick(PlaneReading(rig.udp, 50, 0)) is C
