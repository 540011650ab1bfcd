"""Streams take turns: order, fairness, and the loop's own right to its time (edge.turns; issue 2 §4)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from sipguard.edge.turns import Turns
from tests.edge.live import LOOPS


class Pile:
    """A worker with so many pieces of half a millisecond to do."""

    def __init__(self, name: str, pieces: int, diary: list[str]) -> None:
        self.name = name
        self.pieces = pieces
        self.holds = 0
        self.calls = 0
        self._diary = diary

    def work(self, until_ns: int) -> bool:
        assert self.pieces > 0
        self.calls += 1
        while self.pieces:
            time.sleep(0.0005)
            self.pieces -= 1
            if self.pieces and time.monotonic_ns() >= until_ns:
                return False
        self._diary.append(self.name)
        return True

    def hold(self) -> None:
        self.holds += 1

    def release(self) -> None:
        self.holds -= 1


@pytest.fixture(params=sorted(LOOPS))
def run(request: pytest.FixtureRequest) -> Callable[[Callable[[list[str]], list[Pile]]], list[str]]:
    """`run(fill)`: the workers that `fill` makes, worked off on a loop; what happened in which order."""

    def on_a_loop(fill: Callable[[list[str]], list[Pile]]) -> list[str]:
        diary: list[str] = []

        async def work_off() -> None:
            loop = asyncio.get_running_loop()
            turns = Turns(loop)
            loop.call_later(0.004, diary.append, "timer")
            piles = fill(diary)
            for pile in piles:
                turns.take(pile)
                assert pile.holds == (1 if pile.pieces else 0)
            async with asyncio.timeout(20):
                while any(pile.pieces for pile in piles):
                    await asyncio.sleep(0)
            assert [pile.holds for pile in piles] == [0] * len(piles)

        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            runner.run(work_off())
        return diary

    return on_a_loop


def test_a_long_pile_lets_timers_and_short_ones_go_first(run: Callable[..., list[str]]) -> None:
    """400 ms of work are no reason to be late for a timer, or for somebody with one message."""
    diary = run(lambda diary: [Pile("long", 800, diary), Pile("short", 1, diary)])
    assert diary[-1] == "long"
    assert sorted(diary[:2]) == ["short", "timer"]


def test_equal_piles_advance_together(run: Callable[..., list[str]]) -> None:
    """Nobody is finished before everybody has begun, and none is left."""
    piles: list[Pile] = []

    def fill(diary: list[str]) -> list[Pile]:
        piles.extend(Pile(str(n), 40, diary) for n in range(5))
        return piles

    diary = run(fill)
    assert sorted(name for name in diary if name != "timer") == ["0", "1", "2", "3", "4"]
    assert all(pile.calls > 3 for pile in piles)


def test_what_is_done_at_once_is_never_held(run: Callable[..., list[str]]) -> None:
    """The usual case costs no pause of reading."""
    assert run(lambda diary: [Pile("only", 1, diary)])[0] == "only"
