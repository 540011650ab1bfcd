"""SIPp above LC, in each LCDM, on UDP and on TCP: 503 as it must look, silence, recovery, each when the specification says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from sipguard import Parameters
from tests.peers.guard import Change, Guard
from tests.peers.sipp import Message, Result, Sipp
from tests.peers.testbed import Testbed
from tests.peers.timeline import AROUND, CRITICAL, NORMAL, law_says, offered, outcomes, state_at, wall_to_monotonic_ns

pytestmark = pytest.mark.peer

TRANSPORTS = pytest.mark.parametrize("transport", ["udp", "tcp"])
LC, LRC, PC, TR_MS = 100, 4, 4, 200
TR_NS = TR_MS * 1_000_000
PATHS = {  # LCDM: the states visited
    "denial_only": [AROUND, NORMAL],
    "drop_only": [CRITICAL, NORMAL],
    "denial_to_drop": [AROUND, CRITICAL, NORMAL],
}


def law(lcdm: str) -> dict[str, str | int]:
    return {"lc": LC, "lcdm": lcdm, "lcps": 10_000, "lrc": LRC, "pc": PC, "tr": TR_MS}


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of each INVITE of an overload, by Call-ID."""

    answered: set[str]
    refused: set[str]
    silent: set[str]

    @classmethod
    def of(cls, result: Result) -> Fate:
        ends = {call_id: status for call_id, (_, status) in outcomes(result.messages, "INVITE").items()}
        assert set(ends.values()) <= {0, 200, 503}
        return cls(*({c for c, status in ends.items() if status == wanted} for wanted in (200, 503, 0)))


def require_changes_as_the_law_says(guard: Guard, requests: Sequence[Message], lcdm: str) -> list[Change]:
    """SPEC §3, §4: the same changes in the same order, each within one TR of its time by SIPp's own record."""
    changes = guard.changes()
    origin_ns = int(guard.status()["origin_ns"])
    parameters = Parameters(LC=LC, LCDM=lcdm, LCPS=10_000, LRC=LRC, PC=PC, TR=TR_MS)
    last_ns = wall_to_monotonic_ns(requests[-1].wall_s)
    expected = law_says(requests, parameters, origin_ns, last_ns + 100 * TR_NS)
    assert [change.after for change in changes] == [change.after for change in expected] == PATHS[lcdm]
    assert [change.before for change in changes] == [NORMAL, *PATHS[lcdm][:-1]]
    for change, wanted in zip(changes, expected, strict=True):
        assert (change.time_ns - origin_ns) % TR_NS == 0  # M1: on the grid
        assert abs(change.time_ns - wanted.time_ns) <= TR_NS, (change, wanted)
    return changes


def require_rules_at_changes(changes: Sequence[Change]) -> None:
    """SPEC L1, L2, L5: the figures in the guard's log are those that make each change."""
    assert changes[0].rps > LC
    if len(changes) == 3:
        assert changes[1].rps > LC
        assert changes[1].patience_run == PC
        assert changes[1].time_ns - changes[0].time_ns >= PC * TR_NS
    assert changes[-1].rps < LC
    assert changes[-1].relax_run == LRC


def require_verdict_of_the_state(result: Result, changes: Sequence[Change]) -> None:
    """SPEC V2: an INVITE got what the state at its time gives; within one TR of a change either is right."""
    wanted = {NORMAL: 200, AROUND: 503, CRITICAL: 0}
    judged = dict.fromkeys(wanted, 0)
    for call_id, (invite, status) in outcomes(result.messages, "INVITE").items():
        state = state_at(wall_to_monotonic_ns(invite.wall_s), changes, TR_NS)
        if state is not None:
            assert status == wanted[state], f"{call_id} in {state} got {status or 'nothing'}"
            judged[state] += 1
    visited = {change.after for change in changes} - {NORMAL}
    assert {state for state, n in judged.items() if n} >= visited, judged


@dataclass(frozen=True, slots=True)
class Runs:
    """What SIPp says of a calm, calls that outlast it, an overload and the calm after it."""

    calm: Result
    long: Result  # up before the overload, ended by their callers in the middle of it
    load: Result
    again: Result

    @classmethod
    def through(cls, bed: Testbed, guard: Guard, transport: str) -> Runs:
        """Run them; every call of the calms and every long call succeeds, and every end of the overload is a legal one."""

        def calls(prefix: str, scenario: str, number: int, rate: int, pause_ms: int = 0) -> Sipp:
            return bed.caller(
                scenario,
                guard.address,
                calls=number,
                rate=rate,
                pause_ms=pause_ms,
                transport=transport,
                call_prefix=prefix,
            )

        calm = calls("calm", "uac_call", 15, 15).finish()
        calm.require_all(15)
        waiting = calls("long", "uac_call", 5, 50, pause_ms=2200)
        waiting.wait_sent(10)  # INVITE and ACK of each
        overload = calls("load", "uac_overload", 1000, 400)
        long, load = waiting.finish(), overload.finish()
        long.require_all(5)
        load.require_all(1000)
        guard.await_state(NORMAL)
        again = calls("again", "uac_call", 15, 15).finish()
        again.require_all(15)
        return cls(calm, long, load, again)

    def offered(self) -> list[Message]:
        """All requests that count, by time."""
        return offered(m for run in (self.calm, self.long, self.load, self.again) for m in run.messages)


@TRANSPORTS
@pytest.mark.parametrize("lcdm", PATHS)
def test_overload_and_recovery(bed: Testbed, lcdm: str, transport: str) -> None:
    """SPEC L1–L7, M1, M2, V1, V2 and RFC 3261 17.1.1.3 with real peers: refused, dropped, recovered, each in its time."""
    kamailio = bed.kamailio(bed.callee("uas_call"))
    guard = bed.guard(kamailio, **law(lcdm))
    runs = Runs.through(bed, guard, transport)
    requests = runs.offered()
    changes = require_changes_as_the_law_says(guard, requests, lcdm)
    require_rules_at_changes(changes)
    require_verdict_of_the_state(runs.load, changes)
    deepest = CRITICAL if CRITICAL in PATHS[lcdm] else AROUND
    assert {state_at(wall_to_monotonic_ns(m.wall_s), changes, 0) for m in runs.long.sent("BYE")} == {deepest}

    fate = Fate.of(runs.load)
    assert bool(fate.refused) == (AROUND in PATHS[lcdm])
    assert bool(fate.silent) == (CRITICAL in PATHS[lcdm])
    # RFC 3261 17.1.1.3: an ACK for each refusal; none of them, and no shed INVITE, reached Kamailio (SPEC M2).
    assert {m.call_id for m in runs.load.sent("ACK")} == fate.refused | fate.answered
    assert {s.call_id for s in kamailio.seen(call_prefix="load-")} == fate.answered
    status = guard.status()
    assert status["absorbed"] == len(fate.refused)
    assert sum(status["requests"].values()) == len(requests)
    shed = {"reject": len(fate.refused), "drop": len(fate.silent)}
    assert status["verdicts"] == {"allow": len(requests) - sum(shed.values()), **shed}
    if transport == "tcp" or not fate.silent:
        assert status["kernel_dropped"] == 0


@TRANSPORTS
def test_refused_reinvite_and_register(bed: Testbed, transport: str) -> None:
    """RFC 3261 14.1, 17.1.1.3 and SPEC M2: a re-INVITE is refused, its ACK absorbed, and the call lives on to its BYE.

    A REGISTER with one Via is told when to come again: 10 to 30 s (RFC 7339 5.10.2).
    """
    kamailio = bed.kamailio(bed.callee("uas_call"))
    guard = bed.guard(kamailio, **law("denial_only"))
    calls = bed.caller(
        "uac_reinvite_refused",
        guard.address,
        calls=5,
        rate=20,
        pause_ms=1800,
        transport=transport,
        call_prefix="dialog",
    )
    calls.wait_sent(10)  # INVITE and ACK of each
    load = bed.caller("uac_options_probe", guard.address, calls=900, rate=300, transport=transport, call_prefix="load")
    guard.await_state(AROUND)
    registers = bed.caller(
        "uac_register_refused", guard.address, calls=5, rate=50, transport=transport, call_prefix="register"
    )
    registers.finish().require_all(5)
    result = calls.finish()
    result.require_all(5)
    probes = load.finish()
    probes.require_all(900)

    in_dialogs: dict[str, list[tuple[str, int]]] = {}
    for seen in kamailio.seen(call_prefix="dialog-"):
        in_dialogs.setdefault(seen.call_id, []).append((seen.method, seen.cseq))
    assert list(in_dialogs.values()) == [[("INVITE", 1), ("ACK", 1), ("BYE", 3)]] * 5
    assert kamailio.seen("REGISTER", call_prefix="register-") == []
    status = guard.status()
    refused_probes = len(probes.received(503))
    assert refused_probes > 0
    assert status["absorbed"] == 5
    assert status["verdicts"] == {"allow": 20 - 5 + 900 - refused_probes, "reject": 5 + 5 + refused_probes, "drop": 0}


@TRANSPORTS
def test_excess_goes_on_serving_lc(bed: Testbed, transport: str) -> None:
    """SPEC X1: in critical_limit each window passes LC / (1000 div TR) requests, no more and no fewer; the rest is silence."""
    kamailio = bed.kamailio()
    guard = bed.guard(kamailio, shed="excess", **law("drop_only"))
    load = bed.caller("uac_options_probe", guard.address, calls=1200, rate=400, transport=transport)
    result = load.finish()
    result.require_all(1200)
    guard.await_state(NORMAL)
    changes = guard.changes()
    assert [change.after for change in changes] == PATHS["drop_only"]
    origin_ns = int(guard.status()["origin_ns"])
    entry = (changes[0].time_ns - origin_ns) // TR_NS
    answered: dict[int, int] = {}
    sent: dict[int, int] = {}
    for message, status in outcomes(result.messages, "OPTIONS").values():
        window = (wall_to_monotonic_ns(message.wall_s) - origin_ns) // TR_NS
        sent[window] = sent.get(window, 0) + 1
        answered[window] = answered.get(window, 0) + (status == 200)
        assert status in (0, 200)
    # The windows from the entry on that saw more than the allowance, but for the last, which SIPp may have cut short.
    full = [window for window in sorted(sent) if window >= entry and sent[window] > LC * TR_MS // 1000][:-1]
    assert len(full) >= 8
    # A request near a border may be in the next window by the guard's clock: the sum is exact but for the two ends.
    assert abs(sum(answered[window] for window in full) - len(full) * LC * TR_MS // 1000) <= 4, answered
    assert guard.status()["verdicts"]["allow"] == len(kamailio.seen("OPTIONS", call_prefix="call-"))


def test_shadow_measures_and_lets_everything_through(bed: Testbed) -> None:
    """SPEC X2: the states are visited and the verdicts counted apart, and every call succeeds above LC."""
    kamailio = bed.kamailio(bed.callee("uas_call"))
    guard = bed.guard(kamailio, shadow=True, **law("denial_to_drop"))
    load = bed.caller("uac_call", guard.address, calls=300, rate=120)
    load.finish().require_all(300)
    guard.await_state(NORMAL)
    assert [change.after for change in guard.changes()] == PATHS["denial_to_drop"]
    status = guard.status()
    assert status["verdicts"] == {"allow": 900, "reject": 0, "drop": 0}
    assert min(status["shadow"].values()) > 0
    assert (status["kernel_dropped"], status["absorbed"]) == (0, 0)
