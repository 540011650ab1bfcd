"""`sipguard replay` on inputs that are empty, cut, hostile, none at all, or from another age (issue 3 §1)."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
import subprocess
import sys
import unicodedata
from pathlib import Path
from typing import Any

import pytest
import zstandard

from tests.cli.sipguard_command import Ran, sipguard
from tests.lab.packets import EPOCH_NS, ETHERNET, block, enhanced, interface, pcap, response, section, sip, udp4
from tests.lab.test_replay_command import Page, run

MS = 1_000_000
FRAMES = [(number * 10 * MS, udp4(sip("INVITE", number))) for number in range(500)]
PCAP = pcap(FRAMES)
PCAPNG = (
    section() + interface(ETHERNET, resolution=9) + b"".join(enhanced(EPOCH_NS + at, frame) for at, frame in FRAMES)
)
JSONL = "".join(f'{{"time_ms": {at}, "method": "INVITE"}}\n' for at in range(20_000)).encode()
CSV = ("time_ms,method\n" + "".join(f"{at},INVITE\n" for at in range(20_000))).encode()


def result(ran: Ran, path: Path) -> dict[str, Any]:
    assert ran.code == 0
    found = json.loads(path.read_text("utf-8"))
    assert isinstance(found, dict)
    return found


class TestOutsideIsText:
    EVIL = "[/red]a", "[bold]b:smile:", "\x1b[31mred\x9b\x07", "\u202egnorw", "\ud800", "two\nlines"

    def events(self, tmp_path: Path) -> Path:
        # A file name may hold any bytes but / and NUL.
        path = tmp_path / os.fsdecode(b"[red]\xff\x1b[2J$x$&<i>.jsonl")
        rows = (json.dumps({"time_ms": 1, "method": "INVITE", "source": source}) for source in self.EVIL)
        path.write_text("\n".join(rows) + "\n", encoding="utf-8")
        return path

    def test_in_the_terminal(self, tmp_path: Path) -> None:
        ran = sipguard("replay", self.events(tmp_path), "--lc", "1")
        assert (ran.code, ran.err) == (0, "")
        for told in ("[/red]a", "[bold]b:smile:", r"\x1b[31mred\x9b\x07", r"\u202egnorw", r"\ud800", r"two\nlines"):
            assert re.search(rf"^  {re.escape(told)} +1 +1 +0 +0 *$", ran.out, re.MULTILINE)
        assert {unicodedata.category(char) for char in ran.out.replace("\n", "")} & {"Cc", "Cf", "Cs"} == set()

    def test_in_json_it_is_exact(self, tmp_path: Path) -> None:
        path = self.events(tmp_path)
        ran = sipguard("replay", path, "--json", "-")
        found = json.loads(ran.out)
        assert {share["name"] for share in found["sets"][0]["sources"]} == set(self.EVIL)
        assert found["inputs"] == [str(path)]

    def test_in_the_page_and_the_picture(self, tmp_path: Path) -> None:
        html, picture = tmp_path / "r.html", tmp_path / "r.svg"
        ran = sipguard("replay", self.events(tmp_path), "--html", html, "--picture", picture)
        assert (ran.code, ran.err) == (0, "")
        text = html.read_text("utf-8")
        page = Page()
        page.feed(text)
        assert {"[/red]a", r"\x1b[31mred\x9b\x07", r"\ud800"} <= set(page.cells)
        assert "i" not in {tag for tag, _ in page.tags}
        assert r"replay of [red]\udcff\x1b[2J$x$&amp;&lt;i&gt;.jsonl" in text
        assert picture.read_bytes().startswith(b"<?xml")

    def test_in_errors_and_warnings(self, tmp_path: Path) -> None:
        name = os.fsdecode(b"\xff\x1b[2J")
        ran = run(tmp_path / name)
        assert ran.err.startswith("input = ")
        broken = tmp_path / name
        broken.write_bytes(PCAP[:-5])
        told = str(tmp_path) + r"/\udcff\x1b[2J"
        ran = sipguard("replay", broken)
        assert ran.code == 0
        assert ran.err.startswith(f"warning: {told}: offset ")
        broken.write_bytes(b"\0")
        assert sipguard("replay", broken).err.startswith(f"error: {told}: neither ")
        broken.write_bytes(b"time_ms,method\n1,\x1b[2J\n")
        ran = sipguard("replay", broken)
        assert ran.err.startswith(f"error: {told}: line 2: method = ")
        assert "\x1b" not in ran.err

    def test_what_an_error_repeats_is_short(self, tmp_path: Path) -> None:
        digits = "9" * 5000
        path = tmp_path / "e.csv"
        for text in (f"{digits},INVITE\n", f"1,({digits}\n", f"1,INVITE,{digits}\n", f'{{"time_ms": {digits}}}\n'):
            path.write_text(text, encoding="utf-8")
            ran = sipguard("replay", path)
            assert ran.code == 2
            assert len(ran.err) < 400
            assert ran.err.count(str(path)) == 1
        for flag in ("--lc", "--fail-if", "--until", "--origin", "--ports", "--to", "--lcdm", "--picture"):
            ran = sipguard("replay", path, flag, digits)
            assert ran.code == 2
            assert ran.err.startswith(f"error: {flag} = '99999")
            assert len(ran.err) < 500

    def test_a_method_as_long_as_a_datagram_keeps_the_table(self, tmp_path: Path) -> None:
        path = tmp_path / "e.csv"
        path.write_text(f"1,{'X' * 60_000}\n", encoding="utf-8")
        ran = sipguard("replay", path, "--html", tmp_path / "r.html")
        assert ran.code == 0
        assert max(map(len, ran.out.splitlines())) <= 100
        assert (tmp_path / "r.html").stat().st_size < 100_000
        assert json.loads(sipguard("replay", path, "--json", "-").out)["sets"][0]["methods"][0]["name"] == "X" * 60_000


class TestEmptyAndCut:
    @pytest.mark.parametrize(
        ("data", "reason"),
        [
            (b"", "the file is empty"),
            (gzip.compress(b""), "the file is empty"),
            *((PCAP[:length], "cut off within the file header") for length in (1, 2, 3, 4, 10, 23)),
            *((pcap(FRAMES, order=">", nano=True)[:length], "cut off within the file header") for length in (1, 3, 10)),
            *((PCAPNG[:length], "cut off within the file header") for length in (2, 4, 10, 12, 27)),
            *((gzip.compress(PCAP)[:length], "the file breaks off or is damaged") for length in (1, 2, 3, 9, 12)),
            *(
                (zstandard.ZstdCompressor().compress(PCAP)[:length], "the file breaks off or is damaged")
                for length in (1, 2, 3, 4, 12)
            ),
        ],
    )
    def test_alone_and_in_a_ring(self, tmp_path: Path, data: bytes, reason: str) -> None:
        """Damage at offset 0, counted; the others of a ring are used."""
        cut, good, report = tmp_path / "cut", tmp_path / "good.pcap", tmp_path / "r.json"
        cut.write_bytes(data)
        good.write_bytes(PCAP)
        ran = run(cut, "--json", report)
        found = result(ran, report)
        assert re.fullmatch(rf"{re.escape(str(cut))}: offset 0: {reason}.*", *found["damages"])
        assert (found["sets"][0]["requests"], found["sets"][0]["damaged"]) == (0, 1)
        assert ran.err.splitlines()[0] == f"warning: {found['damages'][0]}"
        assert ran.err.splitlines()[1].startswith(f"warning: no SIP request in {cut}: there is no")
        ring = run(good, cut, "--json", report)
        assert ring.err == f"warning: {found['damages'][0]}\n"
        assert (result(ring, report)["sets"][0]["requests"], json.loads(report.read_text())["sets"][0]["damaged"]) == (
            500,
            1,
        )
        assert run(cut, good, "--fail-if", "damaged>0").code == 1

    def test_a_single_byte_of_a_ring_of_pcapng(self, tmp_path: Path) -> None:
        """A line feed: of a capture's header in the company of captures, else an empty line."""
        cut, good = tmp_path / "cut", tmp_path / "good"
        cut.write_bytes(PCAPNG[:1])
        good.write_bytes(PCAPNG)
        assert run(good, cut).err == f"warning: {cut}: offset 0: cut off within the file header\n"
        good.write_bytes(CSV)
        assert run(good, cut).err == ""

    def test_an_empty_file_among_events_and_on_standard_input(self, tmp_path: Path) -> None:
        empty, rows = tmp_path / "empty.csv", tmp_path / "rows.csv"
        empty.touch()
        rows.write_bytes(CSV)
        ran = run(rows, empty)
        assert (ran.code, ran.err) == (0, f"warning: {empty}: offset 0: the file is empty\n")
        piped = sipguard("replay", "-", "--fail-if", "damaged>0", stdin=b"")
        assert piped.code == 1
        assert "warning: -: offset 0: the file is empty\n" in piped.err

    @pytest.mark.parametrize(
        ("data", "flags", "why"),
        [
            (pcap([]), (), "there is no packet in it"),
            (pcap((at, udp4(response(200))) for at in range(7)), (), "SIP responses (never count): 7"),
            (pcap([(0, bytes(40))] * 3, link=147), (), "packets of an unknown link type: 3"),
            (pcap([(0, bytes(60))] * 2), (), "packets that are no IP: 2"),
            (pcap([(0, udp4(b"\x80" + bytes(40)))] * 4), (), "none of 4 packets is one"),
            (PCAP, ("--ports", "5999"), "packets on other ports: 500"),
            (PCAP, ("--to", "198.51.100.1"), "requests to other addresses: 500"),
            (PCAP, ("--origin", "1800000000"), "requests before the origin, left out: 500"),
            (b"time_ms,method\n", (), "no row in it counts any"),
            (b"time_ms,method,count\n1,INVITE,0\n", (), "no row in it counts any"),
        ],
    )
    def test_without_a_request_it_says_so_and_why(
        self, tmp_path: Path, data: bytes, flags: tuple[str, ...], why: str
    ) -> None:
        path = tmp_path / "input"
        path.write_bytes(data)
        ran = run(path, *flags, "--fail-if", "damaged>0", "--html", tmp_path / "r.html")
        assert (ran.code, ran.err) == (0, f"warning: no SIP request in {path}: {why}\n")
        assert f"no SIP request in {path}: {why}" in (tmp_path / "r.html").read_text("utf-8")

    @pytest.mark.parametrize("compress", [gzip.compress, zstandard.ZstdCompressor().compress])
    @pytest.mark.parametrize("content", [CSV, JSONL])
    def test_cut_rows_are_used_as_far_as_they_are_whole(self, tmp_path: Path, compress: Any, content: bytes) -> None:
        path, report = tmp_path / "rows", tmp_path / "r.json"
        whole = compress(content)
        path.write_bytes(whole)
        assert result(run(path, "--json", report), report)["sets"][0]["requests"] == 20_000
        path.write_bytes(whole[: len(whole) * 3 // 4])
        ran = run(path, "--json", report)
        found = result(ran, report)
        (damage,) = found["damages"]
        assert ran.err == f"warning: {damage}\n"
        offset = int(re.fullmatch(rf"{re.escape(str(path))}: offset (\d+): the file breaks off .*", damage)[1])  # type: ignore[index]
        assert found["sets"][0]["requests"] == content[:offset].count(b"\n") - (content is CSV) > 5000

    @pytest.mark.parametrize("compress", [gzip.compress, zstandard.ZstdCompressor().compress])
    def test_a_cut_compressed_capture_is_told_once(self, tmp_path: Path, compress: Any) -> None:
        path = tmp_path / "cut"
        noise = pcap((at, udp4(sip("INVITE", body=os.urandom(900)))) for at in range(600))
        whole = compress(noise)
        path.write_bytes(whole[: len(whole) // 2])
        ran = run(path)
        assert ran.code == 0
        assert len(ran.err.splitlines()) == 1
        assert "breaks off" in ran.err


class TestNoneOfThese:
    def test_what_is_no_input_is_told_before_anything_is_read(self, tmp_path: Path) -> None:
        good, garbage, events = tmp_path / "good.pcap", tmp_path / "garbage", tmp_path / "events.csv"
        good.write_bytes(PCAP)
        garbage.write_bytes(b"\x7fELF\0\0")
        events.write_bytes(CSV)
        ticks = tmp_path / "t.csv"
        for files in ((good, garbage), (garbage, good)):
            ran = run(*files, "--ticks", ticks)
            assert (ran.code, ran.out) == (2, "")
            assert ran.err == (
                f"error: {garbage}: neither pcap, pcapng, CSV nor JSONL, plain or in gzip or zstd; nothing was read\n"
            )
        ran = run(good, tmp_path / "absent", "--ticks", ticks)
        assert ran.code == 2
        assert ran.err.endswith("a file that can be read (No such file or directory); nothing was read")
        assert not ticks.exists()
        ran = run(good, events)
        assert ran.code == 2
        assert f"({good} is a capture, {events} is none)" in ran.err
        assert "nothing was read" in ran.err

    def test_a_bad_row_names_its_own_file(self, tmp_path: Path) -> None:
        good, bad = tmp_path / "good.csv", tmp_path / "bad.csv"
        good.write_bytes(CSV)
        bad.write_text("1,INVITE\nx,INVITE\n", encoding="utf-8")
        ran = run(good, bad)
        assert ran.code == 2
        assert ran.err.startswith(f"error: {bad}: line 2: time_ms = 'x'")

    def test_a_section_header_with_a_spoilt_byte_order_is_damage(self, tmp_path: Path) -> None:
        path = tmp_path / "spoilt"
        path.write_bytes(PCAPNG[:8] + b"\xff\xff\xff\xff" + PCAPNG[12:] + PCAPNG)
        ran = run(path, "--fail-if", "requests<500")
        assert ran.code == 0
        assert "offset 0: a section header without a byte order" in ran.err


class TestTime:
    def test_rows_that_go_back_are_told(self, tmp_path: Path) -> None:
        """SPEC M4; as of captures."""
        path = tmp_path / "back.csv"
        path.write_text("7500000,INVITE\n0,INVITE\n7499000,BYE\n", encoding="utf-8")
        name = "times that go back (each counts as the one before, SPEC M4)"
        assert f"{name}: 2, by 2 h 5 min at most\n" in run(path, "--html", tmp_path / "r.html").out
        assert "2, by 2 h 5 min at most" in (tmp_path / "r.html").read_text("utf-8")
        path.write_bytes(pcap((at * MS, udp4(sip("BYE"))) for at in (0, 5, 3)))
        assert f"{name}: 1, by 2 ms at most\n" in run(path).out

    def test_ages_cost_no_more_than_seconds(self, tmp_path: Path) -> None:
        """The longest time a row may have, several sets: bounded files, states to the end (SPEC L5; M1)."""
        path = tmp_path / "ages.csv"
        path.write_text("1,INVITE,500\n999999999999999,INVITE,500\n", encoding="utf-8")
        outputs = {kind: tmp_path / f"r.{kind}" for kind in ("csv", "json", "html", "svg")}
        flags = (
            "--tr",
            "100",
            "--lc",
            "10,100,1000",
            "--lcdm",
            "denial_to_drop,drop_only",
            "--until",
            "999999999999999",
        )
        ran = run(
            path,
            *flags,
            "--ticks",
            outputs["csv"],
            "--json",
            outputs["json"],
            "--html",
            outputs["html"],
            "--picture",
            outputs["svg"],
        )
        assert (ran.code, ran.err) == (0, "")
        ticks = outputs["csv"].read_text("utf-8").splitlines()
        assert ticks[1:3] == ["100,500,5000,around_critical_limit", "200,0,0,around_critical_limit"]
        assert ticks[-1].endswith(",0,0,normal")
        assert len(ticks) < 2000
        found = json.loads(outputs["json"].read_text("utf-8"))
        assert [(one["requests"], one["incidents"], one["state"]) for one in found["sets"]] == [(1000, 1, "normal")] * 6
        assert found["sets"][0]["normal_s"] > 999_999_999_000
        assert outputs["json"].stat().st_size < 1 << 20
        assert outputs["html"].stat().st_size < 4 << 20
        summary = run(path)
        assert "normal 11,574,074 d 1 h, around_critical_limit 3.0 s" in summary.out

    def test_a_capture_from_the_end_of_time(self, tmp_path: Path) -> None:
        """pcapng: 64 bits of seconds (if_tsresol 0)."""
        frame = udp4(sip("INVITE"))
        path, report = tmp_path / "end.pcapng", tmp_path / "r.json"
        times = (1, 1, 2**64 - 1, 5)
        path.write_bytes(section() + interface(ETHERNET, resolution=0) + b"".join(enhanced(at, frame) for at in times))
        found = result(
            run(path, "--json", report, "--ticks", tmp_path / "t.csv", "--html", tmp_path / "r.html"), report
        )
        assert (found["sets"][0]["requests"], found["times_back"]["requests"]) == (4, 1)
        assert (tmp_path / "t.csv").stat().st_size < 100_000


class TestTerminal:
    """The bar on a terminal: what it shows, and that it spoils nothing."""

    @staticmethod
    def on_terminal(*arguments: str, data: bytes, out_too: bool = False) -> tuple[int, str]:
        master, slave = os.openpty()
        try:
            with subprocess.Popen(
                [sys.executable, "-m", "sipguard", *arguments],
                stdin=subprocess.PIPE,
                stdout=slave if out_too else subprocess.DEVNULL,
                stderr=slave,
                env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
            ) as process:
                os.close(slave)
                assert process.stdin is not None
                shown = b""
                os.set_blocking(process.stdin.fileno(), False)
                sent = 0
                # A terminal whose other end is closed reads as an error.
                with contextlib.suppress(OSError):
                    while True:
                        if sent < len(data):
                            with contextlib.suppress(BlockingIOError):
                                sent += os.write(process.stdin.fileno(), data[sent : sent + 65536])
                            if sent < len(data):
                                continue
                            process.stdin.close()
                        piece = os.read(master, 65536)
                        if not piece:
                            break
                        shown += piece
                return process.wait(60), shown.decode()
        finally:
            os.close(master)

    def test_standard_input_whose_length_nobody_knows(self, tmp_path: Path) -> None:
        code, shown = self.on_terminal("replay", "-", "--json", str(tmp_path / "r.json"), data=JSONL * 4)
        assert code == 0
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
        assert re.search(r"reading .*━.*[0-9.]+/\? MB", text)
        # Gone at the end, the cursor back.
        assert shown.rstrip().endswith("\x1b[?25h\r\x1b[1A\x1b[2K")

    def test_an_error_stands_below_it(self) -> None:
        code, shown = self.on_terminal("replay", "-", data=CSV * 2)
        assert code == 2
        last = shown.split("\x1b[2K")[-1]
        assert last.startswith("error: -: line 20002: time_ms = 'time_ms': allowed is ")
        assert last.count("\n") >= 1

    def test_rows_on_the_same_terminal_have_no_bar_between_them(self) -> None:
        code, shown = self.on_terminal("replay", "-", "--ticks", "-", data=b"1,INVITE\n900,INVITE\n", out_too=True)
        assert code == 0
        assert shown.replace("\r", "").splitlines()[:2] == ["time_ms,requests,rps,state", "200,1,5,normal"]
        assert "\x1b" not in shown


def test_several_event_files_are_one_bar(tmp_path: Path) -> None:
    """What is told never goes back and ends with all."""
    from sipguard.core.parameters import Parameters
    from sipguard.core.policy import Policy
    from sipguard.lab.capture.files import Input
    from sipguard.lab.feed import CaptureOptions, feed
    from sipguard.lab.study import Study

    for number in range(3):
        (tmp_path / f"{number}.csv").write_bytes(CSV)
    told: list[int] = []
    inputs = [Input(str(path)) for path in sorted(tmp_path.iterdir())]
    feed(inputs, lambda origin_ns: Study([(Parameters(), Policy())], origin_ns), CaptureOptions(), None, told.append)
    assert told == sorted(told)
    assert told[-1] == 3 * len(CSV)


def test_a_block_of_another_kind_cut_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "cut.pcapng"
    path.write_bytes(PCAPNG + block(0x0BAD, bytes(5000))[:-40])
    ran = run(path)
    assert re.fullmatch(rf"warning: {re.escape(str(path))}: offset \d+: cut off within a block, .*\n", ran.err)


def test_links_of_either_kind_are_the_file_they_lead_to(tmp_path: Path) -> None:
    """An output that is the input under another name would destroy it; a circle of links leads nowhere."""
    (tmp_path / "in.csv").write_bytes(CSV)
    os.link(tmp_path / "in.csv", tmp_path / "hard.csv")
    (tmp_path / "soft.csv").symlink_to("in.csv")
    (tmp_path / "loop").symlink_to("loop")
    for name in ("hard.csv", "soft.csv"):
        ran = sipguard("replay", tmp_path / "in.csv", "--verdicts", tmp_path / name)
        assert (ran.code, ran.out) == (2, "")
        assert "allowed is a file of its own" in ran.err
    assert (tmp_path / "in.csv").read_bytes() == CSV
    for arguments in ((tmp_path / "loop",), (tmp_path / "in.csv", "--html", tmp_path / "loop")):
        ran = sipguard("replay", *arguments)
        assert ran.code == 2
        assert ran.err.count("\n") == 1
