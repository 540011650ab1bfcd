#!/usr/bin/env python3
"""The state diagram of ARCHITECTURE.md, made from the level table (`sipguard.core.levels.TABLE`).

Usage: scripts/state_diagram.py [--check] [FILE]

Writes a mermaid stateDiagram-v2 between the two markers of FILE (ARCHITECTURE.md beside the scripts directory by default).
With --check nothing is written; exit 1 when the diagram is not the table's, 2 when FILE or its markers are missing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from sipguard.core.levels import TABLE, LevelMachine, Load, Row, Run, State, When
from sipguard.core.parameters import Lcdm

BEGIN = "<!-- state diagram: made by scripts/state_diagram.py -->"
END = "<!-- end -->"
DEFAULT = Path(__file__).resolve().parent.parent / "ARCHITECTURE.md"

# Words, not signs: a mermaid label ends at ":" or ";", and "<" is HTML to some renderers.
_LOAD = {Load.OVER: "above LC", Load.EQUAL: "at LC", Load.BELOW: "below LC"}
_MOVE = {Run.UP: "{} + 1", Run.ZERO: "{} = 0", Run.KEEP: ""}


def diagram(table: Sequence[Row] = TABLE) -> str:
    """The fenced mermaid block: one edge a row of the table, then the edges of a new LCDM (SPEC C2)."""
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {State.NORMAL.value}"]
    lines += [f"    {row.state.value} --> {row.to.value} : {_label(row, table)}" for row in table]
    lines += [
        f"    {before.value} --> {after.value} : C2 new LCDM {mode.value}" for before, after, mode in _mode_edges()
    ]
    return "\n".join([*lines, "```"])


def _label(row: Row, table: Sequence[Row]) -> str:
    modes_of_state = {mode for other in table if other.state is row.state for mode in other.modes}
    parts = [f"{row.rules} RPS {' or '.join(_LOAD[load] for load in row.loads)}"]
    if set(row.modes) != modes_of_state:
        parts.append(" or ".join(mode.value for mode in row.modes))
    parts += [_MOVE[move].format(run) for run, move in (("patience", row.patience), ("relax", row.relax))]
    if row.when in (When.PATIENCE_OVER, When.CALM_PROVEN):
        parts.append(f"when {row.when.value}")
    return ", ".join(part for part in parts if part)


def _mode_edges() -> Iterator[tuple[State, State, Lcdm]]:
    for before in State:
        for mode in Lcdm:
            level = LevelMachine()
            level.state = before
            level.change_mode(mode)
            if level.state is not before:
                yield before, level.state, mode


def replaced(text: str) -> str:
    """The text with the diagram between its markers. Raises ValueError unless it holds each marker once, in order."""
    if text.count(BEGIN) != 1 or END not in text.partition(BEGIN)[2]:
        raise ValueError(f"no {BEGIN} … {END}")
    head, _, rest = text.partition(BEGIN)
    tail = rest.partition(END)[2]
    return f"{head}{BEGIN}\n{diagram()}\n{END}{tail}"


def main(arguments: Sequence[str] | None = None) -> int:
    """0 written or the same, 1 the check found a difference, 2 the file or its markers are missing."""
    parser = argparse.ArgumentParser(description="Make the state diagram of ARCHITECTURE.md from the level table.")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 when the diagram is not the table's"
    )
    parser.add_argument("file", nargs="?", type=Path, default=DEFAULT, metavar="FILE")
    options = parser.parse_args(arguments)
    file: Path = options.file
    try:
        before = file.read_text(encoding="utf-8")
        after = replaced(before)
    except (OSError, ValueError) as error:
        print(f"{file}: {error}", file=sys.stderr)
        return 2
    if options.check:
        if before != after:
            print(f"{file}: the state diagram is not the level table's; run scripts/state_diagram.py", file=sys.stderr)
        return int(before != after)
    if before != after:
        file.write_text(after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
