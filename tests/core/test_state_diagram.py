"""The diagram of ARCHITECTURE.md is the level table's (SPEC §4), and the check that says so can fail."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from sipguard.core.levels import TABLE

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "state_diagram.py"
ARCHITECTURE = ROOT / "ARCHITECTURE.md"
BEGIN = "<!-- state diagram: made by scripts/state_diagram.py -->"
END = "<!-- end -->"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, timeout=60, check=False
    )


def test_architecture_has_the_diagram_of_the_table() -> None:
    done = run("--check")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("normal --> critical_limit", "normal --> around_critical_limit"),
        ("L6 L5", "L6"),
        ("    [*] --> normal\n", ""),
    ],
)
def test_the_check_fails_on_a_changed_arrow_and_writes_nothing(tmp_path: Path, right: str, wrong: str) -> None:
    text = ARCHITECTURE.read_text(encoding="utf-8")
    assert right in text
    file = tmp_path / "A.md"
    file.write_text(text.replace(right, wrong, 1), encoding="utf-8")
    assert run("--check", str(file)).returncode == 1
    assert file.read_text(encoding="utf-8") == text.replace(right, wrong, 1)


def test_the_check_fails_on_a_changed_table(tmp_path: Path) -> None:
    """The other way round: the paper is as it was, a row of the table is not."""
    tampered = (
        "import runpy, sys\n"
        "from sipguard.core import levels\n"
        "levels.TABLE = levels.TABLE[:-1]\n"
        f"sys.argv = [{str(SCRIPT)!r}, '--check', {str(ARCHITECTURE)!r}]\n"
        f"runpy.run_path({str(SCRIPT)!r}, run_name='__main__')\n"
    )
    done = subprocess.run([sys.executable, "-c", tampered], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "is not the level table's" in done.stderr


def test_writing_touches_nothing_outside_the_markers(tmp_path: Path) -> None:
    file = tmp_path / "A.md"
    file.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n{END}\n", encoding="utf-8")
    assert run(str(file)).returncode == 0
    written = file.read_text(encoding="utf-8")
    assert written.startswith(f"before\n{BEGIN}\n```mermaid\nstateDiagram-v2\n")
    assert written.endswith(f"```\n{END}\nafter\n{END}\n")
    assert "old" not in written
    assert run("--check", str(file)).returncode == 0


@pytest.mark.parametrize("text", ["", BEGIN, f"{END}\n{BEGIN}", f"{BEGIN}\n{BEGIN}\n{END}"])
def test_a_file_without_its_markers_is_a_usage_error(tmp_path: Path, text: str) -> None:
    file = tmp_path / "A.md"
    file.write_text(text, encoding="utf-8")
    assert run("--check", str(file)).returncode == 2
    assert run(str(file)).returncode == 2
    assert file.read_text(encoding="utf-8") == text
    assert run("--check", str(tmp_path / "absent.md")).returncode == 2


def test_every_row_is_an_arrow_and_every_label_is_plain() -> None:
    """A mermaid label ends at ":" or ";"; both would cut the picture short."""
    arrows = re.findall(r"^    (\w+) --> (\w+) : (.+)$", ARCHITECTURE.read_text(encoding="utf-8"), re.MULTILINE)
    of_the_level = [(before, after) for before, after, label in arrows if not label.startswith("C2 ")]
    assert of_the_level == [(row.state.value, row.to.value) for row in TABLE]
    assert [(before, after) for before, after, label in arrows if label.startswith("C2 ")] == [
        ("around_critical_limit", "critical_limit"),
        ("critical_limit", "around_critical_limit"),
    ]
    assert not [label for _, _, label in arrows if re.search(r"[:;<>]", label)]
