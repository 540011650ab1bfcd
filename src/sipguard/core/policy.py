"""What goes beyond the source and is off by default (SPEC §7 X1, X2), and the method sets (SPEC V1)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

Shed = Literal["all", "excess"]

#: The nine methods the source names (SPEC V1). All others count and pass.
SHEDDABLE_METHODS = frozenset(
    ("REGISTER", "SUBSCRIBE", "MESSAGE", "INVITE", "OPTIONS", "INFO", "UPDATE", "REFER", "PRACK"),
)


class Policy:
    """How the law is applied; immutable.

    shed: "all" (the source: everything sheddable) or "excess" (only what is beyond LC), SPEC X1.
    enforce: False is shadow mode: measured, decided and counted, everything let through, SPEC X2.
    refuse_methods, drop_methods: the methods that 503 and the silent drop may touch, SPEC V1. ACK is never answered:
    in refuse_methods it has no effect.
    Raises ValueError naming the setting, the value and what is allowed.
    """

    __slots__ = ("drop_methods", "enforce", "refuse_methods", "shed")

    shed: Shed
    enforce: bool
    refuse_methods: frozenset[str]
    drop_methods: frozenset[str]

    def __init__(
        self,
        shed: Shed = "all",
        enforce: bool = True,
        refuse_methods: Iterable[str] = SHEDDABLE_METHODS,
        drop_methods: Iterable[str] = SHEDDABLE_METHODS,
    ) -> None:
        if shed not in get_args(Shed):
            raise ValueError(f"shed = {shed!r}: allowed is one of {', '.join(get_args(Shed))}")
        if not isinstance(enforce, bool):
            raise ValueError(f"enforce = {enforce!r}: allowed is true or false")
        set_ = object.__setattr__
        set_(self, "shed", shed)
        set_(self, "enforce", enforce)
        set_(self, "refuse_methods", _methods("refuse_methods", refuse_methods))
        set_(self, "drop_methods", _methods("drop_methods", drop_methods))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Policy is immutable: make another one to change {name}")

    def __reduce__(self) -> tuple[type[Policy], tuple[Shed, bool, frozenset[str], frozenset[str]]]:
        # copy and pickle (to a worker process) would otherwise set attributes one by one.
        return Policy, (self.shed, self.enforce, self.refuse_methods, self.drop_methods)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Policy):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    def __hash__(self) -> int:
        return hash((self.shed, self.enforce, self.refuse_methods, self.drop_methods))

    def __repr__(self) -> str:
        text = f"shed={self.shed!r}, enforce={self.enforce!r}"
        for name in ("refuse_methods", "drop_methods"):
            methods: frozenset[str] = getattr(self, name)
            if methods != SHEDDABLE_METHODS:
                text += f", {name}={sorted(methods)!r}"
        return f"Policy({text})"


_TOKEN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-.!%*_+`'~")


def is_token(text: str) -> bool:
    """Whether it is an RFC 3261 25.1 token, which a method name is."""
    return bool(text) and _TOKEN.issuperset(text)


def _methods(setting: str, methods: Iterable[str]) -> frozenset[str]:
    if isinstance(methods, str) or not isinstance(methods, Iterable):
        raise ValueError(f"{setting} = {methods!r}: allowed is a list of method names")
    found = tuple(methods)
    for method in found:
        if not isinstance(method, str) or not is_token(method):
            raise ValueError(f"{setting}: {method!r} is not a SIP method name (RFC 3261 25.1 token)")
    return frozenset(found)
