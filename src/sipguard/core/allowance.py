"""What each window of a critical state may still serve under shed = excess (SPEC X1)."""

from __future__ import annotations


class Allowance:
    """LC / (1000 div TR) requests a window, in whole requests; the fraction is carried, unused allowance and debt are not.

    left: requests this window may still pass.
    """

    __slots__ = ("_carried", "left")

    def __init__(self) -> None:
        self.left = 0
        self._carried = 0

    def __repr__(self) -> str:
        return f"<allowance {self.left} left, {self._carried} carried>"

    def open(self, lc: int, scale: int) -> None:
        """A window opens in a critical state."""
        self.left, self._carried = divmod(self._carried + lc, scale)

    def clear(self) -> None:
        """A return to normal or a new TR: the fraction starts at 0 again."""
        self.left = self._carried = 0

    def spend(self, n: int) -> None:
        """n requests were passed on; what is overdrawn is no debt."""
        self.left = max(0, self.left - n)
