"""SPEC §1: the six parameters, what is refused and how, what follows from them."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sipguard import Lcdm, ParameterError, Parameters
from sipguard.core.parameters import EXACT_TR_MS, MAX_SHOWN, TERMS
from tests.core.scripts import settled

RANGES = {"LC": (1, 10000), "LCPS": (1, 10000), "LRC": (1, 100), "PC": (1, 10000), "TR": (100, 1000)}
MODES = ("denial_to_drop", "denial_only", "drop_only")


def problems(**values: Any) -> list[str]:
    with pytest.raises(ParameterError) as caught:
        Parameters(**values)
    assert str(caught.value) == "; ".join(map(str, caught.value.problems))
    return [problem.name for problem in caught.value.problems]


@pytest.mark.parametrize(("name", "low", "high"), [(name, *ends) for name, ends in RANGES.items()])
def test_p1_both_ends_of_a_range_are_in_and_their_neighbours_out(name: str, low: int, high: int) -> None:
    """P1."""
    for value in (low, low + 1, high - 1, high):
        assert Parameters(**{name: value}).as_dict()[name] == value
    for value in (low - 1, high + 1, 0, -low, -(10**30), 10**30):
        with pytest.raises(ParameterError) as caught:
            Parameters(**{name: value})
        text = str(caught.value)
        assert text.startswith(f"{name} = {value}: ")
        assert f"{low} … {high}" in text


@pytest.mark.parametrize("name", RANGES)
@pytest.mark.parametrize("value", [True, False, 200.0, 200.5, float("nan"), "200", b"200", None, [200], {}, 200 + 0j])
def test_p1_another_type_is_refused_not_converted(name: str, value: object) -> None:
    """P1: integers only."""
    with pytest.raises(ParameterError) as caught:
        Parameters(**{name: value})
    (problem,) = caught.value.problems
    assert problem.name == name
    assert problem.value is value
    low, high = RANGES[name]
    assert f"{low} … {high}" in problem.allowed
    assert str(caught.value).startswith(f"{name} = {value!r}: allowed is an integer {low} … {high}")


@pytest.mark.parametrize("mode", MODES)
def test_p1_the_modes_are_three_texts(mode: str) -> None:
    """P1, SPEC §1."""
    assert Parameters(LCDM=mode).LCDM is Lcdm(mode)
    assert Parameters(LCDM=Lcdm(mode)).as_dict()["LCDM"] == mode
    assert [lcdm.value for lcdm in Lcdm] == list(MODES)


@pytest.mark.parametrize(
    "value", ["", "drop", "DROP_ONLY", "drop_only ", b"drop_only", 0, 1, True, None, ["drop_only"], 2.0]
)
def test_p1_any_other_mode_is_refused_with_the_three_named(value: object) -> None:
    """P1."""
    with pytest.raises(ParameterError) as caught:
        Parameters(LCDM=value)
    assert str(caught.value) == f"LCDM = {value!r}: allowed is one of denial_to_drop, denial_only, drop_only"


def test_p1_names_come_in_upper_or_lower_case() -> None:
    """P1."""
    upper = {"LC": 7, "LCDM": "drop_only", "LCPS": 8, "LRC": 9, "PC": 10, "TR": 250}
    lower = {name.lower(): value for name, value in upper.items()}
    assert Parameters.of(upper) == Parameters.of(lower) == Parameters(**upper)
    assert Parameters.of(lower).as_dict() == upper


@pytest.mark.parametrize(
    "name", ["Lc", "lC", "Lcdm", "tR", "LC ", "", "L", "FOO", "foo", "self", "cls", "lcpſ", "ＬＣ"]
)
def test_p1_mixed_case_and_unknown_names_are_refused(name: str) -> None:
    """P1: the error names the name, the value and the names there are."""
    with pytest.raises(ParameterError) as caught:
        Parameters.of({name: 200})
    assert str(caught.value) == f"{name} = 200: allowed is one of the names LC, LCDM, LCPS, LRC, PC, TR"


def test_p1_a_name_given_twice_is_refused() -> None:
    """P1: LC and lc are one parameter; which of the two was meant is not ours to choose."""
    with pytest.raises(ParameterError) as caught:
        Parameters(LC=5, lc=6)
    assert str(caught.value) == "lc = 6: allowed is given once, and LC = 5 was given before"
    assert problems(lc=5, LC=5) == ["LC"]


def test_p1_all_problems_come_at_once() -> None:
    """P1, DESIGN §5."""
    wrong = {"LC": 0, "LCDM": "x", "LCPS": "5", "LRC": 101, "PC": 1.5, "TR": 99, "lc": 3, "Tr": 200, "nope": None}
    assert sorted(problems(**wrong)) == ["LC", "LCDM", "LCPS", "LRC", "PC", "TR", "Tr", "lc", "nope"]
    assert sorted(problems(tr=99, pc=0)) == ["PC", "TR"]


@settled
@given(
    st.dictionaries(
        st.sampled_from(("LC", "lc", "LCDM", "LCPS", "LRC", "PC", "TR", "Tr", "x")),
        st.one_of(st.integers(), st.booleans(), st.text(), st.none(), st.floats(), st.sampled_from(MODES)),
    ),
)
def test_p1_nothing_but_a_parameter_error_comes_of_any_values(values: dict[str, Any]) -> None:
    """P1: taken exactly as given, or refused; never clamped, never another error."""
    try:
        parameters = Parameters.of(values)
    except ParameterError as error:
        refused = {problem.name for problem in error.problems}
    else:
        refused = set()
        taken = parameters.as_dict()
        assert all(taken[name.upper()] == value for name, value in values.items())
        assert all(type(taken[name.upper()]) is type(value) for name, value in values.items())
    low_high = {**RANGES, **{name.lower(): ends for name, ends in RANGES.items()}}
    wrong = {
        name
        for name, value in values.items()
        if name in ("Tr", "x")
        or (name == "LCDM" and value not in MODES)
        or (name in low_high and not (type(value) is int and low_high[name][0] <= value <= low_high[name][1]))
    }
    # LC and lc together: the later of them is refused, whatever its value.
    both = [name for name in values if name in ("LC", "lc")]
    if len(both) == 2:
        wrong |= {both[1]}
    assert {name.upper() for name in refused} == {name.upper() for name in wrong}


@pytest.mark.parametrize(
    "value", [10**5000, [10**5000], "x" * 10**6, -(10**4300)], ids=["int", "list", "text", "negative"]
)
def test_p1_a_huge_value_is_refused_with_a_short_text(value: object) -> None:
    """P1: an int of over 4,300 digits has no repr in CPython; a text from outside may be of any length."""
    with pytest.raises(ParameterError) as caught:
        Parameters(LC=value)
    assert str(caught.value).startswith("LC = ")
    assert str(caught.value).endswith("1 … 10000 (requests/s)")
    assert len(str(caught.value)) < MAX_SHOWN + 100
    with pytest.raises(ParameterError) as caught:
        Parameters.of({"y" * 10**6: 1})
    assert len(str(caught.value)) < 3 * MAX_SHOWN


def test_p2_the_defaults() -> None:
    """P2: 0.2 s to react, 503 for 10 s, 3 s of calm to relax."""
    p = Parameters()
    assert p.as_dict() == {"LC": 1000, "LCDM": "denial_to_drop", "LCPS": 500, "LRC": 15, "PC": 50, "TR": 200}
    assert (p.window_ns, p.patience_ms, p.relax_ms) == (200_000_000, 10_000, 3_000)


@pytest.mark.parametrize(
    ("tr", "scale"),
    [(100, 10), (101, 9), (125, 8), (200, 5), (250, 4), (333, 3), (334, 2), (500, 2), (501, 1), (1000, 1)],
)
def test_p3_what_is_derived(tr: int, scale: int) -> None:
    """P3: scale = 1000 div TR; relax time LRC·TR; patience time PC·TR."""
    p = Parameters(TR=tr, LRC=7, PC=11)
    assert (p.scale, p.window_ns, p.relax_ms, p.patience_ms) == (scale, tr * 1_000_000, 7 * tr, 11 * tr)


@pytest.mark.parametrize(
    ("tr", "low", "nearest"),
    [
        (600, "40", 500),
        (999, "0.1", 1000),
        (501, "49.9", 500),
        (750, "25", 500),
        (150, "10", 125),
        (101, "9.1", 100),
        (333, "0.1", 250),
    ],
)
def test_p4_a_tr_that_does_not_divide_1000_is_warned_about(tr: int, low: str, nearest: int) -> None:
    """P4: TR 600 under-reads by 40 %; the nearest exact TR is named (of two as near the shorter)."""
    (warning,) = Parameters(TR=tr).warnings()
    assert warning.startswith(f"TR = {tr}: 1000 div TR is {1000 // tr}, so RPS reads {low} % low")
    assert f"the nearest exact TR is {nearest} " in warning


def test_p4_exact_values_are_not_warned_about() -> None:
    """P4: 100, 125, 200, 250, 500, 1000 and no others."""
    silent = tuple(tr for tr in range(100, 1001) if not Parameters(TR=tr).warnings())
    assert silent == EXACT_TR_MS == (100, 125, 200, 250, 500, 1000)


def test_replaced_changes_some_and_checks_all() -> None:
    """P1: names in either case; every problem at once; the first object is untouched."""
    first = Parameters(LC=5)
    assert first.replaced(tr=100, LCDM="drop_only").as_dict() == {**first.as_dict(), "TR": 100, "LCDM": "drop_only"}
    assert first.replaced() == first
    with pytest.raises(ParameterError) as caught:
        first.replaced(LC=0, lc=1, TR=1, foo=1)
    assert sorted(problem.name for problem in caught.value.problems) == ["LC", "TR", "foo", "lc"]
    with pytest.raises(ParameterError):
        first.replaced(self=1)
    assert first.as_dict()["LC"] == 5


def test_parameters_are_values() -> None:
    """Immutable, compared and hashed by what they hold; copied and pickled to a worker whole."""
    p = Parameters(LC=5)
    with pytest.raises(ValueError, match="frozen"):
        p.LC = 6
    assert p == Parameters(lc=5)
    assert p != Parameters(LC=6)
    assert len({p, Parameters(LC=5)}) == 1
    assert copy.deepcopy(p) == pickle.loads(pickle.dumps(p)) == p


def test_a_parameter_error_survives_a_pipe() -> None:
    """Raised in a worker process, read in another: pickled with its problems."""
    with pytest.raises(ParameterError) as caught:
        Parameters(LC=0)
    again = pickle.loads(pickle.dumps(caught.value))
    assert again.problems == caught.value.problems
    assert str(again) == str(caught.value)


def test_the_terms_are_the_table_of_the_specification() -> None:
    """SPEC §1, row by row."""
    assert [(t.name, t.long_name, t.low, t.high) for t in TERMS] == [
        ("LC", "Level Critical", 1, 10000),
        ("LCDM", "Level Critical Drop Mode", 0, 0),
        ("LCPS", "Limit Critical Per Second", 1, 10000),
        ("LRC", "Lockdown Relax Coefficient", 1, 100),
        ("PC", "Patience Time Coefficient", 1, 10000),
        ("TR", "Time Request (sampling period)", 100, 1000),
    ]
