"""A dialog through the guard, ended from either side by its Record-Routes (RFC 3261 12.1, 12.2, 16.12; RFC 5658; DESIGN §3)."""

from __future__ import annotations

import pytest

from sipguard.guard.flows import Flow, Send
from tests.guard.messages import request, response_to, start_line, uri_of, values
from tests.guard.rig import CLIENT6, SERVER6, Rig, Server

TWO_SERVERS: tuple[Server, ...] = (
    ("udp", "10.0.0.10", 5080, 1),
    ("udp", "10.0.0.11", 5080, 1),
    ("tcp", "10.0.0.10", 5080, 1),
    ("tcp", "10.0.0.11", 5080, 1),
)


def routes_of(data: bytes) -> list[str]:
    """The Record-Routes as Route values, in the order they stand: the route set of the one who was asked (12.1.1)."""
    return [route.decode() for route in values(data, "Record-Route")]


def call_from(rig: Rig, client: Flow, call_id: str = "c1") -> tuple[Send, Send]:
    """An INVITE from outside and its 200 back at the client."""
    transport = client.listener.transport.upper()
    invite = rig.forwarded(request(transport=transport, call_id=call_id, sent_by="client.example.com"), client)
    back = rig.sent(response_to(invite.data), invite.flow)
    assert back.flow == client
    return invite, back


CLIENTS = [
    ("198.51.100.7", "udp", ""),
    ("198.51.100.7", "tcp", ""),
    (CLIENT6, "udp", ""),
]


def rig_for(host: str, outside_host: str = "192.0.2.1", advertise: bytes | None = None) -> Rig:
    servers: tuple[Server, ...] = (("udp", SERVER6, 5080, 1),) if ":" in host else TWO_SERVERS
    return Rig(servers=servers, outside_host=outside_host, advertise=advertise)


@pytest.mark.parametrize(("host", "transport", "local"), CLIENTS)
def test_the_client_ends_the_call_it_made(host: str, transport: str, local: str) -> None:
    """The BYE follows both our Routes, which go, to the server of the dialog; it carries no new Record-Route."""
    rig = rig_for(host)
    client = rig.client(host, transport=transport, local=local)
    for number in range(20):
        invite, back = call_from(rig, client, f"c{number}")
        routes = routes_of(back.data)[::-1]  # the one who asked reverses them (12.1.2)
        # Another Call-ID than the dialog's would be hashed to either server: the token decides, not the hash.
        for other in ("", "x", "yy", "zzz"):
            bye = request(
                "BYE", "sip:bob@10.0.0.99:5090", to_tag="srv1", routes=routes, call_id=f"c{number}{other}",
                transport=transport.upper(),
            )  # fmt: skip
            sent = rig.forwarded(bye, client)
            assert sent.flow == invite.flow
            assert values(sent.data, "Route") == values(sent.data, "Record-Route") == []
            assert start_line(sent.data) == start_line(bye)


@pytest.mark.parametrize(("host", "transport", "local"), CLIENTS)
def test_the_server_ends_the_call_it_took(host: str, transport: str, local: str) -> None:
    """From inside the token names the client's flow, whatever the Request-URI says (a client behind a NAT)."""
    rig = rig_for(host)
    client = rig.client(host, transport=transport, local=local)
    invite, _ = call_from(rig, client)
    bye = request(
        "BYE", "sip:alice@10.9.9.9:5062", to_tag="af1", routes=routes_of(invite.data), sent_by="10.0.0.10:5080"
    )
    sent = rig.forwarded(bye, invite.flow)
    assert sent.flow == client
    assert values(sent.data, "Route") == values(sent.data, "Record-Route") == []
    # The client's answer comes back to that server.
    answer = rig.sent(response_to(sent.data), client)
    assert answer.flow == invite.flow
    assert values(answer.data, "Via") == [b"SIP/2.0/UDP 10.0.0.10:5080;branch=z9hG4bKa1"]


@pytest.mark.parametrize(("host", "transport", "local"), CLIENTS)
def test_a_call_made_by_a_server_is_ended_from_either_side(host: str, transport: str, local: str) -> None:
    """An INVITE out to a registered client by its Path; both ends send a BYE by their route sets."""
    rig = rig_for(host)
    client = rig.client(host, transport=transport, local=local)
    register = rig.forwarded(request("REGISTER", "sip:example.com", transport=transport.upper()), client)
    (path,) = values(register.data, "Path")
    server = register.flow

    invite = request(
        "INVITE", "sip:alice@10.9.9.9:5062", routes=[path.decode()], sent_by="10.0.0.10:5080", call_id="out1"
    )
    out = rig.forwarded(invite, server)
    assert out.flow == client
    assert values(out.data, "Route") == []
    routes = routes_of(out.data)
    assert len(routes) == 2
    back = rig.sent(response_to(out.data), client)
    assert back.flow == server

    from_server = request(
        "BYE", "sip:alice@10.9.9.9:5062", to_tag="srv1", routes=routes_of(back.data)[::-1], call_id="out1"
    )
    assert rig.forwarded(from_server, server).flow == client
    for other in range(10):
        from_client = request(
            "BYE",
            "sip:bob@10.0.0.10:5080",
            to_tag="af1",
            routes=routes,
            call_id=f"o{other}",
            transport=transport.upper(),
        )
        sent = rig.forwarded(from_client, client)
        assert sent.flow == server
        assert values(sent.data, "Route") == []


@pytest.mark.parametrize("advertise", [None, b"203.0.113.1:5060"], ids=["local", "advertise"])
def test_on_a_wildcard_bind_the_dialog_keeps_the_address_that_was_asked(advertise: bytes | None) -> None:
    """Issue 2 §4: replies leave from the address that was asked, also on a wildcard bind; so do requests of the dialog."""
    rig = rig_for("198.51.100.7", "0.0.0.0", advertise)
    client = rig.client(local="192.0.2.77")
    invite, back = call_from(rig, client)
    outer = "203.0.113.1:5060" if advertise else "192.0.2.77:5060"
    assert routes_of(invite.data)[1] == f"<sip:{outer};lr>"

    bye = request("BYE", "sip:alice@10.9.9.9", to_tag="af1", routes=routes_of(invite.data))
    sent = rig.forwarded(bye, invite.flow)
    assert sent.flow == client
    assert values(sent.data, "Route") == []
    assert values(sent.data, "Via")[0].startswith(b"SIP/2.0/UDP " + outer.encode())

    bye = request("BYE", "sip:bob@10.0.0.99", to_tag="srv1", routes=routes_of(back.data)[::-1])
    sent = rig.forwarded(bye, client)
    assert sent.flow == invite.flow
    assert values(sent.data, "Route") == []


@pytest.mark.parametrize("outside_host", ["192.0.2.1", "0.0.0.0"])
def test_the_servers_own_record_route_stays_also_on_our_port(outside_host: str) -> None:
    """RFC 3261 16.4: only our own Routes go. A Kamailio behind us listens on 5060 as we do, and must see its own."""
    rig = rig_for("198.51.100.7", outside_host)
    client = rig.client(local="192.0.2.77" if outside_host == "0.0.0.0" else "")
    _, back = call_from(rig, client)
    kamailio = "<sip:10.0.0.10:5060;lr;ftag=af1>"
    routes = [*routes_of(back.data)[::-1], kamailio, "<sip:next.example.com;lr>"]
    sent = rig.forwarded(request("BYE", "sip:bob@10.0.0.99", to_tag="srv1", routes=routes), client)
    assert values(sent.data, "Route") == [kamailio.encode(), b"<sip:next.example.com;lr>"]


def test_routes_in_one_comma_list_go_as_well() -> None:
    """RFC 3261 7.3.1: one line with a list is the same as several lines."""
    rig = Rig()
    _, back = call_from(rig, rig.client())
    listed = ", ".join([*routes_of(back.data)[::-1], "<sip:next.example.com;lr>"])
    sent = rig.forwarded(request("BYE", to_tag="srv1", routes=[listed]))
    assert values(sent.data, "Route") == [b"<sip:next.example.com;lr>"]


def test_a_long_request_on_a_stream_stays_with_the_server_of_its_dialog() -> None:
    """RFC 3261 18.1.1: over the MTU a client changes to TCP. The dialog was set up over UDP."""
    rig = Rig(servers=TWO_SERVERS)
    for number in range(20):
        invite, back = call_from(rig, rig.client(), f"c{number}")
        reinvite = request(transport="TCP", to_tag="srv1", routes=routes_of(back.data)[::-1], call_id=f"c{number}")
        sent = rig.forwarded(reinvite, rig.client(transport="tcp"))
        assert sent.flow.listener is rig.inside_tcp
        assert sent.flow.remote == invite.flow.remote


@pytest.mark.parametrize("transport", ["udp", "tcp"])
def test_a_call_from_a_server_that_speaks_both_transports_comes_back_to_it(transport: str) -> None:
    """The same address with two transports is one server: its dialog must not be hashed to the other."""
    rig = Rig(servers=TWO_SERVERS)
    number = 1 if transport == "udp" else 3
    server = rig.server(number)
    client = rig.client(transport=transport)
    invite = request("INVITE", f"sip:alice@198.51.100.7:5062;transport={transport}", sent_by="10.0.0.11:5080")
    out = rig.forwarded(invite, server)
    for call in range(20):
        bye = request("BYE", to_tag="af1", routes=routes_of(out.data), call_id=f"c{call}", transport=transport.upper())
        assert rig.forwarded(bye, client).flow.remote == server.remote


@pytest.mark.parametrize("transport", ["udp", "tcp"])
def test_a_server_that_sends_from_another_port_keeps_its_dialogs(transport: str) -> None:
    """A TCP connection that a server makes comes from a port of its own choice."""
    rig = Rig(servers=TWO_SERVERS)
    listening = rig.server(1 if transport == "udp" else 3)
    sending = listening._replace(remote=("10.0.0.11", 49152), stream=77 if transport == "tcp" else 0)
    invite = request("INVITE", f"sip:alice@198.51.100.7:5062;transport={transport}", sent_by="10.0.0.11:5080")
    out = rig.forwarded(invite, sending)
    for call in range(20):
        bye = request("BYE", to_tag="af1", routes=routes_of(out.data), call_id=f"c{call}", transport=transport.upper())
        assert rig.forwarded(bye, rig.client(transport=transport)).flow == listening
    # The answer to the INVITE goes back on the connection it came on.
    assert rig.sent(response_to(out.data), rig.client(transport=transport)).flow == sending


def test_a_call_by_another_server_than_the_registrar_stays_with_the_caller() -> None:
    """The Path token names the server that took the REGISTER; a call that the other one makes is that one's dialog."""
    rig = Rig(servers=TWO_SERVERS)
    register = rig.forwarded(request("REGISTER", "sip:example.com"))
    registrar = register.flow
    (other,) = [server.flow for server in rig.servers[:2] if server.flow != registrar]
    (path,) = values(register.data, "Path")
    # First the registrar itself, so that what is remembered for the client's flow is its own.
    rig.forwarded(request(uri="sip:alice@10.9.9.9", routes=[path.decode()], call_id="out0"), registrar)
    out = rig.forwarded(request(uri="sip:alice@10.9.9.9", routes=[path.decode()], call_id="out1"), other)
    for call in range(20):
        bye = request("BYE", to_tag="af1", routes=routes_of(out.data), call_id=f"c{call}")
        assert rig.forwarded(bye).flow == other


def test_an_options_probe_on_its_dialog_goes_through_to_the_client() -> None:
    """A Request-URI that happens to be our own address is the client's Contact when a Route leads there."""
    rig = Rig()
    invite, _ = call_from(rig, rig.client())
    probe = request("OPTIONS", "sip:192.0.2.1:5060", to_tag="af1", routes=routes_of(invite.data))
    assert rig.forwarded(probe, invite.flow).flow == rig.client()


def test_a_route_that_only_names_the_guard_goes_too() -> None:
    """RFC 3261 16.4: a client with the guard as its outbound proxy."""
    rig = Rig()
    sent = rig.forwarded(request(routes=["<sip:192.0.2.1;lr>"]))
    assert values(sent.data, "Route") == []
    assert sent.flow == rig.servers[0].flow


def test_uri_of_our_routes_fits_a_request_uri() -> None:
    """RFC 3261 16.12.1.1: a strict router puts our Route into the Request-URI; it must be a URI without forbidden characters."""
    rig = Rig()
    invite, _ = call_from(rig, rig.client())
    for route in routes_of(invite.data):
        uri = uri_of(route.encode())
        assert not set(uri) & set(' "<>,?')
