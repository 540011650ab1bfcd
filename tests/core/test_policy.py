"""SPEC V1, X1, X2: the settings beside the parameters, their defaults and what is refused."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from sipguard import Policy

NINE = {"REGISTER", "SUBSCRIBE", "MESSAGE", "INVITE", "OPTIONS", "INFO", "UPDATE", "REFER", "PRACK"}


def test_the_defaults_are_the_customers_behaviour() -> None:
    """SPEC §7: all off; V1: both sets are the nine."""
    policy = Policy()
    assert (policy.shed, policy.enforce) == ("all", True)
    assert policy.refuse_methods == policy.drop_methods == NINE


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        ({"shed": "some"}, "shed = 'some': allowed is one of all, excess"),
        ({"shed": None}, "shed = None: allowed is one of all, excess"),
        ({"shed": []}, "shed = []: allowed is one of all, excess"),
        ({"enforce": 1}, "enforce = 1: allowed is true or false"),
        ({"enforce": "true"}, "enforce = 'true': allowed is true or false"),
        ({"refuse_methods": "INVITE"}, "refuse_methods = 'INVITE': allowed is a list of method names"),
        ({"drop_methods": 5}, "drop_methods = 5: allowed is a list of method names"),
        ({"drop_methods": None}, "drop_methods = None: allowed is a list of method names"),
        ({"refuse_methods": [""]}, "refuse_methods: '' is not a SIP method name"),
        ({"refuse_methods": ["INVITE", "A B"]}, "refuse_methods: 'A B' is not a SIP method name"),
        ({"drop_methods": [7]}, "drop_methods: 7 is not a SIP method name"),
        ({"drop_methods": ["ПРИВЕТ"]}, "drop_methods: 'ПРИВЕТ' is not a SIP method name"),
    ],
)
def test_a_wrong_setting_is_named_with_its_value(setting: dict[str, Any], text: str) -> None:
    """X1, X2, V1 (a method is an RFC 3261 25.1 token)."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (the text is compared whole below)
        Policy(**setting)
    assert str(caught.value).startswith(text)


def test_method_sets_may_be_any_iterable_of_tokens_even_empty() -> None:
    """V1."""
    assert Policy(refuse_methods=[]).refuse_methods == frozenset()
    assert Policy(drop_methods=(m for m in ("FOO", "x-!%*_+`'~."))).drop_methods == {"FOO", "x-!%*_+`'~."}


def test_a_policy_is_a_value() -> None:
    """Immutable, compared and hashed by what it holds; copied and pickled to a worker whole."""
    policy = Policy(shed="excess", enforce=False, drop_methods=["BYE"])
    with pytest.raises(AttributeError, match="immutable"):
        policy.shed = "all"
    assert policy == Policy("excess", False, drop_methods={"BYE"})
    assert policy != Policy()
    assert policy != "excess"
    assert len({policy, Policy("excess", False, drop_methods=["BYE", "BYE"])}) == 1
    assert copy.copy(policy) == copy.deepcopy(policy) == pickle.loads(pickle.dumps(policy)) == policy
    assert repr(policy) == "Policy(shed='excess', enforce=False, drop_methods=['BYE'])"
    assert repr(Policy()) == "Policy(shed='all', enforce=True)"
