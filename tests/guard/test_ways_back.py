"""Where answers go without rport (RFC 3261 18.2.2): the port of the Via, unless its host tells of a NAT."""

from __future__ import annotations

import pytest

from tests.guard.messages import request, response_to, value, values
from tests.guard.rig import CLIENT, CLIENT6, A, Rig

SENDING, LISTENING = 49152, 5062


@pytest.mark.parametrize(
    ("host", "sent_by", "via_params", "port"),
    [
        (CLIENT, f"{CLIENT}:{LISTENING}", "", LISTENING),
        (CLIENT, CLIENT, "", 5060),
        (CLIENT, f"{CLIENT}:{LISTENING}", ";rport", SENDING),
        (CLIENT, f"10.9.9.9:{LISTENING}", "", SENDING),
        (CLIENT, f"phone.example.com:{LISTENING}", "", SENDING),
        (CLIENT, f"{CLIENT}0:{LISTENING}", "", SENDING),
        (CLIENT6, f"[{CLIENT6}]:{LISTENING}", "", LISTENING),
        (CLIENT6, f"[{CLIENT6}]", "", 5060),
    ],
)
@pytest.mark.parametrize("plain", [True, False], ids=["plain", "the-long-way"])
def test_a_refusal_and_a_servers_response(host: str, sent_by: str, via_params: str, port: int, plain: bool) -> None:
    data = request(
        sent_by=sent_by, via_params=via_params, headers=() if plain else ("v: SIP/2.0/UDP further;branch=z9hG4bKf",)
    )
    rig = Rig()
    flow = rig.client(host, SENDING)
    forwarded = rig.receive(data, flow)
    assert forwarded is not None
    # The server is told the packet's own source.
    assert value(forwarded.data, "X-Guard-Source").decode() == f"{host};{SENDING};udp"
    back = rig.receive(response_to(forwarded.data), rig.server() if ":" not in host else forwarded.flow)
    assert back is not None
    rig.into(A)
    refused = rig.receive(data, flow)
    assert refused is not None
    assert refused.data.startswith(b"SIP/2.0 503")
    for answer in (back, refused):
        assert (answer.flow.listener, answer.flow.remote[:2]) == (flow.listener, (host, port))


def test_a_request_of_the_server_in_the_dialog_goes_where_answers_go() -> None:
    rig = Rig()
    forwarded = rig.receive(request(sent_by=f"{CLIENT}:{LISTENING}"), rig.client(CLIENT, SENDING))
    assert forwarded is not None
    routes = [route.decode() for route in values(forwarded.data, "Record-Route")]
    bye = rig.receive(
        request("BYE", "sip:a@10.9.9.9", routes=routes, to_tag="t", sent_by="10.0.0.10:5080"), rig.server()
    )
    assert bye is not None
    assert (bye.flow.listener, bye.flow.remote) == (rig.udp, (CLIENT, LISTENING))


@pytest.mark.parametrize("port", ["0", "65536", "99999"])
def test_a_port_that_is_none_leaves_the_source_port(port: str) -> None:
    rig = Rig()
    rig.into(A)
    refused = rig.receive(request(sent_by=f"{CLIENT}:{port}"), rig.client(CLIENT, SENDING))
    assert refused is None or refused.flow.remote == (CLIENT, SENDING)


def test_a_reinvite_refused_once_and_then_let_through_has_its_ack_at_the_server() -> None:
    """RFC 3261 17.1.1.3: the 503 was lost, the copy went on; the ACK answers the server's final response."""
    rig = Rig()
    reinvite = request(to_tag="server-tag", cseq=2)
    ack = reinvite.replace(b"INVITE sip:", b"ACK sip:", 1).replace(b"2 INVITE", b"2 ACK")
    rig.into(A)
    refused = rig.receive(reinvite, rig.client())
    assert refused is not None
    assert refused.data.startswith(b"SIP/2.0 503")
    for _ in range(3):
        rig.tick()
    forwarded = rig.receive(reinvite, rig.client())
    assert forwarded is not None
    assert forwarded.flow == rig.server()
    passed = rig.receive(ack, rig.client())
    assert passed is not None
    assert passed.flow == rig.server()
