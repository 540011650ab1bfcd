"""One UDP socket: batches in, datagrams out, from the address that was asked."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable

from sipguard.edge.counters import EdgeCounters
from sipguard.edge.kernel.attribution import Taken
from sipguard.edge.sockets import IP_PKTINFO, IP_RECVERR, IPV6_RECVERR
from sipguard.guard.flows import Flow, Listener, Send
from sipguard.guard.guard import Guard
from sipguard.guard.ports import Sender

#: Datagrams read in one wake-up before timers and other sockets get their turn: usually one to two milliseconds.
BATCH = 64

#: Nothing more is begun in a wake-up after this long, whatever a datagram costs: a fifth of the lateness allowed at TR 100.
BATCH_NS = 2_000_000

#: The largest UDP payload there is.
MAX_DATAGRAM = 65535

_PKTINFO_SPACE = socket.CMSG_SPACE(20)

#: struct sock_extended_err: who reported it stands behind the errno (ip(7)); 2 and 3 are ICMP and ICMPv6.
_ORIGIN_AT = 4
_FROM_ICMP = (2, 3)


class UdpEndpoint:
    """A listener's socket. The loop calls `readable`; `send` never blocks and never raises: what is lost is counted."""

    __slots__ = (
        "_after_batch",
        "_counters",
        "_deliver",
        "_guard",
        "_poll",
        "_taken",
        "_taken_octets",
        "listener",
        "sock",
    )

    def __init__(
        self,
        sock: socket.socket,
        listener: Listener,
        guard: Guard,
        deliver: Sender,
        after_batch: Callable[[], None],
        counters: EdgeCounters,
    ) -> None:
        self.sock = sock
        self.listener = listener
        self._guard = guard
        self._deliver = deliver
        self._after_batch = after_batch
        self._counters = counters
        self._taken = 0
        self._taken_octets = 0
        self._poll = _errors_as_readable(sock) if listener.inside else None

    def fileno(self) -> int:
        """What a loop has to watch for reading."""
        return self.sock.fileno() if self._poll is None else self._poll.fileno()

    def close(self) -> None:
        """Close the socket; the loop must not watch it any more."""
        if self._poll is not None:
            self._poll.close()
        self.sock.close()

    def take_taken(self) -> Taken:
        """What was read since the last call."""
        taken = Taken(self._taken, self._taken_octets)
        self._taken = self._taken_octets = 0
        return taken

    def look(self) -> None:
        """Read a batch if nothing was read since the last `take_taken`.

        At the end of a cycle: what overflowed is taken for requests in the proportion of what was read, and after a stall
        all of it still stands in the buffer (DESIGN §3).
        """
        if not self._taken:
            self.readable()

    def readable(self) -> None:
        """Read and handle at most BATCH datagrams, for BATCH_NS and the last of them."""
        try:
            read = self._read_wildcard() if self.listener.wildcard else self._read()
        except BlockingIOError:
            read = 0
        except OSError:
            # An upstream's refusal (ICMP): the error queue of an inside socket holds and counts it.
            read = 0
            if not self.listener.inside:
                self._counters.add("udp-receive-error")
        if not read and self.listener.inside:
            self._drain_refusals()
        self._after_batch()

    def _read(self) -> int:
        receive_from, receive = self.sock.recvfrom, self._guard.receive
        deliver, listener, clock = self._deliver, self.listener, time.monotonic_ns
        own = listener.transport
        done = octets = 0
        # Read once a datagram, at its end: when the next one is handled, and whether there is a next one.
        now_ns = clock()
        until_ns = now_ns + BATCH_NS
        try:
            while done < BATCH and now_ns < until_ns:
                data, remote = receive_from(MAX_DATAGRAM)
                done += 1
                octets += len(data)
                action = receive(data, Flow(listener, remote), now_ns)
                if action is not None:
                    if action.flow.listener is listener and own == "udp":
                        self.send(action)
                    else:
                        deliver(action)
                now_ns = clock()
        except BlockingIOError:
            pass
        finally:
            self._taken += done
            self._taken_octets += octets
        return done

    def _read_wildcard(self) -> int:
        done = 0
        now_ns = time.monotonic_ns()
        until_ns = now_ns + BATCH_NS
        try:
            while done < BATCH and now_ns < until_ns:
                data, ancillary, _, remote = self.sock.recvmsg(MAX_DATAGRAM, _PKTINFO_SPACE)
                done += 1
                self._taken += 1
                self._taken_octets += len(data)
                flow = Flow(self.listener, remote, 0, _local_address(ancillary))
                action = self._guard.receive(data, flow, now_ns)
                if action is not None:
                    self._deliver(action)
                now_ns = time.monotonic_ns()
        except BlockingIOError:
            pass
        return done

    def send(self, action: Send) -> None:
        """Put one datagram on its way."""
        try:
            self._put(action)
        except BlockingIOError:
            self._counters.add("udp-send-full")
        except (OSError, OverflowError, ValueError):
            if self.listener.inside:
                self._send_again(action)
            else:
                # Unreachable, too long, port 0 of a spoofed source: nobody to tell.
                self._counters.add("udp-send-error")

    def _put(self, action: Send) -> None:
        data, flow = action
        if flow.local and self.listener.wildcard:
            self.sock.sendmsg([data], [_from_address(flow.local)], 0, flow.remote)
        else:
            self.sock.sendto(data, flow.remote)

    def _send_again(self, action: Send) -> None:
        """What stopped the first try may have been the refusal of an earlier datagram: told on this one, but not its own."""
        self._drain_refusals()
        try:
            self._put(action)
        except (OSError, OverflowError, ValueError):
            self._counters.add("udp-send-error")

    def _drain_refusals(self) -> None:
        """Empty the error queue (IP_RECVERR) and count the refusals; while it holds anything the loop would call again."""
        for _ in range(BATCH):
            try:
                _, ancillary, _, sent_to = self.sock.recvmsg(0, 512, socket.MSG_ERRQUEUE)
            except OSError:
                return
            if any(_is_icmp(*item) for item in ancillary):
                self._counters.add_refused(sent_to[:2])


def _errors_as_readable(sock: socket.socket) -> select.epoll:
    """Something to watch that is readable when the socket is readable or has an error.

    libuv stops watching a descriptor for good that reports an error, and the first refusal of a dead upstream would be the
    last thing an inside socket ever heard. An epoll around it never reports one; it costs 0.1 µs a wake-up.
    """
    poll = select.epoll()
    poll.register(sock, select.EPOLLIN)
    return poll


def _is_icmp(level: int, kind: int, data: bytes) -> bool:
    """Whether an entry of the error queue came from the network, not from this host's own checks."""
    known = (level, kind) in ((socket.IPPROTO_IP, IP_RECVERR), (socket.IPPROTO_IPV6, IPV6_RECVERR))
    return known and len(data) > _ORIGIN_AT and data[_ORIGIN_AT] in _FROM_ICMP


def _local_address(ancillary: list[tuple[int, int, bytes]]) -> str:
    """The destination address of a received packet."""
    for level, kind, data in ancillary:
        if level == socket.IPPROTO_IP and kind == IP_PKTINFO and len(data) >= 12:
            return socket.inet_ntop(socket.AF_INET, data[8:12])
        if level == socket.IPPROTO_IPV6 and kind == socket.IPV6_PKTINFO and len(data) >= 20:
            return socket.inet_ntop(socket.AF_INET6, data[:16])
    return ""


def _from_address(local: str) -> tuple[int, int, bytes]:
    """The control message that makes a packet leave from this address (RFC 3542 6.2; ip(7))."""
    if ":" in local:
        return socket.IPPROTO_IPV6, socket.IPV6_PKTINFO, socket.inet_pton(socket.AF_INET6, local) + bytes(4)
    return socket.IPPROTO_IP, IP_PKTINFO, bytes(4) + socket.inet_pton(socket.AF_INET, local) + bytes(4)
