"""Candidates tried on a dask.distributed cluster, whose workers have sipguard installed."""

from __future__ import annotations

import pickle
import re
import socket
import struct
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any

from sipguard.lab.tune.figures import Candidate, Figures, Load

#: How long to wait for the scheduler and for a first worker.
PATIENCE_S = 30
_ADDRESS = re.compile(r"(tcp|tls)://([^:/\[\]]+|\[[^\[\]]+\]):([0-9]{1,5})", re.ASCII)


class ClusterError(RuntimeError):
    """The cluster cannot be used; the text says why."""


class ClusterBench:
    """A client of a scheduler. Close it, or use `with`.

    The load is a task of its own: the scheduler keeps its bytes, so that a worker that dies takes nothing with it; what it
    was trying is tried elsewhere, and gives the same.
    """

    __slots__ = ("_client", "_data", "_load")

    def __init__(self, load: Load, address: str, patience_s: float = PATIENCE_S) -> None:
        """address: tcp://HOST:PORT or tls://HOST:PORT. Raises ModuleNotFoundError, ClusterError."""
        import distributed

        self._load = load
        _knock(address, patience_s)
        self._client = _joined(distributed.Client, address, patience_s)
        try:
            self._client.wait_for_workers(1, timeout=patience_s)
        except TimeoutError:
            self._client.close()
            raise ClusterError(f"no worker at {address} within {patience_s:g} s") from None
        data = pickle.dumps(load, pickle.HIGHEST_PROTOCOL)
        self._data: Any = self._client.submit(_opened, data, pure=False)

    def __repr__(self) -> str:
        return f"<ClusterBench {self._client.scheduler.address} {self._load!r}>"

    def __enter__(self) -> ClusterBench:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def try_all(self, candidates: Sequence[Candidate]) -> Iterator[Figures]:
        """In the order given. Raises ClusterError when a candidate has taken several workers with it, when they lack sipguard,
        or when the scheduler has gone."""
        from distributed import KilledWorker
        from distributed.client import FutureCancelledError
        from distributed.comm.core import CommClosedError

        try:
            tasks = [self._client.submit(_try_out, self._data, candidate, pure=False) for candidate in candidates]
            for task in tasks:
                yield task.result()
        except KilledWorker as error:
            raise ClusterError(f"workers died one after the other while trying a candidate ({error})") from None
        except (FutureCancelledError, CommClosedError):
            raise ClusterError("the scheduler has gone in the middle; what was tried is lost") from None
        except ModuleNotFoundError as error:
            raise ClusterError(f"a worker has no {error.name}: pip install 'sipguard[tune]' there as well") from None

    def close(self) -> None:
        """Leave the cluster; it goes on without us."""
        self._data.release()
        self._client.close()


def _knock(address: str, patience_s: float) -> None:
    """Raises ClusterError where no scheduler listens: a client would wait for ever for the first word of what is none."""
    found = _ADDRESS.fullmatch(address)
    if found is None or not 0 < int(found[3]) < 65536:
        raise ClusterError(f"{address}: allowed is tcp://HOST:PORT or tls://HOST:PORT")
    try:
        with socket.create_connection((found[2].strip("[]"), int(found[3])), timeout=patience_s) as knocked:
            # It speaks first, but for TLS, where the client does.
            if found[1] == "tcp" and not knocked.recv(1):
                raise ClusterError(f"what listens at {address} is no scheduler")
    except TimeoutError:
        raise ClusterError(f"no scheduler answers at {address} within {patience_s:g} s") from None
    except OSError as error:
        raise ClusterError(f"no scheduler at {address} ({error.strerror or error})") from None


def _joined(kind: Any, address: str, patience_s: float) -> Any:
    # In two steps, to have it when it fails: a client that is left to the garbage collector closes itself in whatever
    # thread that happens to run in, and can wait there for a lock that this thread has.
    client = kind.__new__(kind)
    try:
        client.__init__(address, timeout=patience_s, set_as_default=False)
    except (OSError, ValueError, MemoryError, struct.error) as error:  # whatever its first words are taken for
        client.close()
        raise ClusterError(f"what listens at {address} is no scheduler ({error})") from None
    return client


def _opened(data: bytes) -> Load:
    load: Load = pickle.loads(data)
    return load


def _try_out(load: Load, candidate: Candidate) -> Figures:
    return load.try_out(candidate)
