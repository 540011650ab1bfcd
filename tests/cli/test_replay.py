"""`sipguard replay`: DESIGN §5 columns; the worked cases of SPEC as CSV through the command."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sipguard.cli.main import app
from tests.cli.sipguard_command import Ran, sipguard
from tests.shared import SHARED

VECTORS = SHARED / "spec" / "vectors"
VERDICTS = ("allow", "reject", "drop")


def cases(name: str) -> list[dict[str, Any]]:
    """The cases without a change of parameters: a CSV has no row for one."""
    path = VECTORS / name
    if not path.exists():
        return []
    return [
        case
        for case in json.loads(path.read_text(encoding="utf-8"))
        if all(event[1] != "SET" for event in case["events"])
    ]


ALL = [
    pytest.param(case, id=f"{name.split('.')[0]}-{case['name']}")
    for name in ("vectors.json", "beyond.json")
    for case in cases(name)
]


def flags_of(case: dict[str, Any]) -> list[str]:
    flags = [part for name, value in case["parameters"].items() for part in (f"--{name.lower()}", str(value))]
    policy = case.get("policy", {})
    if "shed" in policy:
        flags += ["--shed", policy["shed"]]
    if policy.get("enforce") is False:
        flags += ["--shadow"]
    for key in ("refuse_methods", "drop_methods"):
        if key in policy:
            flags += [f"--{key.replace('_', '-')}", ",".join(policy[key])]
    return flags


def replayed(tmp_path: Path, text: str, *flags: str) -> tuple[Ran, list[list[str]], list[list[str]]]:
    """In this process, for speed: the same command from its arguments on. `sipguard` elsewhere here is a real process."""
    source, ticks, verdicts = (tmp_path / name for name in ("events.csv", "t.csv", "v.csv"))
    source.write_text(text, encoding="utf-8")
    result = CliRunner().invoke(
        app, ["replay", str(source), "--ticks", str(ticks), "--verdicts", str(verdicts), *flags]
    )
    return Ran(result.exit_code, result.stdout, result.stderr), rows(ticks), rows(verdicts)


def rows(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


@pytest.mark.parametrize("case", ALL)
def test_a_worked_case_as_csv(case: dict[str, Any], tmp_path: Path) -> None:
    """SPEC §1–§5, §7: the ticks and the verdicts to the last number."""
    assert set(case.get("policy", {})) <= {"shed", "enforce", "refuse_methods", "drop_methods"}
    lines = [f"{time},{method},{n}" for time, method, n in case["events"]]
    ran, ticks, verdicts = replayed(
        tmp_path, "\n".join(["time_ms,method,count", *lines, ""]), "--until", str(case["until_ms"]), *flags_of(case)
    )
    # An input without any request is told as such.
    assert (ran.code, ran.err.startswith("warning: no SIP request in ")) == (0, not case["events"])
    assert len(ran.err.splitlines()) == (not case["events"])
    assert ticks == [
        ["time_ms", "requests", "rps", "state"],
        *([str(cell) for cell in tick] for tick in case["expect"]["ticks"]),
    ]
    expected = []
    for (time, method, _), runs in zip(case["events"], case["expect"]["verdicts"], strict=True):
        expected.append([str(time), method, *(str(sum(n for verdict, n in runs if verdict == v)) for v in VERDICTS)])
    assert verdicts == [["time_ms", "method", *VERDICTS], *expected]


@pytest.mark.skipif(not VECTORS.exists(), reason="the specification is not beside this checkout")
def test_the_cases_are_there() -> None:
    assert len(ALL) > 100


SMALL = "time_ms,method,count\n50,INVITE,30\n150,INVITE,1\n150,BYE,2\n"
SMALL_FLAGS = ("--lc", "100", "--tr", "100", "--lrc", "2")


def test_the_worked_small_case(tmp_path: Path) -> None:
    """By hand: 30 in the first 100 ms is 300/s > 100 (L1); INVITE gets 503 (V2), BYE passes (V1); two calm cycles (L5)."""
    ran, ticks, verdicts = replayed(tmp_path, SMALL, *SMALL_FLAGS, "--until", "300")
    assert (ran.code, ran.out) == (0, "")
    assert ticks[1:] == [
        ["100", "30", "300", "around_critical_limit"],
        ["200", "3", "30", "around_critical_limit"],
        ["300", "0", "0", "normal"],
    ]
    assert verdicts[1:] == [
        ["50", "INVITE", "30", "0", "0"],
        ["150", "INVITE", "0", "1", "0"],
        ["150", "BYE", "2", "0", "0"],
    ]


def test_without_until_the_open_window_stays_open(tmp_path: Path) -> None:
    _, ticks, _ = replayed(tmp_path, SMALL, *SMALL_FLAGS)
    assert [tick[0] for tick in ticks[1:]] == ["100"]


def test_without_outputs_a_summary_names_the_states_and_when(tmp_path: Path) -> None:
    ran = sipguard("replay", "-", *SMALL_FLAGS, "--until", "300", stdin=SMALL.encode())
    assert ran.code == 0
    assert "at the end: normal" in ran.out
    assert "allow 32, reject 1, drop 0" in ran.out
    states = [line.split()[1:4:2] for line in ran.out.splitlines() if line.startswith("│")]
    assert states == [["0", "normal"], ["100", "around_critical_limit"], ["300", "normal"]]


def test_shadow_counts_apart(tmp_path: Path) -> None:
    """SPEC X2."""
    ran = sipguard("replay", "-", *SMALL_FLAGS, "--shadow", stdin=SMALL.encode())
    assert "allow 33, reject 0, drop 0" in ran.out
    assert "shadow: would reject 1, would drop 0" in ran.out


def test_one_output_goes_to_standard_output() -> None:
    ran = sipguard("replay", "-", *SMALL_FLAGS, "--verdicts", "-", stdin=SMALL.encode())
    assert ran.out == "time_ms,method,allow,reject,drop\n50,INVITE,30,0,0\n150,INVITE,0,1,0\n150,BYE,2,0,0\n"


def test_a_reader_that_has_enough_ends_it_quietly() -> None:
    """128 + SIGPIPE, as a shell would tell it of a program that the signal ended."""
    many = "".join(f"{time},INVITE\n" for time in range(100_000)).encode()
    with subprocess.Popen(
        [sys.executable, "-m", "sipguard", "replay", "-", "--verdicts", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        try:
            process.stdin.write(many)
            process.stdin.close()
        except BrokenPipeError:
            process.stdin = None
        assert process.stderr.read() == b""
        assert process.wait(timeout=60) == 141


@pytest.mark.parametrize(
    ("text", "line", "allowed"),
    [
        ("time_ms,method,count\n1,INVITE,1\n2,INVITE,-1\n", 3, "how many at that instant, an integer 0 … 999999999"),
        ("time_ms,method\n1,INVITE\n\nx,INVITE\n", 4, "milliseconds"),
        ("time_ms,method\n1,IN VITE\n", 2, "a SIP method name"),
        ("time_ms,verb\n1,INVITE\n", 1, "the columns time_ms,method[,count]"),
        ("hello\n", 1, "the columns time_ms,method[,count]"),
    ],
)
def test_a_bad_row_is_exit_2_with_its_line(tmp_path: Path, text: str, line: int, allowed: str) -> None:
    source = tmp_path / "events.csv"
    source.write_text(text, encoding="utf-8")
    ran = sipguard("replay", source, "--ticks", tmp_path / "t.csv")
    assert ran.code == 2
    assert ran.err.startswith(f"error: {source}: line {line}: ")
    assert f"allowed is {allowed}" in ran.err
    assert len(ran.err.splitlines()) == 1


def test_wrong_parameters_files_and_until_are_exit_2(tmp_path: Path) -> None:
    source = tmp_path / "events.csv"
    source.write_text(SMALL, encoding="utf-8")
    ran = sipguard("replay", source, "--lc", "0", "--tr", "5")
    assert ran.code == 2
    assert [text.split(" = ")[0] for text in ran.err.splitlines()] == ["error: --lc", "error: --tr"]
    assert sipguard("replay", source, "--until", "soon").code == 2
    assert sipguard("replay", tmp_path / "none.csv").code == 2
    assert sipguard("replay", source, "--ticks", tmp_path / "no" / "t.csv").code == 2
    assert sipguard("replay", source, "--ticks", source).code == 2
    assert source.read_text(encoding="utf-8") == SMALL


def test_parameters_come_from_a_configuration_too(tmp_path: Path) -> None:
    config = tmp_path / "sipguard.toml"
    config.write_text('lc = 100\ntr = 100\nlcdm = "drop_only"\n', encoding="utf-8")
    ran = sipguard("replay", "-", "-c", config, "--verdicts", "-", stdin=SMALL.encode())
    assert "150,INVITE,0,0,1" in ran.out
