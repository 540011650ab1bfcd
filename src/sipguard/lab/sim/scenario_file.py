"""Scenarios as TOML: shipped ones by name, own ones by path. Unknown keys are errors; all problems are told at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

from sipguard.core.parameters import TERMS, ParameterError, Parameters
from sipguard.core.policy import Policy
from sipguard.lab.sim import fields as f
from sipguard.lab.sim.methods import METHODS
from sipguard.lab.sim.problem import ScenarioError
from sipguard.lab.sim.scenario import (
    Callers,
    Endpoints,
    Flood,
    Guard,
    Outage,
    Population,
    Restart,
    Scenario,
    Server,
)
from sipguard.problem import Problem
from sipguard.toml import TomlError, read_toml

_PLACES = resources.files("sipguard.lab") / "scenarios"
_SENT = tuple(method for method in METHODS if method not in ("ACK", "BYE"))

#: What a run may hold in memory: what was begun in 32 s, and every device.
MAX_PARTS, MAX_DEVICES, MAX_RATE = 100, 2_000_000, 200_000

_TOP = {
    "title": f.text("a title", required=True),
    "about": f.text("what it shows, in a sentence or two", required=True),
    "duration_s": f.number(1, 86_400, "s", required=True),
}
_TABLES = ("storm", "network", "guard")
_LISTS = ("servers", "callers", "endpoints", "floods", "restarts")
_STORM = {"begins_s": f.number(0, 86_400, "s"), "ends_s": f.number(0, 86_400, "s")}
_NETWORK = {
    "delay_ms": f.integer(1, 1000, "ms one way"),
    "loss": f.number(0, 1, "of the datagrams, each way"),
    "t1_ms": f.integer(10, 10_000, "ms, RFC 3261 T1"),
    "t2_ms": f.integer(10, 60_000, "ms, RFC 3261 T2"),
}
_GUARD_OWN = {
    "shed": f.choice("all", "excess"),
    "shadow": f.boolean(),
    "refuse_methods": f.methods(),
    "drop_methods": f.methods(),
    "retry_after_s": f.span(1, 3600, "s", optional=True),
    "retry_after_methods": f.methods(),
}
_SERVER = {
    "name": f.text("a name", required=True),
    "capacity": f.number(0.01, 1e6, "requests of cost 1 per second", required=True),
    "queue": f.integer(1, 1_000_000, "requests"),
    "service": f.choice("exponential", "fixed"),
    "full": f.choice("drop", "refuse"),
    "refuse_cost": f.number(0, 100, "times the mean service time"),
    "retransmission_cost": f.number(0, 100, "times a first copy's work"),
    "thrash": f.number(0, 100, "times more work when the queue is full"),
    "costs": f.costs(),
}
_CALLERS = {
    "name": f.text("a name", required=True),
    "rate": f.rate(),
    "repeat_s": f.number(0, 86_400, "s", above=True),
    "method": f.choice(*_SENT),
    "spacing": f.choice("poisson", "even"),
    "transport": f.choice("udp", "tcp"),
    "answer_s": f.number(0, 600, "s, mean"),
    "talk_s": f.number(0, 86_400, "s, mean; 0: no ACK and no BYE"),
    "patience_s": f.number(0.001, 600, "s"),
    "redial_probability": f.number(0, 1, "of those who failed"),
    "redial_s": f.span(0, 3600, "s"),
    "attempts": f.integer(1, 1000, "tries in all"),
    "honours_retry_after": f.boolean(),
    "failover": f.boolean(),
}
_ENDPOINTS = {
    "name": f.text("a name", required=True),
    "count": f.integer(1, 1_000_000, "devices", required=True),
    "method": f.choice(*_SENT),
    "expires_s": f.number(1, 86_400, "s"),
    "spread": f.number(0, 1, "of expires_s"),
    "retry_s": f.span(0.1, 86_400, "s", optional=True),
    "transport": f.choice("udp", "tcp"),
    "honours_retry_after": f.boolean(),
    "failover": f.boolean(),
    "outage": f.anything("a table with from_s, until_s, back_within_s"),
}
_OUTAGE = {
    "from_s": f.number(0, 86_400, "s", required=True),
    "until_s": f.number(0, 86_400, "s", required=True),
    "back_within_s": f.number(0, 86_400, "s", required=True),
}
_FLOOD = {key: _CALLERS[key] for key in ("name", "rate", "repeat_s", "method", "spacing")}
_RESTART = {
    "what": f.choice("server", "guard", required=True),
    "server": f.text("the name of a server"),
    "at_s": f.number(0, 86_400, "s", required=True),
    "away_s": f.number(0, 3600, "s"),
    "slow": f.number(1, 1000, "times slower after it"),
    "slow_s": f.number(0, 3600, "s"),
}


def shipped() -> list[str]:
    """The names of the scenarios that come with sipguard."""
    return sorted(place.name.removesuffix(".toml") for place in _PLACES.iterdir() if place.name.endswith(".toml"))


def load(name_or_path: str) -> Scenario:
    """A shipped scenario by name, or a file by path (anything with a / or .toml). Raises ScenarioError."""
    path = Path(name_or_path)
    by_path = path.suffix == ".toml" or len(path.parts) > 1
    if not by_path and name_or_path not in shipped():
        allowed = f"a path to a .toml file or one of {', '.join(shipped())}"
        raise ScenarioError((Problem("scenario", name_or_path, allowed),))
    try:
        document = read_toml(path if by_path else _PLACES / f"{name_or_path}.toml")
    except OSError as error:
        allowed = f"a file that can be read ({error.strerror})"
        raise ScenarioError((Problem("scenario", name_or_path, allowed),)) from None
    except TomlError as error:
        raise ScenarioError((Problem("scenario", name_or_path, f"a TOML file ({error})"),)) from None
    return parse(document, path.stem if by_path else name_or_path)


def parse(document: Mapping[str, Any], name: str) -> Scenario:
    """A scenario from TOML's tables. Raises ScenarioError with everything that is wrong."""
    problems: list[Problem] = []
    top = f.read({k: v for k, v in document.items() if k not in (*_TABLES, *_LISTS)}, _TOP, "", problems)
    _explain_unknown(document, problems)
    storm = f.read(document.get("storm", {}), _STORM, "storm", problems)
    network = f.read(document.get("network", {}), _NETWORK, "network", problems)
    guard = _guard(document.get("guard", {}), problems)
    servers = tuple(Server(**table) for _, table in _tables(document, "servers", _SERVER, problems) if table)
    populations = (
        *_callers(document, problems),
        *_endpoints(document, problems),
        *_floods(document, problems),
    )
    restarts = _restarts(document, [server.name for server in servers], problems)
    _check_whole(document, problems, servers, populations)
    if not problems and not storm.get("begins_s", 0) <= storm.get("ends_s", top["duration_s"]) <= top["duration_s"]:
        problems.append(Problem("storm", storm, "begins_s before ends_s before duration_s"))
    if problems:
        raise ScenarioError(tuple(problems))
    return Scenario(
        name=name,
        servers=servers,
        populations=populations,
        guard=guard,
        restarts=restarts,
        storm_begins_s=storm.get("begins_s", 0.0),
        storm_ends_s=storm.get("ends_s"),
        **top,
        **network,
    )


def with_law(scenario: Scenario, flags: Mapping[str, object]) -> Scenario:
    """The scenario with other parameters or another policy: the keys of [guard] (None: as it is). Raises ScenarioError."""
    given = {key: value for key, value in flags.items() if value is not None}
    if not given or scenario.guard is None:
        return scenario
    problems: list[Problem] = []
    old = scenario.guard
    kept = {
        **{name.lower(): value for name, value in old.parameters.as_dict().items()},
        "shed": old.policy.shed,
        "shadow": not old.policy.enforce,
        "refuse_methods": sorted(old.policy.refuse_methods),
        "drop_methods": sorted(old.policy.drop_methods),
    }
    made = _guard({**kept, **given}, problems)
    if problems:
        raise ScenarioError(tuple(problem._replace(key=problem.key.removeprefix("guard.")) for problem in problems))
    law = replace(old, parameters=made.parameters, policy=made.policy)
    return replace(scenario, guard=law)


def with_capacity(scenario: Scenario, capacity: float) -> Scenario:
    """All servers in proportion, so that together they can do so much, requests of cost 1 per second."""
    servers = (replace(server, capacity=server.capacity * capacity / scenario.capacity) for server in scenario.servers)
    return replace(scenario, servers=tuple(servers))


# -- inside ------------------------------------------------------------------------------------------------------------


def _explain_unknown(document: Mapping[str, Any], problems: list[Problem]) -> None:
    """An unknown table at the top: say which tables there are."""
    keys = ", ".join((*_TOP, *_TABLES, *_LISTS))
    for i, problem in enumerate(problems):
        if problem.key in document and problem.key not in _TOP:
            problems[i] = problem._replace(allowed=f"one of the keys {keys}")


def _tables(
    document: Mapping[str, Any], key: str, fields: Mapping[str, f.Field], problems: list[Problem]
) -> list[tuple[str, dict[str, Any]]]:
    """The tables of a list [[key]], each with its place; an empty one for a table that has problems."""
    listed = document.get(key, [])
    if not isinstance(listed, list):
        problems.append(Problem(key, listed, f"tables, each under [[{key}]]"))
        return []
    found = []
    for i, table in enumerate(listed):
        before = len(problems)
        values = f.read(table, fields, f"{key}[{i}]", problems)
        found.append((f"{key}[{i}]", {} if len(problems) > before else values))
    return found


def _guard(table: object, problems: list[Problem]) -> Guard:
    names = [term.name.lower() for term in TERMS]
    law, own = {}, table
    if isinstance(table, Mapping):
        # Upper or lower case (SPEC P1); what is wrong with them the parameters say themselves.
        law = {key: value for key, value in table.items() if key.lower() in names and (key.isupper() or key.islower())}
        own = {key: value for key, value in table.items() if key not in law}
    values = f.read(own, {**dict.fromkeys(names, f.anything()), **_GUARD_OWN}, "guard", problems)
    parameters = Parameters()
    try:
        parameters = Parameters.of(law)
    except ParameterError as error:
        problems += [Problem(f"guard.{name.lower()}", value, allowed) for name, value, allowed in error.problems]
    policy = {key: values[key] for key in ("shed", "refuse_methods", "drop_methods") if key in values}
    retry = {key: values[key] for key in ("retry_after_s", "retry_after_methods") if key in values}
    return Guard(parameters, Policy(enforce=not values.get("shadow", False), **policy), **retry)


def _callers(document: Mapping[str, Any], problems: list[Problem]) -> list[Population]:
    found: list[Population] = []
    for _, values in _tables(document, "callers", _CALLERS, problems):
        if values:
            repeat_s = values.pop("repeat_s", None)
            rate = replace(values.pop("rate"), repeat_s=repeat_s)
            found.append(Callers(rate=rate, **values))
    return found


def _floods(document: Mapping[str, Any], problems: list[Problem]) -> list[Population]:
    found: list[Population] = []
    for _, values in _tables(document, "floods", _FLOOD, problems):
        if values:
            repeat_s = values.pop("repeat_s", None)
            found.append(Flood(rate=replace(values.pop("rate"), repeat_s=repeat_s), **values))
    return found


def _endpoints(document: Mapping[str, Any], problems: list[Problem]) -> list[Population]:
    found: list[Population] = []
    for where, values in _tables(document, "endpoints", _ENDPOINTS, problems):
        cut = values.pop("outage", None)
        before = len(problems)
        outage = None if cut is None else f.read(cut, _OUTAGE, f"{where}.outage", problems)
        if outage is not None and len(problems) == before and outage["from_s"] > outage["until_s"]:
            problems.append(Problem(f"{where}.outage", cut, "from_s before until_s"))
        if values and len(problems) == before:
            found.append(Endpoints(outage=None if outage is None else Outage(**outage), **values))
    return found


def _restarts(document: Mapping[str, Any], servers: list[str], problems: list[Problem]) -> tuple[Restart, ...]:
    found = []
    for where, values in _tables(document, "restarts", _RESTART, problems):
        if not values:
            continue
        name = values.setdefault("server", servers[0] if servers else "")
        if servers and name not in servers:
            problems.append(Problem(f"{where}.server", name, f"one of the servers {', '.join(servers)}"))
        found.append(Restart(**values))
    return tuple(found)


def _check_whole(
    document: Mapping[str, Any],
    problems: list[Problem],
    servers: tuple[Server, ...],
    populations: tuple[Population, ...],
) -> None:
    """What is wrong between parts that are each right."""
    if not document.get("servers"):
        problems.append(Problem("servers", None, "at least one table [[servers]]"))
    if not any(document.get(key) for key in ("callers", "endpoints", "floods")):
        problems.append(Problem("callers", None, "at least one table [[callers]], [[endpoints]] or [[floods]]"))
    if len(servers) > MAX_PARTS or len(populations) > MAX_PARTS:
        given = f"{len(servers)} servers and {len(populations)} populations"
        problems.append(Problem("servers", given, f"at most {MAX_PARTS} servers and {MAX_PARTS} populations"))
        return
    devices = sum(each.count for each in populations if isinstance(each, Endpoints))
    if devices > MAX_DEVICES:
        problems.append(Problem("endpoints.count", devices, f"at most {MAX_DEVICES} devices in all"))
    peak = sum(max(level for _, level in each.rate.points) for each in populations if not isinstance(each, Endpoints))
    if peak > MAX_RATE:
        problems.append(Problem("callers.rate", peak, f"at most {MAX_RATE} requests/s in all, at the peaks"))
    for key, names in (("servers", [s.name for s in servers]), ("callers", [p.name for p in populations])):
        twice = sorted({name for name in names if names.count(name) > 1})
        problems += [Problem(f"{key}.name", name, "a name of its own") for name in twice]
