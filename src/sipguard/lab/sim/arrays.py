"""Types of the arrays the simulator works on. Times are ns of virtual time, 0 at the start of the run."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
"""Times in ns, request ids, row numbers."""
Codes = NDArray[np.int8]
"""Methods, verdicts, outcomes: small numbers."""
Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]

NOTHING: Ints = np.empty(0, np.int64)
NOTHING.flags.writeable = False


def joined(parts: list[Ints]) -> Ints:
    """One array of several; the same one when there is only one."""
    if not parts:
        return NOTHING
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
