"""The guide's commands and numbers (docs/choosing.md, .ru.md): each is run as it stands, and its result is on the page."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from sipguard import Parameters, Policy
from sipguard.lab.sim.engine import Simulation
from sipguard.lab.sim.scenario_file import load, shipped
from sipguard.lab.sim.summary import summarise
from tests.cli.sipguard_command import sipguard

ROOT = Path(__file__).resolve().parents[2]
ENGLISH, RUSSIAN = ((ROOT / "docs" / name).read_text("utf-8") for name in ("choosing.md", "choosing.ru.md"))
#: Of the commands in the page these are made for the reader's own network, or take minutes.
NOT_RUN = (
    "sipguard tune --capture trunk.pcapng",
    "sipguard check tuned/",
    "sipguard run ",
    "sipguard tune --scenario ",
)


def commands(page: str) -> list[str]:
    """What stands in the page's fenced blocks, a line each, without the comments."""
    lines = [line for block in re.findall(r"^```sh\n(.*?)^```$", page, re.M | re.S) for line in block.splitlines()]
    return [re.sub(r"\s+# .*$", "", line) for line in lines]


def pictures(page: str) -> list[str]:
    return re.findall(r"!\[[^\]]+\]\((guide/[^)]+)\)", page)


def rows(page: str) -> list[str]:
    """The tables' rows of figures."""
    return [line for line in page.splitlines() if line.startswith("| `") and "…" not in line]


SIMULATED = [line for line in commands(ENGLISH) if line.startswith("sipguard simulate ") and "--list" not in line]


@cache
def simulated(line: str) -> dict[str, Any]:
    """The JSON of a `sipguard simulate` line."""
    ran = sipguard(*line.split()[1:], "--json")
    assert (ran.code, ran.err) == (0, "")
    found: dict[str, Any] = json.loads(ran.out)
    return found


def figures(line: str) -> list[str]:
    """A line's rows, as the page has them."""
    told = simulated(line)
    label = re.sub(r" --(compare|shed) \S+", "", line.removeprefix("sipguard simulate "))
    return [
        f"| `{label}` | {policy} | {of['goodput']:.1f} | {of['setup_p99_s']:.1f} s "
        f"| {of['offered'] / told['duration_s']:.0f} | {100 * of['retransmissions']:.0f} % |"
        for policy, of in ((policy, variant["summary"]) for policy, variant in told["policies"].items())
    ]


def replayed(line: str, directory: Path) -> list[dict[str, Any]]:
    """The sets of a `sipguard replay` line, after the line that makes its input, both as they stand."""
    every = commands(ENGLISH)
    making = every[every.index(line) - 1]
    assert making.endswith(f" > {line.split()[2]}")
    subprocess.run(["sh", "-c", making], cwd=directory, check=True, timeout=20)
    _, verb, file, *law = line.split()
    ran = sipguard(verb, directory / file, *law, "--json", "-")
    assert ran.code == 0
    found: list[dict[str, Any]] = json.loads(ran.out)["sets"]
    return found


def test_both_languages_have_the_same_commands_pictures_and_figures() -> None:
    assert commands(ENGLISH) == commands(RUSSIAN)
    assert pictures(ENGLISH) == pictures(RUSSIAN)
    assert len(re.findall(r"^#+ ", ENGLISH, re.M)) == len(re.findall(r"^#+ ", RUSSIAN, re.M))
    assert rows(ENGLISH) == [row.replace(",", ".").replace(" с |", " s |") for row in rows(RUSSIAN)]


def test_the_pictures_are_those_of_the_directory() -> None:
    there = sorted(f"guide/{path.name}" for path in (ROOT / "docs" / "guide").iterdir())
    assert sorted(pictures(ENGLISH)) == there


def test_every_command_is_tried_here_or_known_not_to_be() -> None:
    replays = [line for line in commands(ENGLISH) if line.startswith("sipguard replay ")]
    rest = [
        line
        for line in commands(ENGLISH)
        if line not in (*SIMULATED, *replays, "sipguard simulate --list") and not line.startswith(NOT_RUN)
    ]
    assert len(SIMULATED) == 11
    assert [line.split()[2] for line in replays] == ["even.csv", "few.csv", "morning.csv"]
    # What is left makes the inputs of the replays, each right before its own.
    assert [line.rpartition(" > ")[2] for line in rest] == ["even.csv", "few.csv", "morning.csv"]


@pytest.mark.parametrize("line", SIMULATED)
def test_what_simulate_gives_is_on_the_page(line: str) -> None:
    """DESIGN §5, SPEC X1: deterministic by seed, so to the last digit shown."""
    for row in figures(line):
        assert row in rows(ENGLISH)


def test_no_row_is_without_its_command() -> None:
    assert sorted(rows(ENGLISH)) == sorted(row for line in SIMULATED for row in figures(line))


def test_what_the_text_makes_of_it() -> None:
    """The sentences that compare, SPEC X1 and L2."""
    of = {
        row.split(" | ")[0].strip("| `") + " " + row.split(" | ")[1]: float(row.split(" | ")[2])
        for row in rows(ENGLISH)
    }
    assert of["steady-2x all"] < 1 < of["steady-2x excess"]
    assert of["mass-call --lc 300 excess"] < of["mass-call excess"] / 2
    assert of["mass-call none"] < of["mass-call excess"]
    assert of["steady-1.05x excess"] < of["steady-1.05x none"]
    assert of["steady-2x --lc 300 excess"] > of["steady-2x excess"] > of["steady-2x none"]
    assert of["steady-10x --lc 300 excess"] < of["steady-10x excess"] / 3
    assert of["steady-2x --lcdm denial_to_drop excess"] > of["steady-2x excess"]
    assert of["steady-2x --lcdm denial_to_drop --lc 300 excess"] < of["steady-2x none"]


def test_a_tr_that_does_not_divide_1000(tmp_path: Path) -> None:
    """SPEC P4, M1."""
    line = "sipguard replay even.csv --lc 800 --lcps 10000 --tr 500,600"
    exact, low = replayed(line, tmp_path)
    assert (exact["peak_rps"], exact["refused"], exact["requests"]) == (1000, 2500, 3000)
    assert (low["peak_rps"], low["refused"]) == (600, 0)
    assert "TR 500 reads 1000 and refuses 2500 of the 3000" in ENGLISH
    assert "TR 600 reads 600 and refuses 0." in ENGLISH


def test_an_lc_below_one_request_a_window(tmp_path: Path) -> None:
    """SPEC M1, L5."""
    coarse, fine = replayed("sipguard replay few.csv --lc 5 --tr 100,1000", tmp_path)
    assert (coarse["refused"], coarse["requests"], fine["refused"]) == (24, 25, 0)
    assert "24 of the 25 are refused. At TR 1000 0 are." in ENGLISH
    assert Parameters(LC=5, TR=100).relax_ms == 1500


def test_lcps_after_a_quiet_night(tmp_path: Path) -> None:
    """SPEC V3, M3."""
    sets = replayed("sipguard replay morning.csv --lc 400 --tr 1000 --lcps 50,150,400", tmp_path)
    assert [each["lcps_refused"] for each in sets] == [each["refused"] for each in sets] == [246, 146, 0]
    first, second = sets[0]["timeline"]["rows"][6:8]
    assert (first[1], first[2], second[1], second[2]) == (54, 246, 300, 0)
    assert "LCPS 50 refuses 246, LCPS 150 refuses 146, LCPS 400 refuses 0" in ENGLISH


def test_retry_after_for_everybody_the_same() -> None:
    """DESIGN §3, RFC 7339 5.10.2: the busiest second with the guard's own span, and with 2 s for all."""
    own = simulated("sipguard simulate registration-avalanche --shed excess --lcdm denial_only")
    assert own["policies"]["excess"]["summary"]["offered_peak"] == 1458
    storm = load("registration-avalanche")
    assert storm.guard is not None
    told = replace(
        storm.guard,
        parameters=storm.guard.parameters.replaced(LCDM="denial_only"),
        policy=Policy("excess"),
        retry_after_s=(2.0, 2.0),
    )
    # The busiest second comes well before this.
    short = replace(storm, guard=told, duration_s=100.0)
    assert summarise(Simulation(short, 1).run()).offered_peak == 7679
    for page in (ENGLISH, RUSSIAN):
        assert "1458" in page
        assert "7679" in page


@pytest.mark.parametrize(("mode", "served", "recovers_s"), [("drop_only", "50 %", None), ("denial_only", "37 %", 53.0)])
def test_the_set_that_tune_comes_to(mode: str, served: str, recovers_s: float | None) -> None:
    """The search itself takes minutes; what it recommends, and its neighbour by LCDM, are run."""
    law = "--shed excess --lc 190 --lcps 190 --pc 600 --lrc 15 --tr 200"
    summary = simulated(f"sipguard simulate mass-call {law} --lcdm {mode}")["policies"]["excess"]["summary"]
    assert f"{100 * summary['served'] / summary['wanted']:.0f} %" == served
    assert summary["recover_s"] == recovers_s
    for page in (ENGLISH, RUSSIAN):
        assert served in page


def test_the_list_names_them_all_in_sentences() -> None:
    ran = sipguard("simulate", "--list")
    assert ran.code == 0
    for name in shipped():
        assert name in ran.out
        storm = load(name)
        # "TITLE. ABOUT" is read as two sentences.
        assert not re.search(r"[.:;]", storm.title.replace("1.05x", ""))
        assert storm.about[0].isupper() or storm.about[0].isdigit()
        assert storm.about.endswith(".")
