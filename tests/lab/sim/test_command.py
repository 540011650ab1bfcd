"""`sipguard simulate` as a user runs it (DESIGN §5: 0 ok, 2 wrong usage or configuration)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sipguard.lab.sim.scenario_file import shipped
from tests.cli.sipguard_command import sipguard

SMALL = """
title = "Small"
about = "A step, for tests."
duration_s = 20
[storm]
begins_s = 5
ends_s = 10
[guard]
lc = 50
lcdm = "denial_only"
lrc = 5
[[servers]]
name = "a"
capacity = 100
[[callers]]
name = "c"
method = "MESSAGE"
rate = [[5, 20], [5, 200], [10, 200], [10, 20]]
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(SMALL, encoding="utf-8")
    return path


def test_the_table(small: Path) -> None:
    ran = sipguard("simulate", small, "--compare", "none,all,excess")
    assert (ran.code, ran.err) == (0, "")
    heading = next(line for line in ran.out.splitlines() if "none" in line)
    assert heading.replace("┃", " ").split() == ["none", "all", "excess"]
    for row in (
        "goodput",
        "set-up delay p99",
        "refused",
        "retransmissions",
        "time to detect",
        "time to recover",
        "oscill",
    ):
        assert row in ran.out
    assert "LC 50" in ran.out


def test_the_files(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "out"
    ran = sipguard("simulate", small, "--compare", "all,excess", "--out", out)
    assert ran.code == 0
    assert sorted(path.name for path in out.iterdir()) == ["small.html", "small.json", "small.png"]
    assert (out / "small.png").read_bytes()[:4] == b"\x89PNG"
    assert list(json.loads((out / "small.json").read_text("utf-8"))["policies"]) == ["all", "excess"]
    assert "data:image/png;base64," in (out / "small.html").read_text("utf-8")
    assert all(str(out / f"small.{kind}") in ran.out.replace("\n", "") for kind in ("png", "html", "json"))


def test_json_flags_and_seeds(small: Path) -> None:
    """The scenario's own policy without --compare; a flag wins; the same seed, the same answer; another one, another."""
    first, again, other = (
        sipguard("simulate", small, "--json", "--lc", "70", "--shed", "excess", "--seed", seed) for seed in "334"
    )
    told = json.loads(first.out)
    assert (list(told["policies"]), told["parameters"]["LC"], told["parameters"]["LRC"]) == (["excess"], 70, 5)
    assert first.out == again.out
    assert first.out.replace('"seed": 3', "") != other.out.replace('"seed": 4', "")


def test_a_title_is_text(small: Path) -> None:
    """What looks like orders to the printer is printed."""
    title = "a [/red] [bold]b[/bold] :smile:"
    small.write_text(SMALL.replace('"Small"', f'"{title}"'), encoding="utf-8")
    ran = sipguard("simulate", small)
    assert (ran.code, ran.err) == (0, "")
    assert title in " ".join(ran.out.split())


def test_without_a_guard_there_is_no_law_to_tell(small: Path) -> None:
    ran = sipguard("simulate", small, "--compare", "none", "--lc", "5", "--tr", "600")
    assert (ran.code, ran.err) == (0, "")
    assert "LC" not in ran.out
    told = json.loads(sipguard("simulate", small, "--compare", "none", "--json").out)
    assert told["parameters"] is None


def test_a_period_that_reads_low_is_told(small: Path) -> None:
    """SPEC P4."""
    ran = sipguard("simulate", small, "--tr", "600")
    assert ran.code == 0
    assert ran.err.startswith("warning: TR = 600: 1000 div TR is 1, so RPS reads 40 % low")


def test_a_full_disk_costs_no_table(small: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "small.json").symlink_to("/dev/full")
    ran = sipguard("simulate", small, "--out", tmp_path / "out")
    assert ran.code == 2
    assert ran.err == f"error: {tmp_path / 'out' / 'small.json'}: No space left on device\n"
    assert "goodput" in ran.out


def test_the_list() -> None:
    ran = sipguard("simulate", "--list")
    assert ran.code == 0
    for name in shipped():
        assert name in ran.out


def test_wrong_usage_is_exit_2_one_line_each(small: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.toml"
    bad.write_text(SMALL.replace("capacity = 100", "capacity = 0\ncolour = 1"), encoding="utf-8")
    ran = sipguard("simulate", bad)
    assert ran.code == 2
    assert [line.split(" = ")[0] for line in ran.err.splitlines()] == [
        "error: servers[0].capacity",
        "error: servers[0].colour",
    ]
    ran = sipguard("simulate", small, "--lc", "0", "--tr", "1")
    assert (ran.code, [line.split(" = ")[0] for line in ran.err.splitlines()]) == (2, ["error: --lc", "error: --tr"])
    for arguments in (
        ("no-such-storm",),
        (),
        (small, "--compare", "some"),
        (small, "--out", bad),
        (small, "--seed", "-1"),
    ):
        assert sipguard("simulate", *arguments).code == 2


def test_another_capacity(small: Path) -> None:
    """What tune promises for a capacity can be looked at: the same run."""
    told = json.loads(sipguard("simulate", small, "--capacity", "400/s", "--json").out)
    assert told["capacity"] == 400
    ran = sipguard("simulate", small, "--capacity", "0")
    assert ran.code == 2
    assert ran.err.startswith("error: --capacity = '0': allowed is requests per second")
