"""SIP methods as small numbers, for arrays of requests."""

from __future__ import annotations

#: The methods a population may send; a method's code is its place.
METHODS = (
    "INVITE",
    "ACK",
    "BYE",
    "REGISTER",
    "SUBSCRIBE",
    "MESSAGE",
    "OPTIONS",
    "INFO",
    "UPDATE",
    "REFER",
    "PRACK",
    "NOTIFY",
    "PUBLISH",
)

CODES = {name: code for code, name in enumerate(METHODS)}
INVITE, ACK, BYE = CODES["INVITE"], CODES["ACK"], CODES["BYE"]
