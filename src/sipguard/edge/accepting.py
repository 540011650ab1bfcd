"""Accepting stream connections: in batches, and without spinning when descriptors run out."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import Callable, Sequence

from sipguard.edge.counters import EdgeCounters
from sipguard.guard.flows import Listener, SocketAddress

#: Accepts per wake-up. Each may displace a connection whose descriptor is free one round later: so many at most are open
#: beyond the cap (manage.descriptors keeps them spare).
ACCEPT_BATCH = 16

#: How long a listening socket is not looked at when nothing can be done for those who wait there.
PAUSE_S = 0.1

_OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

_NO_SPARE = -1

Adopt = Callable[[socket.socket, Listener, SocketAddress], None]
"""Takes an accepted connection over, or closes it."""


class Acceptor:
    """Watches the listening sockets and hands what it accepts to `adopt`.

    Fails open: out of descriptors it accepts and closes by means of a spare one, so that the peer learns it and the queue
    does not keep the loop awake. The sockets stay the caller's.
    """

    __slots__ = ("_adopt", "_counters", "_listening", "_loop", "_pauses", "_spare")

    def __init__(self, loop: asyncio.AbstractEventLoop, adopt: Adopt, counters: EdgeCounters) -> None:
        self._loop = loop
        self._adopt = adopt
        self._counters = counters
        self._listening: tuple[tuple[Listener, socket.socket], ...] = ()
        self._pauses: dict[int, asyncio.TimerHandle] = {}
        self._spare = _open_spare()

    def start(self, listening: Sequence[tuple[Listener, socket.socket]]) -> None:
        """Begin to accept."""
        self._listening = tuple(listening)
        for listener, sock in self._listening:
            self._watch(listener, sock)

    def stop(self) -> None:
        """Nothing is accepted after this."""
        for pause in self._pauses.values():
            pause.cancel()
        for _, sock in self._listening:
            self._loop.remove_reader(sock)
        self._close_spare()

    # -- inside ----------------------------------------------------------------------------------------------------

    def _watch(self, listener: Listener, sock: socket.socket) -> None:
        self._pauses.pop(listener.id, None)
        self._loop.add_reader(sock, self._acceptable, listener, sock)

    def _acceptable(self, listener: Listener, sock: socket.socket) -> None:
        """The listening socket has connections waiting."""
        for _ in range(ACCEPT_BATCH):
            try:
                peer, remote = sock.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno not in _OUT_OF_DESCRIPTORS:
                    self._counters.add("stream-accept-error")
                elif not self._shed_one(listener, sock):
                    return
                continue
            self._adopt(peer, listener, remote)

    def _shed_one(self, listener: Listener, sock: socket.socket) -> bool:
        """Accept and close one by means of the spare descriptor; False when nobody waits, or it cannot be done."""
        self._close_spare()
        try:
            sock.accept()[0].close()
            self._counters.add("stream-no-descriptor")
        except BlockingIOError:
            # Linux looks for a descriptor before it looks for a connection: there was none.
            return False
        except OSError:
            self._counters.add("stream-accept-error")
        finally:
            self._spare = _open_spare()
        if self._spare == _NO_SPARE:
            # Another thread took it. Those who wait keep the socket readable, so look away for a while.
            self._loop.remove_reader(sock)
            self._pauses[listener.id] = self._loop.call_later(PAUSE_S, self._watch, listener, sock)
        return self._spare != _NO_SPARE

    def _close_spare(self) -> None:
        if self._spare != _NO_SPARE:
            os.close(self._spare)
            self._spare = _NO_SPARE


def _open_spare() -> int:
    with contextlib.suppress(OSError):
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    return _NO_SPARE
