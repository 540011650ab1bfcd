"""Every message of the shared corpus is read as its INDEX row says (issue 2 §3); rows marked unsure or null are skipped.

The corpus stays outside the repository: without it (SIPGUARD_SHARED, else `shared` beside the repository) these tests skip.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sipguard.wire.framing import BROKEN, MESSAGE, StreamFramer
from sipguard.wire.head import read_head
from sipguard.wire.replies import reply
from sipguard.wire.scan import is_response, request_method

SHARED = Path(os.environ.get("SIPGUARD_SHARED") or Path(__file__).resolve().parents[3] / "shared")
INDEX = SHARED / "corpus" / "INDEX.jsonl"

pytestmark = pytest.mark.skipif(not INDEX.exists(), reason=f"the shared corpus is not here ({INDEX})")

# Where this reader disagrees with a row, and why. A field named here must differ: an entry that no longer holds fails the test.
_NOT_GIVEN = (
    "the row gives no values (its note: 'vias etc. not given'); we read the request line alone, then every header"
)
_OUTER_CR = (
    "the line ends in CR CR LF: we strip the outer CR with the white space; such a request is refused anyway (bare-cr)"
)
_BARE_LF = (
    "the empty line is a bare LF, which ends the head here (issue 2 §3: bare LF tolerated); with it the body is whole"
)
DISAGREEMENTS: dict[str, dict[str, str]] = {
    "torture/sofia-draft/test1.txt": dict.fromkeys(("vias", "from", "call_id", "cseq"), _NOT_GIVEN),
    "torture/sofia-draft/test1a.txt": dict.fromkeys(("vias", "from", "call_id", "cseq"), _NOT_GIVEN),
    "torture/ser/sg.sip": dict.fromkeys(("from", "to"), _OUTER_CR),
    "torture/sofia-draft/test3.txt": {"count_tcp": _BARE_LF},
}

FIELDS = ("count_udp", "count_tcp", "method", "vias", "from", "to", "call_id", "cseq", "to_tag", "respond")
SKIP = object()


@dataclass(frozen=True)
class Row:
    """One INDEX row and its file."""

    name: str
    fields: dict[str, Any]
    data: bytes

    @property
    def is_sip(self) -> bool:
        return self.fields["msg"] not in ("not-sip", "keepalive")


def load_rows() -> list[Row]:
    rows = []
    for line in INDEX.read_text("utf-8").splitlines():
        fields = json.loads(line)
        if fields["kind"] != "pcap":
            rows.append(Row(fields["file"], fields, (INDEX.parent / fields["file"]).read_bytes()))
    return rows


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return load_rows()


def stream_frames(data: bytes, cuts: list[int]) -> tuple[int, str, bool]:
    """Requests framed out of `data`, the reason the stream was lost, and whether a message is left unfinished."""
    framer = StreamFramer()
    frames = []
    for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        frames += framer.feed(data[start:end], 1)
    requests = sum(frame.kind == MESSAGE and request_method(frame.data) is not None for frame in frames)
    lost = "".join(frame.reason for frame in frames if frame.kind == BROKEN)
    return requests, lost, framer.partial_since_ns is not None


def expected(row: Row, field: str) -> Any:
    """What the row says of a field, in the terms of `found`; SKIP when it says unsure or nothing."""
    fields = row.fields
    value = fields[field]
    if field == "count_tcp" and isinstance(value, str):
        return {
            "incomplete": (0, "", True),
            "0 then close (bad Content-Length)": (0, "bad-content-length", False),
            "1, then the body is seen as garbage: framing lost (no Content-Length on a stream)": (
                1,
                "bad-start-line",
                False,
            ),
            "1 then framing lost": (1, "bad-start-line", False),
        }.get(value, SKIP)
    if isinstance(value, str) and value.startswith("unsure"):
        return SKIP
    if field in ("count_udp", "count_tcp", "method"):
        return value
    if field == "respond":
        # What is no request is never answered: for the reader a response is not answerable either.
        return {"yes": True, "no": False, "never": False}[value]
    if not row.is_sip:
        return SKIP
    if field == "vias":
        return [via.encode("utf-8", "surrogateescape") for via in value]
    return None if value is None else value.encode("utf-8", "surrogateescape")


def found(row: Row, field: str, cuts: list[int]) -> Any:
    head = read_head(row.data)
    if field == "count_tcp":
        outcome = stream_frames(row.data, cuts)
        return outcome if isinstance(row.fields[field], str) else outcome[0]
    return {
        "count_udp": int(request_method(row.data) is not None),
        "method": request_method(row.data),
        "vias": head.vias,
        "from": head.from_,
        "to": head.to,
        "call_id": head.call_id,
        "cseq": head.cseq,
        "to_tag": head.to_tag,
        "respond": head.answerable,
    }[field]


def splits(data: bytes, seed: str) -> dict[str, list[int]]:
    chance = random.Random(seed)
    several = sorted(chance.sample(range(1, len(data)), min(5, len(data) - 1))) if len(data) > 1 else []
    return {"whole": [], "byte by byte": list(range(1, len(data))), "random": several}


def test_every_row(rows: list[Row], capsys: pytest.CaptureFixture[str]) -> None:
    """Method, count, identities and answerability of every row, as INDEX.jsonl has them."""
    compared: Counter[str] = Counter()
    skipped: Counter[str] = Counter()
    disagreed: Counter[str] = Counter()
    wrong = []
    for row in rows:
        for field in FIELDS:
            want = expected(row, field)
            if want is SKIP:
                skipped[field] += 1
                continue
            compared[field] += 1
            differs = field in DISAGREEMENTS.get(row.name, {})
            disagreed[field] += differs
            for split, cuts in (splits(row.data, row.name) if field == "count_tcp" else {"": []}).items():
                got = found(row, field, cuts)
                if (got != want) is not differs:
                    wrong.append((row.name, field, split, got, want))
    with capsys.disabled():
        print(f"\ncorpus: {len(rows)} messages")
        for field in FIELDS:
            print(
                f"  {field:<10} compared {compared[field]:>3}  skipped {skipped[field]:>3}  disagree {disagreed[field]}"
            )
    assert wrong == []
    assert all(compared[field] > 200 for field in FIELDS)


def test_tier_1_agrees_with_tier_0(rows: list[Row]) -> None:
    for row in rows:
        head = read_head(row.data)
        assert head.method == request_method(row.data), row.name
        if row.fields["msg"] == "response":
            assert is_response(row.data), row.name


def test_what_is_valid_is_not_refused(rows: list[Row]) -> None:
    """A well-formed request has no problem; one that is merely old-fashioned has none either, but for what is named here."""
    short = "INDEX itself notes cl>body: on UDP RFC 3261 18.3 answers 400"
    known = {
        "torture/rfc5118-crlf/ipv6-in-sdp.sip": ("body-short", short),
        "torture/ser/sg.sip": ("bare-cr", "CR CR LF at the end of From and To; INDEX: '400, or strip it; unsure'"),
        "torture/sofia-draft/test42.txt": ("version", "SIP/7.0: RFC 4475 3.1.2.16 answers 505"),
    }
    for row in rows:
        if row.fields["msg"] == "request" and row.fields["well_formed"] in ("yes", "lenient"):
            want = known[row.name][0] if row.name in known else None
            assert read_head(row.data).problem == want, row.name


def test_answers_repeat_the_identities(rows: list[Row]) -> None:
    """RFC 3261 8.2.6.2: an answer to each answerable row reads back to the row's Vias, From, To, Call-ID and CSeq."""
    answered = 0
    for row in rows:
        head = read_head(row.data)
        if not head.answerable:
            continue
        answered += 1
        back = read_head(reply(head, 503, b"Service Unavailable", to_tag=b"sg1"))
        assert back.status == 503
        assert back.problem is None, row.name
        assert (back.vias, back.from_, back.call_id, back.cseq) == (head.vias, head.from_, head.call_id, head.cseq), (
            row.name
        )
        assert head.to is not None
        assert back.to == (head.to if head.to_tag is not None else head.to + b";tag=sg1"), row.name
    assert answered > 200
