"""What was met on the way through captures, counted."""

from __future__ import annotations


class Tally:
    """Counters of one decoder.

    packets, bytes: of the captured records. other_links: of a link type not known here. not_ip: no IP packet in the frame,
    or its headers cut. fragments: IP fragments. tunnelled: packets found inside others. too_deep: tunnels within tunnels
    beyond the limit. cut: UDP datagrams, TCP segments and IP fragments of which a part was not captured (a short snap
    length). malformed: UDP headers that claim more than their packet has. udp_responses, tcp_responses: SIP responses.
    other_ports: UDP and TCP packets on none of the ports asked for. elsewhere: requests to other addresses than those asked
    for. absorbed: ACKs to a guard's own 503 (SPEC M2).
    """

    __slots__ = (
        "absorbed",
        "bytes",
        "cut",
        "elsewhere",
        "fragments",
        "malformed",
        "not_ip",
        "other_links",
        "other_ports",
        "packets",
        "tcp_responses",
        "too_deep",
        "tunnelled",
        "udp_responses",
    )

    def __init__(self) -> None:
        self.packets = self.bytes = self.other_links = self.not_ip = self.fragments = self.tunnelled = self.cut = 0
        self.udp_responses = self.tcp_responses = self.elsewhere = self.absorbed = self.too_deep = 0
        self.malformed = self.other_ports = 0

    def as_dict(self) -> dict[str, int]:
        """By name."""
        return {name: getattr(self, name) for name in self.__slots__}
