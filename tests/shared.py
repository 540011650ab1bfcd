"""Where the specification and the corpus stand: beside the checkout, or where SIPGUARD_SHARED says. May be absent."""

from __future__ import annotations

import os
from pathlib import Path

SHARED = Path(os.environ.get("SIPGUARD_SHARED") or Path(__file__).resolve().parents[2] / "shared")
