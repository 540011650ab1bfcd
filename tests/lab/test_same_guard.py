"""A replay and the guard that runs live, both on virtual time, come to the same for any traffic (DESIGN §1).

`test_live` compares with real sockets; here no machine moves a packet, so that nothing may differ at all.
"""

from __future__ import annotations

import io
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from sipguard import Policy
from sipguard.core.verdicts import Cycle
from sipguard.lab.capture.decoder import Decoder
from sipguard.lab.capture.files import packets_of
from sipguard.lab.capture.records import EXEMPT
from sipguard.lab.capture.source import Source
from sipguard.lab.study import Study
from tests.guard.rig import Rig, parameters
from tests.lab.packets import EPOCH_NS, ack, pcap, response, sip, udp4

MS = 1_000_000
EXEMPT_URIS = ("urn:service:sos",)
PAYLOADS = {
    "INVITE": sip("INVITE"),
    "REGISTER": sip("REGISTER"),
    "BYE": sip("BYE"),
    "ACK": ack(),
    "x-own": sip("x-own"),
    "exempt": sip("INVITE").replace(b"sip:bob@example.com SIP", b"urn:service:sos SIP"),
    "response": response(200),
    "garbage": b"\x80\x08" + bytes(40),
    "keep-alive": b"\r\n\r\n",
}

TRAFFIC = st.lists(
    st.tuples(st.integers(0, 4_000_000), st.sampled_from(sorted(PAYLOADS)), st.integers(1, 30)), max_size=40
)


@given(
    TRAFFIC,
    st.sampled_from([Policy(), Policy(shed="excess")]),
    st.sampled_from([{}, {"LCPS": 40}, {"LCDM": "drop_only", "TR": 250}, {"LCDM": "denial_only", "LRC": 1}]),
)
def test_the_guard_and_the_replay(
    traffic: list[tuple[int, str, int]], policy: Policy, law: dict[str, int | str]
) -> None:
    frames = [(at_us * 1000, PAYLOADS[name]) for at_us, name, n in sorted(traffic) for _ in range(n)]
    rig = Rig(policy=policy, law=law, exempt_uris=EXEMPT_URIS)
    live: list[Cycle] = []
    for at_ns, payload in frames:
        while rig.guard.next_deadline() <= at_ns:
            rig.tick()
        live += rig.controller.advance(now_ns=0)
        rig.guard.receive(payload, rig.client(), at_ns)
    end_ns = frames[-1][0] if frames else 0
    live += rig.controller.advance(now_ns=end_ns)

    cycles: list[Cycle] = []
    study = Study([(parameters(**law), policy)], EPOCH_NS)
    study.main.on_cycle = cycles.append
    source = Source(io.BytesIO(pcap(((at_ns, udp4(payload)) for at_ns, payload in frames), nano=True)), "capture")
    study.run_requests(Decoder(exempt_uris=EXEMPT_URIS).requests(packets_of(source)))
    study.close(end_ns)

    assert cycles == live
    assert study.main.verdicts == (rig.controller.allowed, rig.controller.rejected, rig.controller.dropped)
    assert study.main.lcps_refused == rig.counters.lcps_refused
    by_method: Counter[str] = Counter()
    for share in study.main.methods.top():
        by_method[share.name.removesuffix(EXEMPT)] += share.requests
    assert by_method == {method: n for method, n in rig.counters.requests.items() if n}
