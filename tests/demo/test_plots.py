"""The picture: its size and content as pixels, and what is said when it cannot be made."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from sipguard.core.levels import State
from sipguard.core.parameters import Lcdm, Parameters
from sipguard.core.verdicts import Change
from sipguard.lab.plots import Mark, PlotError, Sample, draw_run

SECOND = 1_000_000_000
PARAMETERS = Parameters(LC=400, LCDM=Lcdm.DENIAL_TO_DROP, LCPS=80, LRC=10, PC=25, TR=200)
N, A, C = State.NORMAL, State.AROUND, State.CRITICAL
RIBBON = {"normal": (0xCF, 0xE8, 0xD5), "around": (0xFB, 0xD9, 0xA0), "critical": (0xF2, 0xB3, 0xAD)}


def change(at_s: float, before: State, after: State) -> Change:
    return Change(round(at_s * SECOND), before, after, 900, 400, 0, 0, "level")


def samples(origin_ns: int = 0) -> list[Sample]:
    """10 s: admitted 100/s, then 900/s refused, then dropped, then admitted again."""
    rates = [(100, 0, 0)] * 4 + [(0, 900, 0)] * 2 + [(0, 0, 900)] * 2 + [(100, 0, 0)] * 2
    return [Sample(origin_ns + n * SECOND, origin_ns + (n + 1) * SECOND, *rate) for n, rate in enumerate(rates)]


def pixels(path: Path) -> Any:
    """Rows × columns × RGB of 0 … 255."""
    from matplotlib.image import imread

    return (imread(path)[:, :, :3] * 255).round().astype(int)


def ribbon_columns(image: Any, color: tuple[int, int, int]) -> tuple[int, int]:
    """First and last column that shows a state's colour."""
    columns = (image == color).all(axis=2).any(axis=0).nonzero()[0]
    return int(columns[0]), int(columns[-1])


def test_the_bands_stand_where_the_states_were(tmp_path: Path) -> None:
    path = tmp_path / "new" / "run.png"
    run = [change(4, N, A), change(6, A, C), change(8, C, N)]
    marks = [Mark(5 * SECOND, 900, "here")]
    draw_run(samples(), run, PARAMETERS, path, "a run", marks=marks)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert path.stat().st_size < 150_000
    image = pixels(path)
    assert image.shape[0] > 500
    assert image.shape[1] > 1000
    left, right = ribbon_columns(image, RIBBON["normal"])
    for name, from_s, to_s in (("around", 4, 6), ("critical", 6, 8)):
        first, last = ribbon_columns(image, RIBBON[name])
        assert first == pytest.approx(left + (right - left) * from_s / 10, abs=4)
        assert last == pytest.approx(left + (right - left) * to_s / 10, abs=4)


def test_the_clocks_origin_does_not_matter(tmp_path: Path) -> None:
    origin_ns = 123_456_789_000
    shifted = [
        Change(entry.time_ns + origin_ns, *entry[1:]) for entry in (change(4, N, A), change(6, A, C), change(8, C, N))
    ]
    draw_run(samples(), [change(4, N, A), change(6, A, C), change(8, C, N)], PARAMETERS, tmp_path / "a.png", "a run")
    draw_run(samples(origin_ns), shifted, PARAMETERS, tmp_path / "b.png", "a run", origin_ns=origin_ns)
    assert (pixels(tmp_path / "a.png") == pixels(tmp_path / "b.png")).all()


def test_a_run_that_stayed_normal(tmp_path: Path) -> None:
    draw_run(samples()[:1], [], PARAMETERS, tmp_path / "run.png", "a run")
    image = pixels(tmp_path / "run.png")
    assert not (image == RIBBON["around"]).all(axis=2).any()
    assert (image == RIBBON["normal"]).all(axis=2).any()


def test_no_sample_no_picture(tmp_path: Path) -> None:
    with pytest.raises(PlotError, match="no sample"):
        draw_run([], [], PARAMETERS, tmp_path / "run.png", "a run")
    assert list(tmp_path.iterdir()) == []


def test_without_matplotlib_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("matplotlib")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(PlotError, match=r"pip install 'sipguard\[lab\]'"):
        draw_run(samples(), [], PARAMETERS, tmp_path / "run.png", "a run")
