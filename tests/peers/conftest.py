"""Fixtures of the tests with real peers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.peers.testbed import Testbed


@pytest.fixture
def bed(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Testbed]:
    """An empty testbed on 127.0.0.1, or on the address it is parametrized with; what the test starts ends with the test."""
    with Testbed(tmp_path, getattr(request, "param", "127.0.0.1")) as testbed:
        yield testbed
