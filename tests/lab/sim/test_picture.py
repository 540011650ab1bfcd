"""The picture: what the figures say can be seen in it."""

from __future__ import annotations

from io import BytesIO

import numpy as np
import pytest

from sipguard.lab.plots import PlotError
from sipguard.lab.sim.compare import compare
from sipguard.lab.sim.picture import draw
from tests.lab.sim.storms import guard, rate, server, steady, storm

image = pytest.importorskip("matplotlib.image")

STORM = storm(
    steady(0, rate=rate((5, 20), (5, 300), (15, 300), (15, 20))),
    duration_s=25.0,
    servers=(server(100),),
    guard=guard(LC=100, LCDM="denial_only", TR=200, LRC=5),
    storm_begins_s=5.0,
    storm_ends_s=15.0,
)


def colours(png: bytes) -> set[tuple[int, ...]]:
    pixels = image.imread(BytesIO(png), format="png")[:, :, :3]
    return {tuple(p) for p in (np.unique(pixels.reshape(-1, 3), axis=0) * 255).round().astype(int).tolist()}


def test_states_and_what_was_shed_are_painted() -> None:
    """The ribbon shows normal and around_critical_limit; the run never reached critical_limit."""
    found = colours(draw(STORM, compare(STORM, ["none", "all"], 1)))
    assert (0xCF, 0xE8, 0xD5) in found
    assert (0xFB, 0xD9, 0xA0) in found
    assert (0xF2, 0xB3, 0xAD) not in found
    without = colours(draw(STORM, compare(STORM, ["none"], 1)))
    assert (0xFB, 0xD9, 0xA0) not in without


def test_the_same_run_gives_the_same_bytes() -> None:
    assert draw(STORM, compare(STORM, ["all"], 1)) == draw(STORM, compare(STORM, ["all"], 1))


def test_without_matplotlib_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(PlotError, match="sipguard\\[lab\\]"):
        draw(STORM, compare(STORM, ["all"], 1))
