"""Every capture of the shared corpus gives the request counts of its INDEX row, by transport and method (issue 3 §1).

The corpus stays outside the repository: without it (SIPGUARD_SHARED, else `shared` beside the repository) this skips.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from sipguard.lab.capture.decoder import Decoder
from sipguard.lab.capture.files import Captures, Input
from tests.shared import SHARED

CORPUS = SHARED / "corpus"
INDEX = CORPUS / "INDEX.jsonl"

pytestmark = pytest.mark.skipif(not INDEX.exists(), reason=f"the shared corpus is not here ({INDEX})")

#: Rows marked unsure: what must hold all the same.
UNSURE = {"pcap/real/ndpi_fuzz-2006-06-26-2594.pcap": range(24, 32)}


def rows() -> list[dict[str, Any]]:
    lines = INDEX.read_text("utf-8").splitlines()
    return [row for row in map(json.loads, lines) if row["kind"] == "pcap"]


def counted(row: dict[str, Any]) -> tuple[dict[str, int], Captures]:
    """By the row's own keys: "udp INVITE", or "INVITE" where it does not tell the transports apart."""
    captures = Captures([Input(str(CORPUS / row["file"]))])
    by_transport = "count_udp" in row
    found = Counter(
        f"{request.transport} {request.method}" if by_transport else request.method
        for request in Decoder().requests(captures.packets())
    )
    return dict(found), captures


def test_every_capture_gives_the_counts_of_its_row() -> None:
    compared, skipped, disagreed = [], [], []
    for row in rows():
        name = row["file"]
        found, _ = counted(row)
        if row["confidence"] == "unsure":
            skipped.append(f"{name}: the row is marked unsure; {sum(found.values())} requests found: {found}")
            assert sum(found.values()) in UNSURE[name], found
            continue
        compared.append(name)
        if found != row["methods"]:
            disagreed.append(f"{name}: found {found}, the row says {row['methods']} ({row['confidence']})")
    print(f"compared {len(compared)}, skipped {len(skipped)}, disagreed {len(disagreed)}")
    for line in (*skipped, *disagreed):
        print(" ", line)
    assert not disagreed
    assert {row["file"] for row in rows()} == {*compared, *(line.split(": ")[0] for line in skipped)}
    assert len(compared) >= 44


def test_the_broken_capture_is_reported_with_its_place() -> None:
    """A big-endian file header over little-endian records: nothing readable, said where."""
    row = next(row for row in rows() if row["file"].endswith("pkts_cool.pcap"))
    found, captures = counted(row)
    assert found == {}
    assert [(damage.offset, damage.reason.split(" (")[0]) for damage in captures.damages] == [
        (24, "no record header, and none after it")
    ]


def test_no_other_capture_is_damaged() -> None:
    for row in rows():
        _, captures = counted(row)
        assert row["file"].endswith("pkts_cool.pcap") or captures.damages == [], row["file"]
