"""What the tests of core share."""

from __future__ import annotations

import pytest

from sipguard import Parameters
from sipguard.core.levels import LevelMachine, Step


@pytest.fixture
def evaluated(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The RPS of every cycle that any level machine evaluates, in order: the work done, kept or not."""
    found: list[int] = []
    evaluate = LevelMachine.evaluate

    def counting(level: LevelMachine, rps: int, parameters: Parameters) -> Step:
        found.append(rps)
        return evaluate(level, rps, parameters)

    monkeypatch.setattr(LevelMachine, "evaluate", counting)
    return found
