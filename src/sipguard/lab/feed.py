"""Files into a study: captures through the decoder, events row by row."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import chain
from typing import Any, NamedTuple

from sipguard.core.parameters import Parameters
from sipguard.core.policy import Policy
from sipguard.lab.capture.decoder import Decoder
from sipguard.lab.capture.files import Captures, Input
from sipguard.lab.capture.records import CaptureError, Packet
from sipguard.lab.capture.source import Source, TextLines
from sipguard.lab.jsonl import read_jsonl
from sipguard.lab.replay import Event, read_events
from sipguard.lab.study import Study

SECOND_NS = 1_000_000_000

Sets = Sequence[tuple[Parameters, Policy]]
#: Makes the study for an origin (Unix time in ns; 0 for events).
MakeStudy = Callable[[int], Study]


class CaptureOptions(NamedTuple):
    """How captures are read: see `Decoder`; origin_ns: Unix time in ns, or None for the first packet's time; whole_second:
    that time's whole second instead."""

    ports: frozenset[int] | None = None
    targets: frozenset[tuple[bytes, int]] | None = None
    own_finals: bool = False
    max_body: int = 65536
    origin_ns: int | None = None
    whole_second: bool = False
    exempt_uris: tuple[str, ...] = ()


class Fed(NamedTuple):
    """A study that has run, with what is to be said of its input.

    about: for machines. facts: for people, name and value. damages: what could not be read.
    """

    study: Study
    about: dict[str, Any]
    facts: list[tuple[str, str]]
    damages: list[str]


def feed(
    inputs: Sequence[Input],
    make_study: MakeStudy,
    options: CaptureOptions,
    until_ns: int | None = None,
    on_read: Callable[[int], None] | None = None,
) -> Fed:
    """Run the inputs, all captures or all events, through the study.

    until_ns: the windows that end by then are closed, ns since the origin; captures: None is the last packet's time. on_read:
    told the bytes read so far. Raises CaptureError, OSError, RowError (what came before it has been told by the hooks).
    """
    kinds = {each.kind == "capture" for each in inputs}
    if len(kinds) != 1:
        raise CaptureError("captures and events together: allowed is either, since their times have no common origin")
    if kinds.pop():
        return _feed_captures(inputs, make_study, options, until_ns, on_read)
    return _feed_events(inputs, make_study, until_ns, on_read)


# -- inside ------------------------------------------------------------------------------------------------------------


def _feed_captures(
    inputs: Sequence[Input],
    make_study: MakeStudy,
    options: CaptureOptions,
    until_ns: int | None,
    on_read: Callable[[int], None] | None,
) -> Fed:
    captures = Captures(inputs, on_read)
    packets = captures.packets()
    first = next(packets, None)
    study = make_study(_origin(first, options))
    decoder = Decoder(
        ports=options.ports,
        targets=options.targets,
        own_finals=options.own_finals,
        max_body=options.max_body,
        exempt_uris=options.exempt_uris,
    )
    if first is not None:
        study.run_requests(decoder.requests(chain((first,), packets)))
    # The capture itself says how long the calm at its end was.
    study.close(max(study.last_ns, decoder.last_ns - study.origin_ns) if until_ns is None else until_ns)
    damages = [str(damage) for damage in captures.damages]
    return Fed(study, _about(inputs, decoder), _facts(inputs, decoder, study), damages)


def _feed_events(
    inputs: Sequence[Input], make_study: MakeStudy, until_ns: int | None, on_read: Callable[[int], None] | None
) -> Fed:
    study = make_study(0)
    damages: list[str] = []
    for each in inputs:
        with closing(each.open(on_read)) as source:
            study.run_events(_events(source, each.kind))
            damages += map(str, source.damages)
    study.close(until_ns)
    names = [each.name for each in inputs]
    return Fed(study, {"inputs": names, "kind": "events"}, [("files", ", ".join(names))], damages)


def _events(source: Source, kind: str) -> Iterator[Event]:
    # Bytes that are no UTF-8 become characters no method has: the row is named, not the codec.
    lines = io.TextIOWrapper(
        io.BufferedReader(TextLines(source)), encoding="utf-8-sig", errors="surrogateescape", newline=""
    )
    return read_jsonl(lines) if kind == "jsonl" else read_events(lines)


def _origin(first: Packet | None, options: CaptureOptions) -> int:
    if options.origin_ns is not None:
        return options.origin_ns
    if first is None:
        return 0
    return first[0] - first[0] % SECOND_NS if options.whole_second else first[0]


def _about(inputs: Sequence[Input], decoder: Decoder) -> dict[str, Any]:
    streams = decoder.streams
    return {
        "inputs": [each.name for each in inputs],
        "kind": "capture",
        "decoded": {
            **decoder.tally.as_dict(),
            "incomplete_datagrams": decoder.incomplete_datagrams,
            "tcp_gaps": streams.gaps,
            "tcp_broken": streams.broken,
            "tcp_unfinished": streams.unfinished,
        },
    }


def _facts(inputs: Sequence[Input], decoder: Decoder, study: Study) -> list[tuple[str, str]]:
    """What was read, and every reason for which a request may be missing from it."""
    tally, streams = decoder.tally, decoder.streams
    names = [each.name for each in inputs]
    shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    facts = [("files", shown), ("packets", f"{tally.packets:,} ({tally.bytes:,} bytes)")]
    reasons = (
        ("packets of an unknown link type", tally.other_links),
        ("SIP responses (never count)", tally.udp_responses + tally.tcp_responses),
        ("requests to other addresses", tally.elsewhere),
        ("ACKs to the guard's own 503, absorbed (SPEC M2)", tally.absorbed),
        ("requests before the origin, left out", study.early),
        ("packets out of tunnels", tally.tunnelled),
        ("packets captured in part", tally.cut),
        ("datagrams with fragments missing", decoder.incomplete_datagrams),
        ("TCP gaps", streams.gaps),
        ("TCP streams whose framing was lost", streams.broken),
        ("TCP messages never complete", streams.unfinished),
    )
    facts += [(name, f"{count:,}") for name, count in reasons if count]
    if study.back:
        facts.append(
            (
                "times that go back (each counts as the one before, SPEC M4)",
                f"{study.back:,}, most {study.back_ns / 1e6:g} ms",
            )
        )
    return facts
