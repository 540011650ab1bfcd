"""How every command ends: 0, 1, 2, 130, 141, each for one thing and quietly (DESIGN §5)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.sipguard_command import sipguard

ROWS = "".join(f"{number},INVITE\n" for number in range(200_000)).encode()
EVENTS = "time_ms,method,count\n50,INVITE,30\n150,INVITE,1\n"

#: Commands that say something and end by themselves.
SAYING = [
    ("--help",),
    ("--version",),
    ("params",),
    ("params", "--lang", "ru"),
    ("params", "--json"),
    ("simulate", "--list"),
    ("tune", "--help"),
    ("check", "CONFIG"),
    ("replay", "EVENTS"),
    ("replay", "EVENTS", "--json", "-"),
    ("replay", "EVENTS", "--ticks", "-"),
    ("replay", "EVENTS", "--fail-if", "requests>0"),
]


#: What makes root obey permissions like anybody.
WITHOUT_PRIVILEGE = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")


def process(
    arguments: tuple[str, ...], tmp_path: Path, before: tuple[str, ...] = (), **how: object
) -> subprocess.Popen[bytes]:
    """The command, with its words for files made."""
    files = {"EVENTS": tmp_path / "e.csv", "CONFIG": tmp_path / "c.toml"}
    files["EVENTS"].write_text(EVENTS, encoding="utf-8")
    files["CONFIG"].write_text("lc = 100\n", encoding="utf-8")
    command = [str(files.get(word, word)) for word in arguments]
    return subprocess.Popen([*before, sys.executable, "-m", "sipguard", *command], stderr=subprocess.PIPE, **how)  # type: ignore[call-overload, no-any-return]


@pytest.mark.parametrize("arguments", SAYING)
def test_a_reader_that_has_gone_is_141_and_no_word(arguments: tuple[str, ...], tmp_path: Path) -> None:
    """As `| head -1`: 128 + SIGPIPE, the same for all that say much or little."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        with process(arguments, tmp_path, stdout=writing) as ran:
            assert ran.stderr is not None
            said = ran.stderr.read()
            assert ran.wait(60) == 141
    finally:
        os.close(writing)
    assert [text for text in said.decode().splitlines() if not text.startswith("failed: ")] == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
@pytest.mark.parametrize("arguments", SAYING)
def test_an_output_that_takes_nothing_is_2_in_one_line(arguments: tuple[str, ...], tmp_path: Path) -> None:
    with open("/dev/full", "wb") as full, process(arguments, tmp_path, stdout=full) as ran:
        assert ran.stderr is not None
        said = ran.stderr.read().decode().splitlines()
        assert ran.wait(60) == 2
    assert [text for text in said if not text.startswith("failed: ")] == ["error: No space left on device"]


def test_an_interrupt_is_130_without_a_word_and_the_rows_stay(tmp_path: Path) -> None:
    """In the middle of a reading that would go on: whole rows, as far as it came."""
    ticks, verdicts, result = tmp_path / "t.csv", tmp_path / "v.csv", tmp_path / "r.json"
    result.write_text("the last one", encoding="utf-8")
    outputs = ("--ticks", str(ticks), "--verdicts", str(verdicts), "--json", str(result))
    with process(("replay", "-", *outputs), tmp_path, stdin=subprocess.PIPE) as ran:
        assert ran.stdin is not None
        assert ran.stderr is not None
        ran.stdin.write(ROWS)
        ran.stdin.flush()
        deadline = time.monotonic() + 60
        while not (verdicts.exists() and verdicts.stat().st_size > 100_000):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        ran.send_signal(signal.SIGINT)
        assert ran.stderr.read() == b""
        assert ran.wait(60) == 130
    rows = verdicts.read_text("utf-8").splitlines()
    assert rows[:2] == ["time_ms,method,allow,reject,drop", "0,INVITE,1,0,0"]
    assert all(row == f"{number},INVITE,1,0,0" for number, row in enumerate(rows[1:]) if number < 100)
    assert all(row.count(",") == 4 for row in rows)
    assert all(row.count(",") == 3 for row in ticks.read_text("utf-8").splitlines())
    assert result.read_text("utf-8") == "the last one"


@pytest.mark.parametrize(
    "kind", ["directory", "no directory", "a file as directory", "no permission", "too long a name"]
)
@pytest.mark.parametrize("flag", ["--ticks", "--verdicts", "--json", "--html", "--picture"])
def test_an_output_that_cannot_be_written_is_told_before_anything_is_read(tmp_path: Path, flag: str, kind: str) -> None:
    """By reading from a pipe that nobody has written to: it would wait for ever."""
    suffix = ".svg" if flag == "--picture" else ".x"
    name = tmp_path / f"out{suffix}"
    before: tuple[str, ...] = ()
    if kind == "directory":
        name.mkdir()
    elif kind == "no directory":
        name = tmp_path / "absent" / f"out{suffix}"
    elif kind == "a file as directory":
        (tmp_path / "file").touch()
        name = tmp_path / "file" / f"out{suffix}"
    elif kind == "too long a name":
        name = tmp_path / ("x" * 300 + suffix)
    else:
        name.touch(0o400)
        before = WITHOUT_PRIVILEGE if os.geteuid() == 0 else ()
    ticks = tmp_path / "t.csv"
    ticks.write_text("the last one", encoding="utf-8")
    others = () if flag == "--ticks" else ("--ticks", str(ticks))
    with process(("replay", "-", flag, str(name), *others), tmp_path, before, stdin=subprocess.PIPE) as ran:
        assert ran.stderr is not None
        said = ran.stderr.read().decode()
        assert ran.wait(60) == 2
    assert said.startswith(f"error: {flag} = ")
    assert ": allowed is a file that can be written (" in said
    assert len(said.splitlines()) == 1
    assert ticks.read_text("utf-8") == "the last one"


def test_a_result_keeps_the_place_of_the_last_one(tmp_path: Path) -> None:
    """A link stays one, a mode stays, a device is written to; nothing is left beside them."""
    events = tmp_path / "e.csv"
    events.write_text(EVENTS, encoding="utf-8")
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    real.write_text("the last one", encoding="utf-8")
    real.chmod(0o640)
    link.symlink_to(real)
    ran = sipguard("replay", events, "--json", link, "--html", "/dev/null")
    assert (ran.code, ran.err) == (0, "")
    assert link.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o640
    assert '"sipguard-replay/1"' in real.read_text("utf-8")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["e.csv", "link.json", "real.json"]


@pytest.mark.parametrize(
    ("package", "arguments", "told"),
    [
        ("matplotlib", ("EVENTS", "--picture", "PICTURE"), "none without matplotlib: pip install 'sipguard[lab]'"),
        ("zstandard", ("ZSTD",), "zstd needs the package zstandard: pip install 'sipguard[lab]'"),
    ],
)
def test_a_package_that_is_missing_is_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str, arguments: tuple[str, ...], told: str
) -> None:
    (tmp_path / "without").mkdir()
    (tmp_path / "without" / f"{package}.py").write_text("raise ImportError\n", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "without"))
    files = {"EVENTS": tmp_path / "e.csv", "PICTURE": tmp_path / "p.png", "ZSTD": tmp_path / "z"}
    files["EVENTS"].write_text(EVENTS, encoding="utf-8")
    files["ZSTD"].write_bytes(b"\x28\xb5\x2f\xfd")
    ran = sipguard("replay", *(files.get(word, word) for word in arguments))
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("error: ")
    assert told in ran.err
    assert len(ran.err.splitlines()) == 1
    assert not files["PICTURE"].exists()


def test_standard_output_that_is_closed_cannot_be_asked_for(tmp_path: Path) -> None:
    events = tmp_path / "e.csv"
    events.write_text(EVENTS, encoding="utf-8")
    shell = 'exec "$@" >&-'
    command = [sys.executable, "-m", "sipguard", "replay", str(events), "--ticks", "-"]
    ran = subprocess.run(["sh", "-c", shell, "sh", *command], capture_output=True, timeout=60, check=False)
    assert ran.returncode == 2
    assert ran.stderr == b"error: --ticks = '-': allowed is a standard output that is open\n"


def test_an_error_that_nobody_can_be_told_is_still_2(tmp_path: Path) -> None:
    """Standard error on a full disk, or closed."""
    with Path("/dev/full").open("wb") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "sipguard", "simulate", "nosuch"], stderr=full, timeout=60, check=False
        )
    assert ran.returncode == 2
    command = f"exec {sys.executable} -m sipguard simulate nosuch 2>&-"
    assert subprocess.run(["sh", "-c", command], timeout=60, check=False).returncode == 2


def test_without_standard_error_the_work_is_done(tmp_path: Path) -> None:
    command = f"exec {sys.executable} -m sipguard simulate flash-one-second 2>&-"
    ran = subprocess.run(["sh", "-c", command], stdout=subprocess.PIPE, timeout=100, check=False)
    assert ran.returncode == 0
    assert b"goodput" in ran.stdout


@pytest.mark.parametrize("later_s", [0, 0.02, 0.1])
@pytest.mark.parametrize("arguments", [("simulate", "mass-call"), ("tune", "--scenario", "mass-call")])
def test_an_interrupt_while_the_commands_libraries_are_loaded(arguments: tuple[str, ...], later_s: float) -> None:
    """Compiled modules lose a KeyboardInterrupt that comes while they begin: the process ends without one."""
    command = [sys.executable, "-m", "sipguard", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True) as ran:
        maps, until = Path(f"/proc/{ran.pid}/maps"), time.monotonic() + 60
        while "_multiarray_umath" not in maps.read_text("utf-8"):
            assert time.monotonic() < until, "numpy is being loaded"
            time.sleep(0.001)
        time.sleep(later_s)
        os.killpg(ran.pid, signal.SIGINT)
        out, said = ran.communicate(timeout=60)
    assert (ran.returncode, out, said.replace(b"\n", b"")) == (130, b"", b"")
