"""`make bench-lab` as a command; no figure is asserted, only that it is one."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]


def test_every_part_prints_its_rows() -> None:
    argv = [sys.executable, str(_ROOT / "bench" / "lab.py"), "--quick"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    for row in ("sipguard replay", "dpkt", "calm", "excess", "drowned", "reading the capture", "with 10 trials"):
        found = re.search(rf"│ {row}[^│]*│ +([0-9][0-9,.]*)", done.stdout)
        assert found is not None, row
        assert float(found[1].replace(",", "")) >= 0
