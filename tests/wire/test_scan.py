"""Tier 0: what is a request (SPEC M2), of which method (SPEC V1), what is a response. RFC 3261 7.1, 7.5."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sipguard.wire.scan import KNOWN_METHODS, is_response, request_line, request_method
from tests.wire.messages import CASES, INVITE, NOT_SIP, RESPONSE, Case


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_requests(case: Case) -> None:
    assert request_method(case.data) == case.method
    assert not is_response(case.data)


@pytest.mark.parametrize("name", NOT_SIP)
def test_not_sip(name: str) -> None:
    assert request_method(NOT_SIP[name]) is None
    assert not is_response(NOT_SIP[name])


@pytest.mark.parametrize("method", KNOWN_METHODS)
def test_known_methods_are_the_same_object(method: str) -> None:
    data = INVITE.replace(b"INVITE", method.encode())
    assert request_method(data) is method
    assert request_method(b"\r\n" + data) is method
    assert request_method(data.replace(b"\r\n", b"\n")) is method


@pytest.mark.parametrize(
    "start", ["SIP/2.0 200 OK", "sip/2.0 404 ", "SIP/2.0 4294967301 x", "SIP/3.14 100", "SIP/2.0  200 OK"]
)
def test_responses(start: str) -> None:
    """A status line of any version and code is a response: never counted, never a request."""
    data = RESPONSE.replace(b"SIP/2.0 180 Ringing", start.encode())
    assert is_response(data)
    assert is_response(b"\r\n" + data)
    assert request_method(data) is None


@pytest.mark.parametrize(
    "start", ["SIP/2.0", "SIP/2.0 ", "SIP/2.0 OK", "SIP/x.0 200 OK", "SIPP/2.0 200 OK", " SIP/2.0 200 OK"]
)
def test_no_responses(start: str) -> None:
    assert not is_response(start.encode() + b"\r\n\r\n")


def test_the_first_line_decides() -> None:
    """Whatever follows it, missing or broken; a request line without its line end is whole once the version is there."""
    line = b"MESSAGE sip:b@example.net SIP/2.0"
    for rest in (b"", b"\r\n", b"\n", b"\r\n\0\xff", b"\r\n  folded", b"\r\nINVITE sip:b@example.net SIP/2.0\r\n\r\n"):
        assert request_method(line + rest) == "MESSAGE"
    assert request_method(line[:-1]) is None


@given(st.binary(max_size=200), st.sampled_from([b"", b"INVITE ", b"SIP/2.0 ", b"\r\nREGISTER sip:", b"\x00\x01"]))
@example(b"sip:x SIP/2.0\r\n", b"INVITE ")
def test_quick_and_careful_agree_and_never_raise(tail: bytes, front: bytes) -> None:
    data = front + tail
    line = request_line(data)
    assert request_method(data) == (None if line is None else line[0])
    assert not (is_response(data) and line is not None)


@given(st.text(st.sampled_from(" \tINVTEsip:@SIP/2.0\r\n"), max_size=60))
def test_near_request_lines(text: str) -> None:
    data = text.encode()
    line = request_line(data)
    assert request_method(data) == (None if line is None else line[0])
