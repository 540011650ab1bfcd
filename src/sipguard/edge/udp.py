"""One UDP socket: batches in, datagrams out, from the address that was asked."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

from sipguard.edge.counters import EdgeCounters
from sipguard.edge.kernel.attribution import Taken
from sipguard.edge.sockets import IP_PKTINFO
from sipguard.guard.flows import Flow, Listener, Send
from sipguard.guard.guard import Guard

#: Datagrams read in one wake-up before timers and other sockets get their turn: one to two milliseconds.
BATCH = 64

#: The largest UDP payload there is.
MAX_DATAGRAM = 65535

_PKTINFO_SPACE = socket.CMSG_SPACE(20)


class UdpEndpoint:
    """A listener's socket. The loop calls `readable`; `send` never blocks and never raises: what is lost is counted."""

    __slots__ = ("_after_batch", "_counters", "_deliver", "_guard", "_taken", "_taken_octets", "listener", "sock")

    def __init__(
        self,
        sock: socket.socket,
        listener: Listener,
        guard: Guard,
        deliver: Callable[[Send], None],
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

    def take_taken(self) -> Taken:
        """What was read since the last call."""
        taken = Taken(self._taken, self._taken_octets)
        self._taken = self._taken_octets = 0
        return taken

    def readable(self) -> None:
        """Read and handle at most BATCH datagrams."""
        try:
            read = self._read_wildcard() if self.listener.wildcard else self._read()
        except BlockingIOError:
            read = 0
        except OSError:
            # On an inside socket: an upstream's refusal (ICMP), told once here and in full in the error queue.
            read = 0
            self._counters.add("udp-receive-error")
        if not read and self.listener.inside:
            self._drain_refusals()
        self._after_batch()

    def _read(self) -> int:
        receive_from, receive = self.sock.recvfrom, self._guard.receive
        deliver, listener, clock = self._deliver, self.listener, time.monotonic_ns
        own = listener.transport
        done = octets = 0
        try:
            while done < BATCH:
                data, remote = receive_from(MAX_DATAGRAM)
                done += 1
                octets += len(data)
                action = receive(data, Flow(listener, remote), clock())
                if action is not None:
                    if action.flow.listener is listener and own == "udp":
                        self.send(action)
                    else:
                        deliver(action)
        except BlockingIOError:
            pass
        finally:
            self._taken += done
            self._taken_octets += octets
        return done

    def _read_wildcard(self) -> int:
        done = 0
        try:
            while done < BATCH:
                data, ancillary, _, remote = self.sock.recvmsg(MAX_DATAGRAM, _PKTINFO_SPACE)
                done += 1
                self._taken += 1
                self._taken_octets += len(data)
                flow = Flow(self.listener, remote, 0, _local_address(ancillary))
                action = self._guard.receive(data, flow, time.monotonic_ns())
                if action is not None:
                    self._deliver(action)
        except BlockingIOError:
            pass
        return done

    def send(self, action: Send) -> None:
        """Put one datagram on its way."""
        data, flow = action
        try:
            if flow.local and self.listener.wildcard:
                self.sock.sendmsg([data], [_from_address(flow.local)], 0, flow.remote)
            else:
                self.sock.sendto(data, flow.remote)
        except BlockingIOError:
            self._counters.add("udp-send-full")
        except ConnectionRefusedError:
            # A refusal of an earlier datagram, told on this one: that one is counted, this one goes again.
            self._counters.add("udp-refused")
            self._send_again(action)
        except (OSError, OverflowError, ValueError):
            # Unreachable, too long, port 0 of a spoofed source: nobody to tell.
            self._counters.add("udp-send-error")

    def _send_again(self, action: Send) -> None:
        try:
            self.sock.sendto(action.data, action.flow.remote)
        except OSError:
            self._counters.add("udp-send-error")

    def _drain_refusals(self) -> None:
        """Empty the error queue (IP_RECVERR): while it holds anything the loop would call again and again."""
        for _ in range(BATCH):
            try:
                self.sock.recvmsg(0, 512, socket.MSG_ERRQUEUE)
            except OSError:
                return
            self._counters.add("udp-refused")


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
