"""The guide: its pictures are there, small, and the same each time; both languages show the same ones."""

from __future__ import annotations

import importlib.util
import re
from io import BytesIO
from pathlib import Path
from types import ModuleType

import pytest

from sipguard import Parameters
from sipguard.lab.sim.scenario_file import shipped
from sipguard.manage.settings import parse_retry_after

ROOT = Path(__file__).resolve().parents[3]
GUIDES = ("docs/choosing.md", "docs/choosing.ru.md")


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("guide_pictures", ROOT / "scripts" / "guide_pictures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pictures_of(guide: str) -> list[str]:
    return re.findall(r"!\[[^\]]+\]\(guide/([a-z-]+)\.png\)", (ROOT / guide).read_text("utf-8"))


def test_both_languages_show_all_pictures_in_the_same_order(script: ModuleType) -> None:
    english, russian = map(pictures_of, GUIDES)
    assert english == russian
    assert english == list(script.PICTURES)
    assert len(english) <= 8


def test_pictures_are_small(script: ModuleType) -> None:
    for name in script.PICTURES:
        png = (ROOT / "docs" / "guide" / f"{name}.png").read_bytes()
        assert png.startswith(b"\x89PNG")
        assert len(png) <= 100_000


@pytest.mark.parametrize("name", ["quiet-night", "tr"])
def test_a_picture_is_the_same_each_time(script: ModuleType, name: str) -> None:
    def drawn() -> bytes:
        file = BytesIO()
        script.PICTURES[name]().savefig(file, format="png", dpi=100, metadata={"Software": None})
        return file.getvalue()

    assert drawn() == drawn()


@pytest.mark.parametrize("guide", GUIDES)
def test_what_it_names_exists(guide: str) -> None:
    text = (ROOT / guide).read_text("utf-8")
    for name in re.findall(r"sipguard simulate ([a-z0-9-]+) ", text):
        assert name.startswith("--") or name in shipped()
    for name in re.findall(r"--scenario ([a-z0-9-]+)", text):
        assert name in shipped()
    ranges = re.findall(r'retry_after = "([^"]+)"', text)
    assert [str(parse_retry_after(each)) for each in ranges] == ["30-120"]
    # SPEC P4: the warned-about TR and the rate at which LC 800 acts with it.
    assert Parameters(TR=600).warnings()
    assert 800 * 1000 // (Parameters(TR=600).scale * 600) == 1333
    assert "1333" in text
