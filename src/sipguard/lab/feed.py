"""Files into a study: captures through the decoder, events row by row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import chain
from typing import Any, NamedTuple

from sipguard.core.parameters import Parameters
from sipguard.core.policy import Policy
from sipguard.lab.capture.decoder import Decoder
from sipguard.lab.capture.files import Captures, Input, note_empty
from sipguard.lab.capture.records import CaptureError, Packet
from sipguard.lab.capture.text import text_lines
from sipguard.lab.jsonl import read_jsonl
from sipguard.lab.replay import RowError, read_events
from sipguard.lab.study import Study
from sipguard.shown import duration

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

    about: for machines. facts: for people, name and value. damages: what could not be read. instead: what was in the input
    besides requests, for when there was none.
    """

    study: Study
    about: dict[str, Any]
    facts: list[tuple[str, str]]
    damages: list[str]
    instead: str


def feed(
    inputs: Sequence[Input],
    make_study: MakeStudy,
    options: CaptureOptions,
    until_ns: int | None = None,
    on_read: Callable[[int], None] | None = None,
) -> Fed:
    """Run the inputs, all captures or all events (empty ones go with either), through the study.

    until_ns: the windows that end by then are closed, ns since the origin; captures: None is the last packet's time. on_read:
    told the bytes read so far. Raises CaptureError, OSError, RowError (what came before it has been told by the hooks).
    """
    captures = [each for each in inputs if each.kind == "capture"]
    events = [each for each in inputs if each.kind not in ("capture", "empty")]
    if captures and events:
        raise CaptureError(
            None,
            f"captures and events together ({captures[0].name} is a capture, {events[0].name} is none): allowed is either, "
            "since their times have no common origin; nothing was read",
        )
    if captures:
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
    missing = _missing(decoder, study)
    facts = [*_read_facts(inputs, decoder), *missing, *_back_facts(study)]
    instead = "; ".join(f"{name}: {count}" for name, count in missing)
    if not instead:
        instead = (
            f"none of {decoder.tally.packets:,} packets is one" if decoder.tally.packets else "there is no packet in it"
        )
    return Fed(study, _about(inputs, decoder), facts, damages, instead)


def _feed_events(
    inputs: Sequence[Input], make_study: MakeStudy, until_ns: int | None, on_read: Callable[[int], None] | None
) -> Fed:
    study = make_study(0)
    damages: list[str] = []
    before = 0
    for each in inputs:
        told = None if on_read is None else _after(before, on_read)
        before += each.size or 0
        with closing(each.open(told)) as source:
            note_empty(source)
            lines = text_lines(source)
            try:
                study.run_events(read_jsonl(lines) if each.kind == "jsonl" else read_events(lines))
            except RowError as error:
                error.file = each.name
                raise
            damages += map(str, source.damages)
    study.close(until_ns)
    kind, instead = "events", "no row in it counts any"
    if all(each.kind == "empty" for each in inputs):
        kind, instead = "empty", "there is nothing in it"
    about = {"inputs": [each.name for each in inputs], "kind": kind}
    return Fed(study, about, [("files", _names(inputs)), *_back_facts(study)], damages, instead)


def _after(before: int, on_read: Callable[[int], None]) -> Callable[[int], None]:
    """Told the bytes of one file, tells those of all so far."""
    return lambda position: on_read(before + position)


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


def _names(inputs: Sequence[Input]) -> str:
    names = [each.name for each in inputs]
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _read_facts(inputs: Sequence[Input], decoder: Decoder) -> list[tuple[str, str]]:
    tally = decoder.tally
    return [("files", _names(inputs)), ("packets", f"{tally.packets:,} ({tally.bytes:,} bytes)")]


def _missing(decoder: Decoder, study: Study) -> list[tuple[str, str]]:
    """Every reason for which a request may be missing, with its count."""
    tally, streams = decoder.tally, decoder.streams
    reasons = (
        ("packets of an unknown link type", tally.other_links),
        ("packets that are no IP", tally.not_ip),
        ("packets on other ports", tally.other_ports),
        ("SIP responses (never count)", tally.udp_responses + tally.tcp_responses),
        ("requests to other addresses", tally.elsewhere),
        ("ACKs to the guard's own 503, absorbed (SPEC M2)", tally.absorbed),
        ("requests before the origin, left out", study.early),
        ("packets out of tunnels", tally.tunnelled),
        ("packets in too many tunnels", tally.too_deep),
        ("packets captured in part", tally.cut),
        ("UDP packets longer than their IP packet", tally.malformed),
        ("datagrams with fragments missing", decoder.incomplete_datagrams),
        ("TCP gaps", streams.gaps),
        ("TCP streams whose framing was lost", streams.broken),
        ("TCP messages never complete", streams.unfinished),
    )
    return [(name, f"{count:,}") for name, count in reasons if count]


def _back_facts(study: Study) -> list[tuple[str, str]]:
    if not study.back:
        return []
    return [
        (
            "times that go back (each counts as the one before, SPEC M4)",
            f"{study.back:,}, by {duration(study.back_ns)} at most",
        )
    ]
