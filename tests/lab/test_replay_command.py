"""`sipguard replay` on captures: summary, JSON, HTML, pictures, what-if, conditions, damage (issue 3 §1)."""

from __future__ import annotations

import contextlib
import csv
import gzip
import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sipguard.cli.main import app, main
from sipguard.manage.config import SettingsError
from tests.cli.sipguard_command import Ran, sipguard
from tests.lab.packets import EPOCH_NS, SERVER, ack, pcap, response, sip, udp4

MS = 1_000_000
LAW = ("--lc", "100", "--lcps", "10000", "--lrc", "3", "--pc", "4", "--tr", "100")


def storm() -> list[tuple[int, bytes]]:
    """20/s for 1 s, 400/s for 1.5 s, 20/s for 1.5 s; every tenth a BYE; from two sources, the second thrice as often."""
    frames: list[tuple[int, bytes]] = []
    for start_ms, end_ms, step_ms in ((0, 1000, 50.0), (1000, 2500, 2.5), (2500, 4000, 50.0)):
        at_ms = float(start_ms)
        while at_ms < end_ms:
            number = len(frames)
            method = "BYE" if number % 10 == 9 else "INVITE"
            frames.append((int(at_ms * MS), udp4(sip(method, number), f"192.0.2.{1 if number % 4 == 0 else 2}")))
            at_ms += step_ms
    return frames


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    path = tmp_path / "storm.pcap"
    path.write_bytes(pcap(storm()))
    return path


def run(*arguments: str | Path) -> Ran:
    """In this process, for speed."""
    result = CliRunner().invoke(app, ["replay", *map(str, arguments)], env={"COLUMNS": "120"})
    if isinstance(result.exception, SettingsError):
        return Ran(2, result.stdout, "\n".join(map(str, result.exception.problems)))
    return Ran(result.exit_code, result.stdout, result.stderr)


def json_of(*arguments: str | Path) -> dict[str, Any]:
    ran = run(*arguments, "--json", "-")
    found = json.loads(ran.out)
    assert isinstance(found, dict)
    assert (ran.code, ran.err) == (0, "".join(f"warning: {text}\n" for text in found["warnings"]))
    assert len(found["warnings"]) == (not found["sets"][0]["requests"])
    return found


def test_json_of_a_storm(capture: Path) -> None:
    """By hand: 20 + 600 + 30 requests. The window to 1100 ms holds 40: RPS 400 > 100 (L1); PC = 4 more until the drop (L2)
    at 1500 ms; calm from 2500 ms, its window to 2600 ms holds 2: three below (L5), normal at 2800 ms."""
    found = json_of(capture, *LAW)
    assert found["format"] == "sipguard-replay/1"
    assert (found["kind"], found["inputs"], found["damages"]) == ("capture", [str(capture)], [])
    assert found["decoded"]["packets"] == 650
    assert found["origin_unix_ns"] == EPOCH_NS
    (one,) = found["sets"]
    assert one["parameters"] == {"LC": 100, "LCDM": "denial_to_drop", "LCPS": 10000, "LRC": 3, "PC": 4, "TR": 100}
    assert (one["requests"], one["peak_rps"], one["incidents"], one["state"]) == (650, 400, 1, "normal")
    assert one["allowed"] + one["refused"] + one["dropped"] == 650
    assert one["incident_list"] == [
        {
            "from_ms": 1100,
            "to_ms": 2800,
            "peak_rps": 400,
            "refused": one["refused"],
            "dropped": one["dropped"],
            "worst": "critical_limit",
        }
    ]
    # 160 requests from 1100 to 1500 ms, of ten nine are INVITEs (V1: BYE passes).
    assert one["refused"] == 144
    assert (one["around_s"], one["critical_s"]) == (0.4, 1.3)
    assert {share["name"] for share in one["methods"]} == {"INVITE", "BYE"}
    assert all(share["reject"] == share["drop"] == 0 for share in one["methods"] if share["name"] == "BYE")
    assert [share["name"] for share in one["sources"]] == ["192.0.2.2", "192.0.2.1"]
    assert one["sources_exact"] is True
    assert one["timeline"]["bucket_ms"] == 100
    assert sum(sum(row[1:4]) for row in one["timeline"]["rows"]) == 650


def test_ticks_and_verdicts_of_a_capture(capture: Path, tmp_path: Path) -> None:
    """DESIGN §5 columns: a row per cycle, a row per request."""
    ticks, verdicts = tmp_path / "t.csv", tmp_path / "v.csv"
    ran = run(capture, *LAW, "--ticks", ticks, "--verdicts", verdicts)
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    with ticks.open(encoding="utf-8", newline="") as file:
        cycles = list(csv.reader(file))
    assert cycles[0] == ["time_ms", "requests", "rps", "state"]
    assert cycles[1] == ["100", "2", "20", "normal"]
    assert cycles[11] == ["1100", "40", "400", "around_critical_limit"]
    assert cycles[15] == ["1500", "40", "400", "critical_limit"]
    assert len(cycles) == 1 + 39  # the last packet's time is 3950 ms
    with verdicts.open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    assert len(rows) == 651
    assert rows[1] == ["0", "INVITE", "1", "0", "0"]
    assert {tuple(row[2:]) for row in rows[1:]} == {("1", "0", "0"), ("0", "1", "0"), ("0", "0", "1")}


def test_what_if_side_by_side(capture: Path) -> None:
    found = json_of(capture, *LAW[2:], "--lc", "100,500", "--lcdm", "denial_to_drop,drop_only")
    sets = [(one["parameters"]["LC"], one["parameters"]["LCDM"], one["refused"] > 0) for one in found["sets"]]
    assert sets == [
        (100, "denial_to_drop", True),
        (100, "drop_only", False),
        (500, "denial_to_drop", False),
        (500, "drop_only", False),
    ]
    for one in found["sets"]:
        law = [part for name, value in one["parameters"].items() for part in (f"--{name.lower()}", str(value))]
        (alone,) = json_of(capture, *law)["sets"]
        assert {key: alone[key] for key in one} == one
    ran = run(capture, *LAW[2:], "--lc", "100,500")
    assert re.search(r"what if\s+LC\s+allow", ran.out)


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (("--lc", "100,0,x"), ["--lc = 0", "--lc = 'x'"]),
        (("--lcdm", "drop_only,none", "--tr", "50"), ["--tr = 50", "--lcdm = 'none'"]),
        (("--lc", ",".join(map(str, range(1, 66)))), ["--lc"]),
        (("--fail-if", "refused>0", "--fail-if", "refusd>0"), ["--fail-if = 'refusd>0'"]),
        (("--ports", "5060,0", "--to", "localhost", "--origin", "noon"), ["--ports", "--to", "--origin"]),
        (("--picture", "x.jpg", "--html", "-"), ["--html", "--picture"]),
        (("--until", "soon"), ["--until"]),
    ],
)
def test_what_is_wrong_is_named_all_at_once(capture: Path, arguments: tuple[str, ...], names: list[str]) -> None:
    ran = run(capture, *arguments)
    assert ran.code == 2
    problems = ran.err.splitlines()
    assert len(problems) == len(names)
    for name in names:
        assert any(problem.startswith(name) and ": allowed is " in problem for problem in problems), problems


def test_conditions_decide_the_exit_code(capture: Path) -> None:
    assert run(capture, *LAW, "--fail-if", "incidents>1").code == 0
    ran = run(capture, *LAW, "--fail-if", "refused>0", "--fail-if", "damaged>0", "--fail-if", "peak_rps>=400")
    assert ran.code == 1
    assert ran.err.splitlines() == ["failed: refused>0 (refused is 144)", "failed: peak_rps>=400 (peak_rps is 400)"]


def test_a_damaged_capture_is_used_and_the_place_told(capture: Path, tmp_path: Path) -> None:
    data = capture.read_bytes()
    broken = tmp_path / "cut.pcap"
    broken.write_bytes(data[:-100])
    ran = run(broken, *LAW, "--json", tmp_path / "r.json")
    assert ran.code == 0
    assert re.fullmatch(rf"warning: {re.escape(str(broken))}: offset \d+: cut off within a record\n", ran.err)
    assert json.loads((tmp_path / "r.json").read_text("utf-8"))["sets"][0]["requests"] == 649
    assert run(broken, *LAW, "--fail-if", "damaged>0").code == 1


class Page(HTMLParser):
    """Every tag's attributes, and the texts of the table cells."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.cells: list[str] = []
        self._in_cell = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._in_cell = tag in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self._in_cell:
            self.cells.append(data)


def test_the_html_report_needs_nothing_else(capture: Path, tmp_path: Path) -> None:
    """One file: no script, no reference to anything outside; the picture and all tables are in it."""
    report = tmp_path / "report.html"
    ran = run(capture, *LAW[2:], "--lc", "100,200", "--html", report)
    assert ran.code == 0
    text = report.read_text(encoding="utf-8")
    page = Page()
    page.feed(text)
    names = [tag for tag, _ in page.tags]
    assert "svg" in names
    assert not {"script", "link", "iframe", "object", "embed"} & set(names)
    references = [
        value
        for _, attributes in page.tags
        for name, value in attributes.items()
        if name in ("src", "href", "xlink:href")
    ]
    assert all(value is not None and value.startswith(("#", "data:")) for value in references)
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text)
    assert {"INVITE", "192.0.2.2", "critical_limit", "650"} <= set(page.cells)


def test_names_in_a_report_are_text(tmp_path: Path) -> None:
    """A file's name, a source or a method from outside is never markup."""
    name = tmp_path / "a<script>x.jsonl"
    name.write_text('{"time_ms": 1, "method": "INVITE", "source": "<img src=x>"}\n', encoding="utf-8")
    report = tmp_path / "r.html"
    assert run(name, "--html", report).code == 0
    page = Page()
    page.feed(report.read_text(encoding="utf-8"))
    assert not {"script", "img"} & {tag for tag, _ in page.tags}
    assert "<img src=x>" in page.cells


@pytest.mark.parametrize(("suffix", "magic"), [(".png", b"\x89PNG"), (".svg", b"<?xml")])
def test_pictures(capture: Path, tmp_path: Path, suffix: str, magic: bytes) -> None:
    picture = tmp_path / f"run{suffix}"
    assert run(capture, *LAW, "--picture", picture).code == 0
    assert picture.read_bytes().startswith(magic)


def test_an_empty_capture_has_no_picture_and_says_so(tmp_path: Path) -> None:
    empty = tmp_path / "empty.pcap"
    empty.write_bytes(pcap([]))
    picture = tmp_path / "x.png"
    picture.write_bytes(b"the last one")
    ran = run(empty, "--picture", picture, "--html", tmp_path / "x.html", "--fail-if", "requests<1")
    # What could not be done weighs more than a condition that holds.
    assert ran.code == 2
    assert ran.err.splitlines() == [
        f"warning: no SIP request in {empty}: there is no packet in it",
        "error: --picture: nothing to draw: the run gave no sample",
        "failed: requests<1 (requests is 0)",
    ]
    assert picture.read_bytes() == b"the last one"
    assert "no SIP request in" in (tmp_path / "x.html").read_text("utf-8")


def test_filters_and_origin(capture: Path) -> None:
    assert json_of(capture, "--to", f"{SERVER}:5060")["sets"][0]["requests"] == 650
    elsewhere = json_of(capture, "--to", "198.51.100.1")
    assert (elsewhere["sets"][0]["requests"], elsewhere["decoded"]["elsewhere"]) == (0, 650)
    assert json_of(capture, "--ports", "5080,5061")["sets"][0]["requests"] == 0
    later = json_of(capture, "--origin", f"{EPOCH_NS // 10**9 + 1}.000000000")
    assert (later["sets"][0]["requests"], later["before_origin"]) == (630, 20)
    early = json_of(capture, "--origin", f"{EPOCH_NS // 10**9 - 1}.5")
    assert early["end_ms"] == 3950 + 500


def test_the_whole_second_as_origin(tmp_path: Path) -> None:
    path = tmp_path / "late.pcap"
    path.write_bytes(pcap([(number * 100 * MS + 730 * MS, udp4(sip("BYE", number))) for number in range(3)]))
    assert json_of(path, "--origin", "second")["end_ms"] == 930
    assert json_of(path)["end_ms"] == 200


def test_exempt_uris_of_a_configuration(tmp_path: Path) -> None:
    """DESIGN §3: counted, never shed, in every state; the same setting as the guard's."""
    call, emergency = sip("INVITE"), sip("INVITE").replace(b"sip:bob@example.com SIP", b"urn:service:sos SIP")
    path, config = tmp_path / "sos.pcap", tmp_path / "sipguard.toml"
    path.write_bytes(pcap((at * MS, udp4(emergency if at % 10 == 0 else call)) for at in range(1000)))
    config.write_text('exempt_uris = ["urn:service:sos"]\nlcdm = "drop_only"\nlc = 100\n', encoding="utf-8")
    (one,) = json_of(path, "-c", config)["sets"]
    shares = {share["name"]: share for share in one["methods"]}
    assert shares["INVITE (exempt)"] == {"name": "INVITE (exempt)", "allow": 100, "reject": 0, "drop": 0}
    assert shares["INVITE"]["drop"] == 720
    assert one["requests"] == 1000


def test_one_verdict_is_not_what_replay_does_and_that_is_told(tmp_path: Path) -> None:
    """SPEC X3: recorded requests carry no transaction; the figures must not be taken for what they are not."""
    path, config = tmp_path / "a.pcap", tmp_path / "sipguard.toml"
    path.write_bytes(pcap([(0, udp4(sip("INVITE")))]))
    config.write_text('transactions = "one_verdict"\n', encoding="utf-8")
    ran = run(path, "-c", config, "--json", "-")
    (warning,) = json.loads(ran.out)["warnings"]
    assert warning.startswith("transactions = one_verdict: replay judges each copy by the state it meets")
    assert ran.err == f"warning: {warning}\n"
    assert json_of(path)["warnings"] == []


def test_a_capture_taken_at_a_guard(tmp_path: Path) -> None:
    """SPEC M2: its own refusals' ACKs are not counted, with --at-guard."""
    path = tmp_path / "guard.pcap"
    exchange = [udp4(sip("INVITE")), udp4(response(503), SERVER, "192.0.2.1"), udp4(ack())]
    path.write_bytes(pcap(enumerate(exchange)))
    assert json_of(path)["sets"][0]["requests"] == 2
    found = json_of(path, "--at-guard")
    assert (found["sets"][0]["requests"], found["decoded"]["absorbed"]) == (1, 1)


def test_shadow_says_what_would_have_been(capture: Path, tmp_path: Path) -> None:
    """SPEC X2: every request is let through; the rows say so, the record tells what was decided."""
    verdicts = tmp_path / "v.csv"
    run(capture, *LAW, "--shadow", "--verdicts", verdicts)
    assert {line.split(",", 2)[2] for line in verdicts.read_text("utf-8").splitlines()[1:]} == {"1,0,0"}
    (one,) = json_of(capture, *LAW, "--shadow")["sets"]
    assert (one["shadow"], one["refused"]) == (True, 144)
    assert "shadow: would reject 144" in run(capture, *LAW, "--shadow").out


def test_json_lines_and_gzip(tmp_path: Path) -> None:
    lines = "".join(f'{{"time_ms": {at}, "method": "INVITE", "source": "trunk{at % 2}"}}\n' for at in range(50))
    path = tmp_path / "events.jsonl.gz"
    path.write_bytes(gzip.compress(lines.encode()))
    (one,) = json_of(path, "--until", "100", "--tr", "100", "--lc", "100")["sets"]
    assert (one["requests"], one["peak_rps"]) == (50, 500)
    assert [(share["name"], share["allow"]) for share in one["sources"]] == [("trunk0", 25), ("trunk1", 25)]


def test_captures_and_events_do_not_mix(capture: Path, tmp_path: Path) -> None:
    events = tmp_path / "e.csv"
    events.write_text("5,INVITE\n", encoding="utf-8")
    ran = run(capture, events)
    assert ran.code == 2
    assert "captures and events together" in ran.err


def test_a_pipe_and_no_bar_without_a_terminal(capture: Path) -> None:
    """A real process: a compressed capture on standard input; nothing but warnings on standard error."""
    ran = sipguard("replay", "-", *LAW, "--fail-if", "dropped>0", stdin=gzip.compress(capture.read_bytes()))
    assert ran.code == 1
    assert ran.err.startswith("failed: dropped>0")
    assert "packets: 650" in ran.out
    states = [line.split()[1:4:2] for line in ran.out.splitlines() if line.startswith("│")]
    assert [name for _, name in states] == ["normal", "around_critical_limit", "critical_limit", "normal"]


def test_a_file_that_is_none_of_these(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.bin"
    path.write_bytes(b"\x7fELF\0\0")
    ran = run(path)
    assert ran.code == 2
    assert "neither pcap, pcapng, CSV nor JSONL" in ran.err
    monkeypatch.setattr("sys.argv", ["sipguard", "replay", str(tmp_path / "absent.pcap")])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2


def test_on_a_terminal_a_bar_tells_rate_and_time_left(tmp_path: Path) -> None:
    """issue 3 §1; on standard error, and gone at the end."""
    path = tmp_path / "long.pcap"
    body = pcap(storm())[24:]
    with path.open("wb") as file:
        file.write(pcap([]))
        for _ in range(40):
            file.write(body)
    master, slave = os.openpty()
    try:
        with subprocess.Popen(
            [sys.executable, "-m", "sipguard", "replay", str(path), "--json", str(tmp_path / "r.json")],
            stdout=subprocess.DEVNULL,
            stderr=slave,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
        ) as process:
            os.close(slave)
            shown = b""
            # A terminal whose other end is closed reads as an error.
            with contextlib.suppress(OSError):
                while piece := os.read(master, 65536):
                    shown += piece
            assert process.wait(60) == 0
    finally:
        os.close(master)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
    assert re.search(r"reading .*━.*[0-9.]+/[0-9.]+ MB.* [0-9.]+ MB/s.* [0-9:-]+", text)
    assert json.loads((tmp_path / "r.json").read_text("utf-8"))["sets"][0]["requests"] == 40 * 650
