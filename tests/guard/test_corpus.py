"""Every message of the shared corpus through the guard, on every side and in every state (issue 2 §3, §4)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.guard.messages import status_of
from tests.guard.rig import A, C, N, Rig, judged, total
from tests.guard.test_hostile import drive
from tests.shared import SHARED

CORPUS = SHARED / "corpus"
INDEX = CORPUS / "INDEX.jsonl"

pytestmark = pytest.mark.skipif(not INDEX.exists(), reason="the shared corpus is not here")


def rows() -> list[dict[str, Any]]:
    """Single messages; captures have another format."""
    found = [json.loads(line) for line in INDEX.read_text(encoding="utf-8").splitlines()]
    return [row for row in found if row["kind"] != "pcap" and Path(CORPUS / row["file"]).is_file()]


def test_every_message_on_every_side_in_every_state() -> None:
    """Nothing raises; requests stay allow + reject + drop."""
    files = [(row["file"], (CORPUS / row["file"]).read_bytes()) for row in rows()]
    assert len(files) > 300
    for state in (N, A, C):
        rig = Rig(stream_drop="reject", exempt_uris=("urn:",))
        for name, data in files:
            if rig.controller.state is not state:
                rig.into(state)
            drive(rig, data)
            assert total(rig.counters.requests) == judged(rig.guard), name
            assert rig.controller.state is state


def test_what_counts_is_what_the_index_says() -> None:
    """SPEC M2: count_udp requests for the whole file as one datagram; an ACK and what is no request are never answered."""
    compared = skipped = 0
    for row in rows():
        data = (CORPUS / row["file"]).read_bytes()
        rig = Rig(law={"LCDM": "denial_only"}).into(A)
        before = total(rig.counters.requests)
        action = rig.receive(data)
        counted = total(rig.counters.requests) - before
        if not isinstance(row["count_udp"], int):
            skipped += 1
            continue
        compared += 1
        assert counted == min(row["count_udp"], 1), row["file"]
        answered = action is not None and status_of(action.data) > 0
        if row["count_udp"] == 0 or row["method"] == "ACK":
            assert not answered, row["file"]
        if row["respond"] in ("never", "no"):
            assert not answered, row["file"]
        if row["respond"] == "yes" and row["method"] in (
            "INVITE",
            "REGISTER",
            "OPTIONS",
            "MESSAGE",
            "SUBSCRIBE",
            "REFER",
            "INFO",
        ):
            assert answered, row["file"]
            assert action is not None
            assert status_of(action.data) == 503, row["file"]
    print(f"corpus through the guard: {compared} rows compared, {skipped} skipped (unsure)")
    assert compared > 300


def test_what_the_index_calls_well_formed_goes_on_to_the_server() -> None:
    """A message from a real device is passed on, or ended by a reason of RFC 3261 16.3 that its row explains."""
    ended: dict[str, list[str]] = {}
    passed = 0
    for row in rows():
        if row["kind"] != "device" or row["count_udp"] != 1 or row["well_formed"] != "yes":
            continue
        rig = Rig()
        action = rig.receive((CORPUS / row["file"]).read_bytes())
        if action is not None and action.flow == rig.servers[0].flow:
            passed += 1
        else:
            for reason in rig.counters.outcomes:
                ended.setdefault(reason, []).append(row["file"])
    print(f"corpus: {passed} device messages passed on, ended: {ended}")
    assert passed > 60
    assert set(ended) <= {"max-forwards", "options", "body-short", "unanswerable"}, ended
