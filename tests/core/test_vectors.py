"""The worked cases beside the specification: every tick and verdict to the last number (SPEC §1–§7)."""

from __future__ import annotations

import json
from itertools import groupby
from typing import Any

import pytest

from sipguard import OverloadController, Parameters, Policy, Verdict
from tests.shared import SHARED

VECTORS = SHARED / "spec" / "vectors"
EXPECTED = {"vectors.json": 88, "beyond.json": 54}


def cases(name: str) -> list[dict[str, Any]]:
    path = VECTORS / name
    if not path.exists():
        return []
    found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return found


ALL = [pytest.param(case, id=f"{file.split('.')[0]}-{case['name']}") for file in EXPECTED for case in cases(file)]


def controller_for(case: dict[str, Any]) -> OverloadController:
    return OverloadController(Parameters(**case["parameters"]), Policy(**case.get("policy", {})), origin_ns=0)


def run(case: dict[str, Any], feed: str) -> tuple[list[list[Any]], list[list[list[Any]]]]:
    controller = controller_for(case)
    parameters = controller.parameters
    ticks: list[list[Any]] = []
    verdicts: list[list[list[Any]]] = []

    def advance(now_ns: int) -> None:
        ticks.extend([c.time_ns // 10**6, c.requests, c.rps, c.state.value] for c in controller.advance(now_ns=now_ns))

    for time_ms, what, more in case["events"]:
        now_ns = time_ms * 10**6
        if what == "SET":
            parameters = parameters.replaced(**more)
            controller.reconfigure(parameters, now_ns=now_ns)
            verdicts.append([])
        elif feed == "many":
            verdicts.append([[v.value, n] for v, n in controller.admit_many(what, more, now_ns=now_ns)])
        elif feed == "judge":
            advance(now_ns)
            single = [controller.judge(what, now_ns=now_ns) for _ in range(more)]
            verdicts.append([[v.value, len(list(run_))] for v, run_ in groupby(single)])
        else:
            if feed == "extra":
                advance(now_ns)
            one_by_one: list[Verdict] = [controller.admit(what, now_ns=now_ns) for _ in range(more)]
            verdicts.append([[v.value, len(list(run_))] for v, run_ in groupby(one_by_one)])
    advance(case["until_ms"] * 10**6)
    return ticks, verdicts


@pytest.mark.parametrize("feed", ["single", "many", "extra", "judge"])
@pytest.mark.parametrize("case", ALL)
def test_vector(case: dict[str, Any], feed: str) -> None:
    ticks, verdicts = run(case, feed)
    assert ticks == case["expect"]["ticks"]
    assert verdicts == case["expect"]["verdicts"]


@pytest.mark.skipif(not VECTORS.exists(), reason="the specification is not beside this checkout")
@pytest.mark.parametrize(("name", "count"), EXPECTED.items())
def test_no_case_is_missing(name: str, count: int) -> None:
    assert len(cases(name)) == count
