"""Progress of what takes long, where standard error is no terminal."""

from __future__ import annotations

import pytest

from sipguard.cli.steps import LINE_EVERY_S, Lines


def test_a_line_now_and_then_with_the_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    now_s = 100.0
    lines = Lines("trying", lambda: now_s)
    for done in range(1, 61):
        now_s += 1
        lines(done, 60)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == [
        "trying: 15 of 60, 15.0 s so far, about 45.0 s left",
        "trying: 30 of 60, 30.0 s so far, about 30.0 s left",
        "trying: 45 of 60, 45.0 s so far, about 15.0 s left",
        "trying: 60 of 60, 60.0 s so far, about 0 s left",
    ]


def test_what_is_ready_soon_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    now_s = 0.0
    lines = Lines("trying", lambda: now_s)
    for done in range(10):
        now_s += LINE_EVERY_S / 11
        lines(done, 10)
    assert capsys.readouterr() == ("", "")


def test_what_turns_out_to_be_more(capsys: pytest.CaptureFixture[str]) -> None:
    now_s = 0.0
    lines = Lines("trying", lambda: now_s)
    now_s = 3600.0
    lines(0, 10)
    lines(12, 10)
    assert capsys.readouterr().err == "trying: 12 of 12, 1 h 0 min so far, about 0 s left\n"
