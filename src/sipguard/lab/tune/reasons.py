"""Why these values: what each does for this load, what others would have done, what was traded for what."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sipguard.core.parameters import EXACT_TR_MS, Lcdm, Parameters
from sipguard.lab.tune import space
from sipguard.lab.tune.choice import STEPS, Choice
from sipguard.lab.tune.figures import Candidate, Figures, Load, Objective, Tried
from sipguard.lab.tune.search import Log

#: A window that holds fewer requests at LC reads the rate coarsely.
FEW_IN_WINDOW = 10
#: A difference of set-up delay that a caller notices.
NOTICED_S = 0.5
_MODES = {
    Lcdm.DENIAL_TO_DROP: "first 503, then silence: who listens stops at the 503, who does not costs nothing after PC cycles",
    Lcdm.DENIAL_ONLY: "503 as long as it lasts: every client is told, none repeats itself for want of an answer",
    Lcdm.DROP_ONLY: "silence at once: an answer is never spent on anybody, and clients repeat themselves for up to 32 s",
}
_TRADES = {
    Objective.GOODPUT: "the best goodput",
    Objective.REFUSED: "the least refused and dropped",
    Objective.RECOVERY: "the quickest recovery",
}


class Reason(NamedTuple):
    """name, value: of the recommended set. means: what it does here. others: what other values would have done."""

    name: str
    value: int | str
    means: str
    others: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join((self.means, *(f"{other}." for other in self.others)))


def reasons(load: Load, log: Log, choice: Choice) -> list[Reason]:
    """One for each value; tries its neighbours to say what they would have done."""
    chosen = choice.recommended
    asked = {name: list(_neighbours(name, chosen.candidate)) for name in space.NAMES}
    log.try_all([candidate for several in asked.values() for _, candidate in several])
    found = []
    for name, several in asked.items():
        others = [
            f"With {text}: {_difference(chosen.figures, tried.figures)}"
            for (text, _), tried in zip(several, log.try_all([candidate for _, candidate in several]), strict=True)
        ]
        found.append(Reason(name, chosen.candidate.as_dict()[name], _means(name, load, chosen), tuple(others)))
    return found


def about(load: Load, chosen: Tried) -> list[str]:
    """What has to be known of the load and of how it was weighed."""
    told = load.about()
    if chosen.figures.recover_s is None and any(end is not None for _, end in load.storms):
        told.append("It did not recover within the load: there, recovery counts as the time that was left.")
    return told


def trades(choice: Choice) -> list[str]:
    """What the recommended set leaves to others that were tried."""
    chosen = choice.recommended
    found = []
    for place, objective in enumerate(Objective):
        best = min(choice.front, key=lambda each, of=place: each.figures.losses()[of])  # type: ignore[misc]
        gain = chosen.figures.losses()[place] - best.figures.losses()[place]
        if gain > STEPS[place]:
            found.append(f"Not {_TRADES[objective]}: {_set_text(best.candidate)} has {_full(best.figures)}.")
    return found


def outcome_text(figures: Figures) -> str:
    """The three figures in words."""
    return _full(figures)


# -- inside ------------------------------------------------------------------------------------------------------------


def _neighbours(name: str, candidate: Candidate) -> Iterator[tuple[str, Candidate]]:
    """Other values of one name, each with its text."""
    law = candidate.parameters
    values: list[int | str]
    if name == "shed":
        values = ["all" if candidate.shed == "excess" else "excess"]
    elif name == "LCDM":
        values = [mode.value for mode in Lcdm if mode is not law.LCDM]
    elif name == "TR":
        yield from _other_periods(candidate)
        return
    elif name == "PC":
        values = [law.PC // 4, law.PC * 4] if law.LCDM is Lcdm.DENIAL_TO_DROP else []
    elif name == "LRC":
        values = [law.LRC // 3, law.LRC * 3]
    elif name == "LCPS":
        values = [law.LCPS // 2, law.LCPS * 2]
    else:
        values = [round(law.LC * 0.8), round(law.LC * 1.25)]
    low_high = {"LC": 10_000, "LCPS": 10_000, "LRC": 100, "PC": 10_000}
    for value in values:
        if isinstance(value, str) or (1 <= value <= low_high[name] and value != candidate.as_dict()[name]):
            yield f"{name} {value}", candidate.replaced(name, value)


def _other_periods(candidate: Candidate) -> Iterator[tuple[str, Candidate]]:
    """The exact TRs beside this one, with the same times in ms."""
    law = candidate.parameters
    below = [tr for tr in EXACT_TR_MS if tr < law.TR][-1:]
    above = [tr for tr in EXACT_TR_MS if tr > law.TR][:1]
    for tr in (*below, *above):
        lrc = max(1, min(round(law.relax_ms / tr), 100))
        pc = max(1, min(round(law.patience_ms / tr), 10_000))
        changed = law.replaced(TR=tr, LRC=lrc, PC=pc)
        yield f"TR {tr} (LRC {lrc}, PC {pc})", Candidate(changed, candidate.shed)


def _means(name: str, load: Load, chosen: Tried) -> str:
    law, figures = chosen.candidate.parameters, chosen.figures
    if name == "LC":
        return f"{100 * law.LC / load.capacity:.0f} % of the capacity: left normal {_times(figures.alarms)}" + (
            f", of these outside storms {figures.false_alarms}." if figures.alarms else "."
        )
    if name == "LCPS":
        by_lcps = "" if figures.by_lcps is None else f" It refused {figures.by_lcps:,} requests here."
        return f"a second may bring {law.LCPS} more than the one before, in the normal state.{by_lcps}"
    if name == "LRC":
        return f"{law.relax_ms / 1000:g} s below LC without a break before it is normal again."
    if name == "PC":
        return _patience(law)
    if name == "TR":
        return _period(law)
    if name == "LCDM":
        return f"{_MODES[law.LCDM]}."
    if chosen.candidate.shed == "excess":
        return f"while the level is critical, {law.LC} requests/s go on being let through, and beyond them what cannot be shed."
    return "while the level is critical, every sheddable request is refused or dropped, as the source has it."


def _patience(law: Parameters) -> str:
    if law.LCDM is not Lcdm.DENIAL_TO_DROP:
        return f"not used under {law.LCDM}."
    known = "as long as" if law.patience_ms >= space.TIMER_B_MS else "shorter than"
    return (
        f"{law.patience_ms / 1000:g} s of 503 before the silence, {known} the 32 s for which a client repeats an "
        "unanswered request (RFC 3261 Timers B, F)."
    )


def _period(law: Parameters) -> str:
    in_window = law.LC / law.scale
    told = f"the level is seen every {law.TR} ms; a window at LC holds {in_window:g} requests"
    if 1000 % law.TR:
        # The source's integer scale reads low (SPEC P3, P4): LC is met by more than LC requests a second.
        told += f", {in_window * 1000 / law.TR:.0f} a second"
    if in_window < FEW_IN_WINDOW:
        told += f", so that a single one more is {100 / in_window:.0f} % of LC"
    return f"{told}."


def _times(n: int) -> str:
    return "never" if not n else "once" if n == 1 else f"{n} times"


def _full(figures: Figures) -> str:
    recover = "no recovery to tell" if figures.recover_s is None else f"recovery {figures.recover_s:.1f} s"
    late = "" if figures.setup_p99_s is None else f", set-up delay {figures.setup_p99_s:.1f} s at 99 %"
    return f"goodput {100 * figures.goodput:.1f} %, {100 * figures.shed:.1f} % shed, {recover}{late}"


def _difference(chosen: Figures, other: Figures) -> str:
    """What is different enough to be told."""
    parts = []
    for place, (text, now) in enumerate(
        (
            ("goodput", f"{100 * other.goodput:.1f} % ({100 * (other.goodput - chosen.goodput):+.1f})"),
            ("shed", f"{100 * other.shed:.1f} % ({100 * (other.shed - chosen.shed):+.1f})"),
            ("recovery", "none in the load" if other.recover_s is None else f"{other.recover_s:.1f} s"),
        )
    ):
        if abs(chosen.losses()[place] - other.losses()[place]) >= STEPS[place]:
            parts.append(f"{text} {now}")
    if _waits_differ(chosen, other):
        parts.append(f"set-up delay {other.setup_p99_s:.1f} s at 99 %")
    if other.alarms != chosen.alarms:
        parts.append(f"normal left {_times(other.alarms)}")
    return ", ".join(parts) or "the same"


def _waits_differ(chosen: Figures, other: Figures) -> bool:
    """Whether those served would wait noticeably longer or shorter."""
    one, two = chosen.setup_p99_s, other.setup_p99_s
    return one is not None and two is not None and abs(one - two) >= NOTICED_S


def _set_text(candidate: Candidate) -> str:
    return " ".join(f"{name} {value}" for name, value in candidate.as_dict().items())
