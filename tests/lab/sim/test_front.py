"""The guard of the simulator against the law one request at a time (SPEC §3–§5, X1)."""

from __future__ import annotations

from typing import Literal

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sipguard.core.controller import OverloadController
from sipguard.core.levels import State
from sipguard.core.parameters import Lcdm
from sipguard.lab.sim.front import Front
from sipguard.lab.sim.methods import CODES, METHODS
from tests.lab.sim.storms import guard

MS = 1_000_000
NAMES = ["allow", "reject", "drop"]

# Slots of requests: (ms since the last slot, [(ms within it, method)]).
REQUESTS = st.lists(
    st.tuples(
        st.integers(1, 700),
        st.lists(
            st.tuples(st.integers(0, 24), st.sampled_from(["INVITE", "BYE", "REGISTER", "ACK"])),
            min_size=1,
            max_size=40,
        ),
    ),
    max_size=30,
)


@settings(deadline=None, max_examples=200)
@given(
    REQUESTS,
    st.sampled_from(["all", "excess"]),
    st.sampled_from(list(Lcdm)),
    st.integers(1, 300),
    st.integers(1, 60),
    st.sampled_from([100, 125, 200, 300, 600]),
)
def test_slots_give_the_verdicts_of_single_requests(
    slots: list[tuple[int, list[tuple[int, str]]]],
    shed: Literal["all", "excess"],
    lcdm: Lcdm,
    lc: int,
    lcps: int,
    tr: int,
) -> None:
    spec = guard(shed, LC=lc, LCPS=lcps, LCDM=lcdm, LRC=2, PC=2, TR=tr)
    front, law = Front(spec), OverloadController(spec.parameters, spec.policy)
    start_ms = 0
    for gap_ms, unordered in slots:
        start_ms += gap_ms
        requests = sorted(unordered, key=lambda request: request[0])
        times = np.array([(start_ms + within) * MS for within, _ in requests])
        methods = np.array([CODES[method] for _, method in requests], np.int8)
        found = [NAMES[code] for code in front.judge(times, methods)]
        assert found == [
            law.admit(METHODS[code], now_ns=time).value for time, code in zip(times.tolist(), methods, strict=True)
        ]
        start_ms += 24
    assert front.changes((start_ms + 5000) * MS) == [*_changes(law, (start_ms + 5000) * MS)]


def _changes(law: OverloadController, now_ns: int) -> list[object]:
    law.advance(now_ns=now_ns)
    return list(law.changes())


def test_a_restart_begins_in_normal() -> None:
    """DESIGN §4: the level lives in the process; its windows begin again at the restart (SPEC M1)."""
    front = Front(guard(LC=10, LCPS=10_000, TR=100, LRC=100))
    front.judge(np.full(50, 50 * MS), np.zeros(50, np.int8))
    assert front.judge(np.array([150 * MS]), np.zeros(1, np.int8)).tolist() == [1]
    front.restart(170 * MS)
    assert front.judge(np.array([180 * MS]), np.zeros(1, np.int8)).tolist() == [0]
    assert [(c.time_ns // MS, c.after, c.cause) for c in front.changes(200 * MS)] == [
        (100, State.AROUND, "level"),
        (170, State.NORMAL, "restart"),
    ]
    assert front.controller.next_deadline_ns == 270 * MS
