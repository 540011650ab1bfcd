"""What the guard's neighbours implement or look at. Each says which way it fails."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from sipguard.core.verdicts import Change
from sipguard.guard.flows import Listener, Send


class Sender(Protocol):
    """The edge's way out. Fails open: a full or broken way counts the loss and never raises or blocks."""

    def __call__(self, action: Send) -> None: ...


class PlaneReading(NamedTuple):
    """What the kernel dropped on one outside UDP listener since the last reading.

    filtered: by our filter, all of them sheddable requests. overflowed: for want of room in the receive buffer, anything.
    """

    listener: Listener
    filtered: int
    overflowed: int


class DropPlane(Protocol):
    """The kernel drop plane. Fails open: what cannot be dropped in the kernel is dropped in the process."""

    @property
    def filtering(self) -> bool:
        """Whether the filter is on."""
        ...

    def apply(self, wanted: bool, rps: int) -> None:
        """Attach or detach the filter on every outside UDP socket; the same again is nothing. rps: the rate it will meet."""
        ...

    def read(self) -> list[PlaneReading]:
        """What was dropped since the last reading, per listener."""
        ...

    def status(self) -> dict[str, Any]:
        """available, attached, attachments, sample_one_in, errors, last_error."""
        ...

    def close(self) -> None:
        """Filters off."""
        ...


ChangeListener = Callable[[Change], None]
"""Told of each change of state, on the edge's thread. Must be quick; a failure of it must not reach the edge."""

StatusSource = Callable[[], Mapping[str, Any]]
"""The status as plain JSON values; called on another thread than the edge's, answers within its own time limit."""
