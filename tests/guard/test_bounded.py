"""Maps keyed by remote data stay at their cap, and the oldest entry goes (DESIGN §2)."""

from __future__ import annotations

from sipguard.guard.bounded import BoundedMap
from sipguard.guard.flows import Flow
from sipguard.guard.keys import Key, Keyring
from sipguard.guard.refused import MEMORY_NS, RefusedInvites
from sipguard.guard.stamps import Stamps
from sipguard.guard.tokens import FlowTokens
from tests.guard.messages import request
from tests.guard.rig import SECOND, SECRET, Rig

SPOOFED = 200_000
CAP = 1000


def source(number: int) -> tuple[str, int]:
    """One of 200,000 spoofed sources."""
    return f"203.0.{number >> 8 & 255}.{number & 255}", 1024 + (number >> 16)


def test_the_one_put_first_makes_room() -> None:
    entries: BoundedMap[int, str] = BoundedMap(3)
    for number in range(5):
        entries.put(number, str(number))
    assert len(entries) == 3
    assert [entries.get(number) for number in range(5)] == [None, None, "2", "3", "4"]
    assert entries.oldest() == (2, "2")


def test_a_replaced_entry_counts_as_new() -> None:
    entries: BoundedMap[int, str] = BoundedMap(2)
    entries.put(1, "a")
    entries.put(2, "b")
    entries.put(1, "c")
    assert len(entries) == 2
    entries.put(3, "d")
    assert (entries.get(1), entries.get(2), entries.get(3)) == ("c", None, "d")


def test_removing_what_is_not_there_is_no_error() -> None:
    entries: BoundedMap[int, int] = BoundedMap(2)
    entries.remove(1)
    entries.put(1, 1)
    entries.remove(1)
    assert len(entries) == 0
    assert entries.oldest() is None


def test_spoofed_sources_do_not_grow_what_is_kept_per_flow() -> None:
    """DESIGN §2: every table keyed by remote data has a cap. 200,000 sources against a cap of 1,000."""
    rig = Rig()
    tokens = FlowTokens(Keyring(Key(SECRET)), rig.settings.listeners, cap=CAP)
    stamps = Stamps(rig.settings, tokens, cap=CAP)
    server = rig.servers[0]
    for number in range(SPOOFED):
        flow = Flow(rig.udp, source(number))
        stamps.inward(flow, flow, server)
    assert len(stamps._inward) == CAP
    assert len(tokens._written) == CAP
    # What was evicted is made anew, the same; what is read back is bounded too.
    for number in range(0, SPOOFED, 50):
        flow = Flow(rig.udp, source(number))
        read = tokens.read(tokens.write(flow, server.id), 0)
        assert read is not None
        assert read.flow == flow
    assert len(tokens._read) == CAP
    for number in range(2 * CAP):
        stamps.outward(server.flow, Flow(rig.udp, source(number)), server.id)
    assert len(stamps._outward) == CAP


def test_a_guard_under_a_spoofed_flood_keeps_to_the_default_caps() -> None:
    """The whole guard: more sources than its cap, each with a Call-ID and a branch of its own."""
    rig = Rig()
    template = request("BYE", sent_by="host", call_id="id")
    for number in range(70_000):
        host, port = source(number)
        rig.guard.receive(template.replace(b"id", b"%d" % number), Flow(rig.udp, (host, port)), number)
    forwarder = rig.guard._forwarder
    assert len(forwarder._stamps._inward) == len(forwarder._tokens._written) == 65536


def test_the_memory_of_refused_dialog_requests_is_bounded_in_number_and_time() -> None:
    """DESIGN §3: a bounded 32 s memory."""
    refused = RefusedInvites(cap=CAP)
    for number in range(SPOOFED):
        refused.remember(b"%d" % number, number)
    assert len(refused) == CAP
    assert refused.knows(b"%d" % (SPOOFED - 1), SPOOFED)
    assert not refused.knows(b"%d" % (SPOOFED - CAP - 1), SPOOFED)
    refused.forget_old(SPOOFED + MEMORY_NS)
    assert len(refused) == 0


def test_an_old_refusal_is_forgotten_by_the_tick() -> None:
    rig = Rig()
    refused = rig.guard._refused
    rig.answered(request(to_tag="srv1", max_forwards=0))
    assert len(refused) == 1
    rig.now_ns = 31 * SECOND
    rig.guard.tick(rig.now_ns)
    assert len(refused) == 1
    rig.guard.tick(32 * SECOND)
    assert len(refused) == 0
