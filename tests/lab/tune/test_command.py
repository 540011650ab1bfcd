"""`sipguard tune` as a user runs it (DESIGN §5: 0 ok, 2 wrong usage or configuration)."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.sipguard_command import sipguard
from tests.lab.tune.loads import steps

SMALL = """
title = "Small"
about = "A step, for tests."
duration_s = 20
[storm]
begins_s = 5
ends_s = 10
[[servers]]
name = "a"
capacity = 60
[[callers]]
name = "c"
method = "MESSAGE"
rate = [[5, 20], [5, 200], [10, 200], [10, 20]]
"""


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    path = tmp_path / "step.csv"
    rows = steps((10, 100), (10, 800), (20, 100))
    path.write_text("time_ms,method,count\n" + "".join(f"{t:.3f},{m},{n}\n" for t, m, n in rows), encoding="utf-8")
    return path


def test_from_capture_to_a_configuration_that_check_accepts(capture: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "out"
    ran = sipguard("tune", "--capture", capture, "--capacity", "200/s", "--trials", "24", "--jobs", "1", "--out", out)
    assert (ran.code, ran.err) == (0, "")
    for row in (
        "Open loop",
        "storms: 10 … 20 s",
        "Pareto front",
        "recommended",
        "time to recover",
        "why",
    ):
        assert row in ran.out
    assert ran.out.endswith(f"{out / 'sipguard.toml'}\n{out / 'tune.json'}\n{out / 'tune.png'}\n")
    checked = sipguard("check", out / "sipguard.toml")
    assert checked.code == 0
    assert "error" not in checked.err
    law = tomllib.loads((out / "sipguard.toml").read_text("utf-8"))
    result = json.loads((out / "tune.json").read_text("utf-8"))
    assert {key.lower(): value for key, value in result["recommended"]["values"].items()} == law
    # What the configuration does to the same input is what was promised.
    replayed = sipguard("replay", capture, "-c", out / "sipguard.toml", "--json", "-")
    first, promised = json.loads(replayed.out)["sets"][0], result["recommended"]["figures"]
    shares = f"{100 * promised['goodput']:.1f} %, {100 * (promised['refused'] + promised['dropped']) / promised['offered']:.1f} %"
    assert ["goodput, share shed", shares] in [re.split(r"  +", line.strip()) for line in ran.out.splitlines()]
    for ours, theirs in (
        ("refused", "refused"),
        ("dropped", "dropped"),
        ("passed", "allowed"),
        ("alarms", "incidents"),
    ):
        assert promised[ours] == first[theirs]


def test_json_and_the_same_seed(capture: Path) -> None:
    how = ("tune", "--capture", capture, "--capacity", "200", "--trials", "14", "--json", "--objective", "recovery")
    one, two = sipguard(*how, "--jobs", "1"), sipguard(*how, "--jobs", "2")
    assert (one.code, one.err) == (0, "")
    assert json.loads(one.out) == json.loads(two.out)
    assert json.loads(one.out)["objective"] == "recovery"


def test_a_scenario_with_another_capacity(tmp_path: Path) -> None:
    path = tmp_path / "small.toml"
    path.write_text(SMALL, encoding="utf-8")
    ran = sipguard(
        "tune", "--scenario", path, "--capacity", "80/s", "--trials", "4", "--jobs", "1", "--json", "--lc", "70"
    )
    assert (ran.code, ran.err) == (0, "")
    result = json.loads(ran.out)
    assert (result["load"]["kind"], result["load"]["capacity"]) == ("scenario", 80)
    assert result["recommended"]["values"]["LC"] == 70


def test_own_method_sets_are_kept_in_the_configuration(capture: Path, tmp_path: Path) -> None:
    ran = sipguard(
        *("tune", "--capture", capture, "--capacity", "200", "--trials", "3", "--jobs", "1", "--out", tmp_path),
        *("--refuse-methods", "REGISTER", "--drop-methods", "REGISTER,OPTIONS"),
    )
    assert ran.code == 0
    assert "100.0 % of the requests cannot be shed" in " ".join(ran.out.split())
    law = tomllib.loads((tmp_path / "sipguard.toml").read_text("utf-8"))
    assert (law["refuse_methods"], law["drop_methods"]) == (["REGISTER"], ["OPTIONS", "REGISTER"])
    assert sipguard("check", tmp_path / "sipguard.toml").code == 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), ["no load to tune for", "--capture FILE", "mass-call"]),
        (("--capture", "x.csv", "--scenario", "ramp"), ["--scenario = 'ramp'", "--capture or --scenario, not both"]),
        (("--capture", "x.csv"), ["--capacity", "as 800/s or 800"]),
        (("--capture", "x.csv", "--capacity", "0"), ["--capacity = '0'"]),
        (("--capture", "x.csv", "--capacity", "1e3"), ["--capacity = '1e3'"]),
        (("--capture", "x.csv", "--capacity", "9", "--objective", "joy"), ["--objective = 'joy'", "goodput, refused"]),
        (("--scenario", "ramp", "--lc", "0", "--shed", "some"), ["--lc = 0", "1 … 10000", "--shed = 'some'"]),
        (
            ("--scenario", "ramp", "--ports", "5060", "--to", "192.0.2.1", "--at-guard"),
            ["--ports = ['5060']: allowed is given with --capture", "--to = ['192.0.2.1']", "--at-guard = True"],
        ),
        (("--capture", "-", "--capture", "-", "--capacity", "9"), ["--capture = '-': allowed is standard input once"]),
        (
            ("--scenario", "ramp", "--jobs", "2", "--dask", "tcp://127.0.0.1:1"),
            ["--jobs = 2: allowed is given without"],
        ),
        (("--scenario", "no-such"), ["no-such", "mass-call"]),
        (("--capture", "/no/such.pcap", "--capacity", "9"), ["/no/such.pcap", "No such file"]),
    ],
)
def test_mistakes_are_told(arguments: tuple[str, ...], told: list[str]) -> None:
    ran = sipguard("tune", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert "Traceback" not in ran.err
    for part in told:
        assert part in ran.err


def test_a_capture_without_requests(tmp_path: Path) -> None:
    path = tmp_path / "empty.csv"
    path.write_text("time_ms,method\n", encoding="utf-8")
    ran = sipguard("tune", "--capture", path, "--capacity", "100")
    assert ran.code == 2
    assert ran.err == f"error: {path}: no SIP request in the input (no row in it counts any): allowed is at least one\n"


@pytest.mark.parametrize(("package", "extra"), [("optuna", "tune"), ("distributed", "tune"), ("numpy", "lab")])
def test_a_missing_package_is_named_with_its_command(capture: Path, tmp_path: Path, package: str, extra: str) -> None:
    """As on a machine without it: a module of its name that says what Python says when there is none."""
    (tmp_path / "gone").mkdir()
    text = f"raise ModuleNotFoundError('none here', name={package!r})\n"
    (tmp_path / "gone" / f"{package}.py").write_text(text, encoding="utf-8")
    how = ["--capture", str(capture), "--capacity", "100", "--trials", "1"]
    where = ["--dask", "tcp://127.0.0.1:1"] if package == "distributed" else ["--jobs", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "sipguard", "tune", *how, *where],
        capture_output=True,
        timeout=60,
        check=False,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "gone")},
    )
    assert done.returncode == 2
    assert f"pip install 'sipguard[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_picture_is_of_the_result_and_the_same_again(capture: Path, tmp_path: Path) -> None:
    how = ("tune", "--capture", capture, "--capacity", "200/s", "--trials", "13", "--jobs", "1")
    for name in ("one", "two"):
        assert sipguard(*how, "--out", tmp_path / name).code == 0
    picture = (tmp_path / "one" / "tune.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert picture == (tmp_path / "two" / "tune.png").read_bytes()
    assert sipguard(*how, "--lc", "100", "--out", tmp_path / "two").code == 0
    assert picture != (tmp_path / "two" / "tune.png").read_bytes()


def test_a_place_that_cannot_be_written_is_told_before_anything_is_tried(capture: Path, tmp_path: Path) -> None:
    # So many trials would take longer than the test waits.
    how = ("tune", "--capture", capture, "--capacity", "200/s", "--trials", "100000")
    (tmp_path / "file").write_text("", encoding="utf-8")
    (tmp_path / "dir" / "tune.png").mkdir(parents=True)
    for name in ("file", "dir"):
        ran = sipguard(*how, "--out", tmp_path / name)
        assert (ran.code, ran.out) == (2, "")
        assert f"--out = '{tmp_path / name}': allowed is a directory that can be written" in ran.err


@pytest.mark.parametrize("rows", ["604800001,INVITE\n", "1,INVITE\n9300000000000,INVITE\n999999999999999,INVITE\n"])
def test_more_than_a_week_is_told(tmp_path: Path, rows: str) -> None:
    path = tmp_path / "long.csv"
    path.write_text("time_ms,method\n" + rows, encoding="utf-8")
    ran = sipguard("tune", "--capture", path, "--capacity", "9")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"error: {path}: the input lasts ")
    assert ran.err.endswith(" h: allowed is at most 7 d 0 h\n")
    assert ran.err.count("\n") == 1


def session_members(session: int) -> list[int]:
    """The living processes of a session."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, of = path.read_text("utf-8", "replace").rpartition(")")[2].split()[:4]
        except (OSError, ValueError):
            continue
        if int(of) == session and state != "Z":
            found.append(int(path.parent.name))
    return found


def until(wanted: Callable[[], bool], what: str, within_s: float = 30) -> None:
    end = time.monotonic() + within_s
    while not wanted():
        assert time.monotonic() < end, what
        time.sleep(0.01)


@pytest.mark.parametrize("to_all", [False, True], ids=["to it alone", "to all, as a terminal does"])
@pytest.mark.parametrize(
    # 2: the first process that belongs to the pool is on its way; 4: itself, the tracker of resources and both workers.
    ("processes", "later_s"),
    [(1, 1.0), (2, 0), (3, 0), (4, 0), (4, 1.0)],
)
def test_an_interrupt_ends_it_and_every_process_of_it(
    tmp_path: Path, processes: int, later_s: float, to_all: bool
) -> None:
    path = tmp_path / "small.toml"
    path.write_text(SMALL, encoding="utf-8")
    command = [sys.executable, "-m", "sipguard", "tune", "--scenario", str(path), "--jobs", "2", "--trials", "10000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True) as ran:
        until(lambda: len(session_members(ran.pid)) >= processes, "so many processes")
        time.sleep(later_s)
        (os.killpg if to_all else os.kill)(ran.pid, signal.SIGINT)
        try:
            out, err = ran.communicate(timeout=30)
        finally:
            if ran.poll() is None:
                os.killpg(ran.pid, signal.SIGKILL)
    assert (ran.returncode, out, err.replace(b"\n", b"")) == (130, b"", b"")
    until(lambda: not session_members(ran.pid), "none left")


def test_a_pool_that_grows_later_is_ended_too(capture: Path) -> None:
    """One candidate begins one process; the reasons' neighbours begin the other."""
    ran = sipguard("tune", "--capture", capture, "--capacity", "200", "--trials", "1", "--jobs", "2", "--json")
    assert (ran.code, ran.err) == (0, "")


def test_who_kills_it_kills_its_workers(tmp_path: Path) -> None:
    path = tmp_path / "small.toml"
    path.write_text(SMALL, encoding="utf-8")
    command = [sys.executable, "-m", "sipguard", "tune", "--scenario", str(path), "--jobs", "2", "--trials", "10000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True) as ran:
        until(lambda: len(session_members(ran.pid)) >= 4, "both workers")
        time.sleep(1)
        ran.kill()
    try:
        until(lambda: not session_members(ran.pid), "none left")
    finally:
        for pid in session_members(ran.pid):
            os.kill(pid, signal.SIGKILL)
