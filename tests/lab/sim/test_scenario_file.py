"""Scenario files: the shipped ones, and everything that can be wrong with one, told at once."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sipguard.core.parameters import Parameters
from sipguard.core.policy import Policy
from sipguard.lab.sim.engine import Simulation
from sipguard.lab.sim.problem import ScenarioError
from sipguard.lab.sim.scenario import Callers, Endpoints, Flood, Outage, Rate, Restart, Server
from sipguard.lab.sim.scenario_file import load, parse, shipped, with_law

#: Issue 3 §2 names these.
NAMED = {
    "mass-call",
    "registration-avalanche",
    "flood-one-source",
    "steady-1.05x",
    "steady-2x",
    "steady-10x",
    "square-wave",
    "ramp",
    "flash-one-second",
    "restart-under-load",
}

WHOLE = """
title = "All there is"
about = "Every key once."
duration_s = 60
[storm]
begins_s = 10
ends_s = 20
[network]
delay_ms = 5
loss = 0.01
t1_ms = 400
t2_ms = 3000
[guard]
LC = 50
lcdm = "drop_only"
shed = "excess"
shadow = true
refuse_methods = ["INVITE"]
drop_methods = ["INVITE", "REGISTER"]
retry_after_s = false
retry_after_methods = ["REGISTER"]
[[servers]]
name = "a"
capacity = 100
queue = 10
service = "fixed"
full = "refuse"
refuse_cost = 0.2
retransmission_cost = 0.4
thrash = 2
costs = { INVITE = 2 }
[[servers]]
name = "b"
capacity = 50.5
[[callers]]
name = "people"
rate = [[0, 1], [10, 5], [10, 2.5]]
repeat_s = 20
method = "INVITE"
spacing = "even"
transport = "tcp"
answer_s = 1
talk_s = 30
patience_s = 10
redial_probability = 0.5
redial_s = [1, 2]
attempts = 3
honours_retry_after = false
failover = true
[[endpoints]]
name = "phones"
count = 10
method = "SUBSCRIBE"
expires_s = 100
spread = 0.5
retry_s = [1, 2]
outage = { from_s = 1, until_s = 2, back_within_s = 3 }
[[floods]]
name = "tool"
rate = 7
method = "OPTIONS"
[[restarts]]
what = "server"
server = "b"
at_s = 5
away_s = 1
slow = 2
slow_s = 3
"""


def whole(**changes: Any) -> dict[str, Any]:
    document = tomllib.loads(WHOLE)
    document.update(changes)
    return document


def problems_of(document: dict[str, Any]) -> list[str]:
    with pytest.raises(ScenarioError) as told:
        parse(document, "x")
    return [str(problem) for problem in told.value.problems]


def test_the_named_ones_are_shipped() -> None:
    assert set(shipped()) >= NAMED


@pytest.mark.parametrize("name", shipped())
def test_a_shipped_scenario_is_read_and_runs(name: str) -> None:
    """Issue 3 §2: scenarios are data. Each is of its name, tells what it shows, and begins its storm before its end."""
    scenario = load(name)
    assert scenario.name == name
    assert len(scenario.about) > 40
    assert scenario.guard is not None
    assert scenario.storm_begins_s < (scenario.storm_ends_s or scenario.duration_s) <= scenario.duration_s
    ran = Simulation(replace(scenario, duration_s=3.0)).run()
    assert ran.measure.opened.sum() > 100


def test_every_key_arrives() -> None:
    scenario = parse(whole(), "x")
    assert scenario.guard is not None
    assert scenario.guard.parameters == Parameters(LC=50, LCDM="drop_only")
    assert scenario.guard.policy == Policy("excess", False, ["INVITE"], ["INVITE", "REGISTER"])
    assert scenario.guard.retry_after_s is None
    assert scenario.guard.retry_after_methods == {"REGISTER"}
    assert scenario.servers == (
        Server("a", 100.0, 10, "fixed", "refuse", 0.2, 0.4, 2.0, {"INVITE": 2.0}),
        Server("b", 50.5),
    )
    people, phones, tool = scenario.populations
    assert people == Callers(
        "people",
        Rate(((0, 1), (10, 5), (10, 2.5)), 20),
        "INVITE",
        "even",
        "tcp",
        1,
        30,
        10,
        0.5,
        (1, 2),
        3,
        False,
        True,
    )
    assert phones == Endpoints("phones", 10, "SUBSCRIBE", 100, 0.5, (1, 2), outage=Outage(1, 2, 3))
    assert tool == Flood("tool", Rate(((0, 7),)), "OPTIONS")
    assert scenario.restarts == (Restart("server", "b", 5, 1, 2, 3),)
    network = (scenario.delay_ms, scenario.loss, scenario.t1_ms, scenario.t2_ms)
    assert network == (5, 0.01, 400, 3000)
    assert (scenario.storm_begins_s, scenario.storm_ends_s, scenario.duration_s) == (10, 20, 60)


def test_all_problems_at_once() -> None:
    """DESIGN §5: everything wrong in a file, each with its key, the value and what is allowed."""
    told = problems_of(
        {
            "title": "",
            "duration_s": -1,
            "colour": "red",
            "guard": {"lc": 0, "tr": "fast", "shed": "some", "lce": 3},
            "network": {"loss": 1.5},
            "servers": [{"name": "a", "capacity": 0}],
            "callers": [{"name": "c", "rate": [[5, 1], [4, 1]], "spaceing": "even"}],
            "restarts": [{"what": "server", "at_s": 3}],
        }
    )
    keys = [text.split(" = ")[0] for text in told]
    assert sorted(keys) == sorted(
        [
            "title",
            "about",
            "duration_s",
            "colour",
            "guard.lc",
            "guard.tr",
            "guard.shed",
            "guard.lce",
            "network.loss",
            "servers[0].capacity",
            "callers[0].rate",
            "callers[0].spaceing",
        ]
    )
    assert "duration_s = -1: allowed is a number 1 … 86400 (s)" in told
    assert "guard.lc = 0: allowed is an integer 1 … 10000 (requests/s)" in told
    assert any("callers[0].spaceing = 'even'" in text and "(nearest: spacing)" in text for text in told)
    assert any(text.startswith("colour = 'red': allowed is one of the keys title, about") for text in told)


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"servers": []}, "servers"),
        ({"servers": "a"}, "servers"),
        ({"servers": [{"name": "a", "capacity": 1}] * 2, "restarts": []}, "servers.name"),
        ({"callers": [], "endpoints": [], "floods": []}, "callers"),
        ({"storm": {"begins_s": 30, "ends_s": 20}}, "storm"),
        ({"storm": {"ends_s": 61}}, "storm"),
        ({"storm": 5}, "storm"),
        ({"guard": [1]}, "guard"),
        ({"callers": [3]}, "callers[0]"),
        ({"duration_s": float("inf")}, "duration_s"),
        ({"duration_s": True}, "duration_s"),
        ({"restarts": [{"what": "server", "server": "z", "at_s": 3}]}, "restarts[0].server"),
        ({"restarts": [{"what": "sun", "at_s": 3}]}, "restarts[0].what"),
        ({"endpoints": [{"name": "e", "count": 2.5}]}, "endpoints[0].count"),
        (
            {"endpoints": [{"name": "e", "count": 1, "outage": {"from_s": 3, "until_s": 2, "back_within_s": 1}}]},
            "endpoints[0].outage",
        ),
        (
            {"endpoints": [{"name": "e", "count": 1, "outage": {"from_s": 3, "until_s": 4}}]},
            "endpoints[0].outage.back_within_s",
        ),
        ({"floods": [{"name": "f", "rate": 1, "method": "ACK"}]}, "floods[0].method"),
        ({"floods": [{"name": "f", "rate": [[1, 2], [3]]}]}, "floods[0].rate"),
        ({"floods": [{"name": "f", "rate": []}]}, "floods[0].rate"),
        ({"guard": {"retry_after_s": [30, 10]}}, "guard.retry_after_s"),
        ({"guard": {"refuse_methods": ["invite"]}}, "guard.refuse_methods"),
        ({"servers": [{"name": "a", "capacity": 1, "costs": {"INVITE": -1}}], "restarts": []}, "servers[0].costs"),
    ],
)
def test_one_thing_wrong(changes: dict[str, Any], key: str) -> None:
    told = problems_of(whole(**changes))
    assert [text.split(" = ")[0] for text in told] == [key]


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(WHOLE, encoding="utf-8")
    assert load(str(path)).name == "own"
    for text in (b"title = ", b"\xff\xfe"):
        path.write_bytes(text)
        with pytest.raises(ScenarioError, match="a TOML file"):
            load(str(path))
    with pytest.raises(ScenarioError, match="a file that can be read"):
        load(str(tmp_path / "none.toml"))
    with pytest.raises(ScenarioError, match="mass-call"):
        load("mass-cal")


def test_flags_win_over_the_scenario() -> None:
    """DESIGN §5: parameters are flags everywhere; what is not given stays."""
    scenario = with_law(parse(whole(), "x"), {"lc": 70, "shadow": False, "shed": None})
    assert scenario.guard is not None
    assert scenario.guard.parameters == Parameters(LC=70, LCDM="drop_only")
    assert scenario.guard.policy == Policy("excess", True, ["INVITE"], ["INVITE", "REGISTER"])
    assert scenario.guard.retry_after_s is None
    with pytest.raises(ScenarioError) as told:
        with_law(scenario, {"lc": 0, "shed": "half"})
    assert [problem.key for problem in told.value.problems] == ["shed", "lc"]


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("duration_s = 1" + "0" * 400, "duration_s"),
        ("duration_s = 0x" + "f" * 4000, "duration_s"),
        ("duration_s = nan", "duration_s"),
        ("duration_s = inf", "duration_s"),
        ("duration_s = 0.5", "duration_s"),
        ("duration_s = 1" + "0" * 5000, "scenario"),
        ("x = " + "[" * 100_000, "scenario"),
        ("x" + ".x" * 3000 + " = 1", "x"),
    ],
)
def test_numbers_and_depths_beyond_all_reason_are_told(tmp_path: Path, line: str, key: str) -> None:
    """Python itself refuses some of these with errors of its own: here each is a line with its key."""
    path = tmp_path / "big.toml"
    path.write_text(line + "\n" + WHOLE.replace("duration_s = 60\n", ""), encoding="utf-8")
    with pytest.raises(ScenarioError) as told:
        load(str(path))
    assert any(problem.key == key and len(str(problem)) < 500 for problem in told.value.problems)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"servers": [{"name": "a", "capacity": 1e-12}]}, "servers[0].capacity = 1e-12: allowed is a number 0.01"),
        (
            {"callers": [{"name": "c", "rate": 1, "patience_s": 0.0001}]},
            "patience_s = 0.0001: allowed is a number 0.001",
        ),
        ({"callers": [{"name": f"c{k}", "rate": 1} for k in range(20_000)]}, "at most 100 servers and 100 populations"),
        ({"callers": [{"name": f"c{k}", "rate": 90_000} for k in range(3)]}, "at most 200000 requests/s in all"),
        ({"endpoints": [{"name": f"e{k}", "count": 900_000} for k in range(3)]}, "at most 2000000 devices in all"),
    ],
)
def test_what_would_need_more_than_a_machine_has_is_refused(changes: dict[str, Any], told: str) -> None:
    assert any(told in problem for problem in problems_of(whole(**changes)))
