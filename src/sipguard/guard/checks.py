"""The chain of named checks behind the law (SPEC V5): empty by default, its first slot `adl`."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from sipguard.core.verdicts import Verdict
from sipguard.guard.flows import Flow
from sipguard.wire.head import Head

#: The name of the first slot; the source names it and leaves its meaning open.
ADL = "adl"


class Check(Protocol):
    """Looks at a request that the level and LCPS let through. Fails open: it never raises, and ALLOW is its doubt."""

    def __call__(self, head: Head, flow: Flow, now_ns: int) -> Verdict:
        """ALLOW, REJECT (503) or DROP."""
        ...


class NamedCheck(NamedTuple):
    """A check and the name it is counted under."""

    name: str
    check: Check


class CheckChain:
    """Checks in order. Raises ValueError for a name given twice, or `adl` not in the first place."""

    __slots__ = ("_checks",)

    def __init__(self, checks: tuple[NamedCheck, ...] = ()) -> None:
        names = [check.name for check in checks]
        if len(set(names)) != len(names):
            raise ValueError(f"checks = {names}: allowed is each name once")
        if ADL in names[1:]:
            raise ValueError(f"checks = {names}: {ADL} is allowed in the first place only")
        self._checks = checks

    def __bool__(self) -> bool:
        return bool(self._checks)

    def judge(self, head: Head, flow: Flow, now_ns: int) -> tuple[str, Verdict] | None:
        """The first check that does not allow and what it says; None when all allow."""
        for name, check in self._checks:
            verdict = check(head, flow, now_ns)
            if verdict is not Verdict.ALLOW:
                return name, verdict
        return None
