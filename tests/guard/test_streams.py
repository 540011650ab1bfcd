"""What is particular to streams: a silent drop, a broken framing, a way out that is gone (RFC 3261 18.3, 18.4; DESIGN §3)."""

from __future__ import annotations

import pytest

from sipguard.core.policy import Policy
from sipguard.guard.flows import Flow, Send
from tests.guard.messages import ack_of, lines_of, param, request, response_to, start_line, value, values
from tests.guard.rig import A, C, Rig, judged, total

TCP = request(transport="TCP", sent_by="client.example.com", via_params=";rport")


# -- stream_drop -------------------------------------------------------------------------------------------------------


def test_a_silent_drop_on_a_stream_is_read_and_not_answered() -> None:
    """DESIGN §3; SPEC V2: no answer at all."""
    rig = Rig().into(C)
    before = rig.controller.dropped
    assert rig.receive(TCP, rig.client(transport="tcp")) is None
    assert rig.controller.dropped == before + 1
    assert rig.counters.outcomes == {}


def test_stream_drop_reject_answers_on_streams_and_on_streams_only() -> None:
    """DESIGN §3: `stream_drop = "reject"` may be chosen. The verdict stays a drop, its answer is counted."""
    rig = Rig(stream_drop="reject").into(C)
    client = rig.client(transport="tcp")
    before = rig.controller.dropped
    answer = rig.answered(TCP, client)
    assert start_line(answer.data) == b"SIP/2.0 503 Service Unavailable"
    assert answer.flow == client
    assert rig.receive(request()) is None
    assert rig.controller.dropped == before + 2
    assert rig.counters.outcomes == {"stream-drop-refused": 1}
    assert total(rig.counters.requests) == judged(rig.guard)


def test_stream_drop_reject_keeps_to_the_reply_budget() -> None:
    """The bytes of these requests are received too: a budget that left them out would never let one be answered."""
    rig = Rig(stream_drop="reject", reply_budget=True).into(C)
    client = rig.client(transport="tcp")
    got = said = 0
    for _ in range(50):
        got += len(TCP)
        action = rig.receive(TCP, client)
        said += 0 if action is None else len(action.data)
        assert said <= got
    assert said > got - 2 * len(TCP)


def test_a_dropped_ack_on_a_stream_is_not_answered_either() -> None:
    """SPEC V1: ACK is never answered, whatever is set."""
    rig = Rig(stream_drop="reject", policy=Policy(drop_methods=["ACK", "OPTIONS"])).into(C)
    assert rig.receive(request("ACK", transport="TCP", to_tag="x"), rig.client(transport="tcp")) is None
    assert rig.counters.outcomes == {"stream-drop-refused": 1, "unanswerable": 1}


# -- broken ------------------------------------------------------------------------------------------------------------


def test_a_broken_content_length_is_answered_400_and_not_counted_as_a_request() -> None:
    """RFC 3261 18.3; the corpus (rfc4475 ncl, mcl01): on a stream 0 requests, an error, then close."""
    rig = Rig()
    client = rig.client(transport="tcp")
    head = TCP.replace(b"Content-Length: 0", b"Content-Length: -1")
    answer = rig.guard.broken(head, "bad-content-length", client, 0)
    assert answer is not None
    assert answer.flow == client
    assert start_line(answer.data) == b"SIP/2.0 400 Bad Request"
    assert [line.split(b":")[0] for line in lines_of(answer.data)] == [
        b"Via", b"From", b"To", b"Call-ID", b"CSeq", b"Server", b"Content-Length",
    ]  # fmt: skip
    assert param(value(answer.data, "To"), "tag")
    assert values(answer.data, "Via")[0].endswith(b";rport=5062;received=198.51.100.7")
    assert rig.counters.discards == {"bad-content-length": 1}
    assert rig.counters.requests == {}
    rig.tick()
    assert rig.controller.rps == 0


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"GET / HTTP/1.1\r\n\r\n",
        b"SIP/2.0 200 OK\r\nContent-Length: x\r\n\r\n",
        b"INVITE sip:b@c SIP/2.0\r\n\r\n",
        b"\0\xff" * 99,
    ],
)
def test_what_cannot_be_answered_is_only_counted(data: bytes) -> None:
    rig = Rig()
    assert rig.guard.broken(data, "bad-start-line", rig.client(transport="tcp"), 0) is None
    assert rig.counters.discards == {"bad-start-line": 1}


def test_the_ack_of_a_broken_invites_400_is_absorbed() -> None:
    """SPEC M2."""
    rig = Rig()
    client = rig.client(transport="tcp")
    answer = rig.guard.broken(TCP, "body-too-large", client, 0)
    assert answer is not None
    assert rig.receive(ack_of(TCP, answer.data), client) is None
    assert rig.counters.absorbed == 1


# -- undeliverable -----------------------------------------------------------------------------------------------------


def test_a_request_that_finds_no_connection_is_answered_503_in_the_upstreams_stead() -> None:
    """RFC 3261 16.9: as if 503 had come. On the client's flow, its own Via on top, counted by reason."""
    rig = Rig()
    client = rig.client(transport="tcp")
    asked = request("REGISTER", transport="TCP", sent_by="client.example.com", via_params=";rport")
    sent = rig.forwarded(asked, client)
    answer = rig.guard.undeliverable(sent, rig.now_ns)
    assert answer is not None
    assert answer.flow == client
    assert start_line(answer.data) == b"SIP/2.0 503 Service Unavailable"
    assert values(answer.data, "Via") == [
        b"SIP/2.0/TCP client.example.com;branch=z9hG4bKa1;rport=5062;received=198.51.100.7"
    ]
    assert 10 <= int(value(answer.data, "Retry-After")) <= 30
    assert rig.counters.outcomes == {"unreachable": 1}
    assert (rig.controller.allowed, rig.controller.rejected) == (1, 0)


def test_its_tag_is_the_one_a_refusal_of_the_same_request_has() -> None:
    """DESIGN §3: the same for each retransmission, whatever ended it."""
    rig = Rig()
    client = rig.client(transport="tcp")
    answer = rig.guard.undeliverable(rig.forwarded(TCP, client), 0)
    assert answer is not None
    rig.into(A)
    assert value(rig.answered(TCP, client).data, "To") == value(answer.data, "To")


def test_an_undeliverable_ack_is_not_answered() -> None:
    rig = Rig()
    client = rig.client(transport="tcp")
    assert rig.guard.undeliverable(rig.forwarded(request("ACK", to_tag="x"), client), 0) is None
    assert rig.counters.outcomes == {"unreachable": 1}


def test_an_undeliverable_response_is_not_answered() -> None:
    """RFC 3261 18.4: nobody waits for a response to a response."""
    rig = Rig()
    asked = rig.forwarded(TCP, rig.client(transport="tcp"))
    back = rig.sent(response_to(asked.data), asked.flow)
    assert rig.guard.undeliverable(back, 0) is None
    assert rig.counters.outcomes == {}  # a response is no outcome of a request


def test_a_servers_undeliverable_request_is_answered_to_the_server() -> None:
    """A client whose connection is gone; the ACK that follows stays here (SPEC M2)."""
    rig = Rig()
    client = rig.client(transport="tcp")
    path = values(rig.forwarded(request("REGISTER"), client).data, "Path")[0].decode()
    invite = request(uri="sip:alice@10.9.9.9", routes=[path], sent_by="10.0.0.10:5080", transport="TCP")
    server = rig.server(1, port=49152, stream=5)
    out = rig.forwarded(invite, server)
    assert out.flow == client
    answer = rig.guard.undeliverable(out, 0)
    assert answer is not None
    assert answer.flow == server
    assert values(answer.data, "Via") == [b"SIP/2.0/TCP 10.0.0.10:5080;branch=z9hG4bKa1"]
    assert rig.receive(ack_of(invite, answer.data), server) is None
    assert rig.counters.absorbed == 1


@pytest.mark.parametrize("data", [b"", b"\0", b"INVITE sip:a@b SIP/2.0\r\n\r\n", request(), response_to(request())])
def test_what_we_never_sent_is_no_reason_to_answer(data: bytes) -> None:
    rig = Rig()
    assert rig.guard.undeliverable(Send(data, Flow(rig.inside_tcp, ("10.0.0.10", 5080))), 0) is None
