"""Fixtures of the tests with real peers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.peers.testbed import Testbed


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Testbed]:
    """An empty testbed; whatever the test starts on it is ended after the test."""
    with Testbed(tmp_path) as testbed:
        yield testbed
