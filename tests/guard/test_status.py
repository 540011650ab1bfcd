"""The status as plain JSON (DESIGN §5, GET /api/v1/status)."""

from __future__ import annotations

import json

from sipguard.core.policy import Policy
from sipguard.core.verdicts import Verdict
from sipguard.guard.checks import CheckChain, NamedCheck
from sipguard.guard.ports import PlaneReading
from sipguard.guard.status import status_of
from tests.guard.messages import ack_of, request, response_to
from tests.guard.rig import A, C, Rig


def test_a_new_guards_status() -> None:
    status = status_of(Rig().guard)
    assert status == json.loads(json.dumps(status))
    assert status["state"] == "normal"
    assert status["rps"] == status["origin_ns"] == status["patience_run"] == status["relax_run"] == 0
    assert status["parameters"] == {"LC": 100, "LCDM": "denial_to_drop", "LCPS": 10000, "LRC": 3, "PC": 4, "TR": 100}
    assert status["policy"]["shed"] == "all"
    assert status["policy"]["enforce"] is True
    assert status["verdicts"] == {"allow": 0, "reject": 0, "drop": 0}
    assert status["requests"] == {}
    assert (status["kernel_dropped"], status["absorbed"], status["overflowed"]) == (0, 0, 0)


def test_the_figures_of_a_whole_story_add_up() -> None:
    """requests = allow + reject + drop, kernel drops among them; absorbed, overflowed, checks, outcomes apart."""
    rig = Rig(
        checks=CheckChain(
            (NamedCheck("adl", lambda head, *_: Verdict.DROP if head.method == "FOO" else Verdict.ALLOW),)
        )
    )
    rig.receive(request("FOO"))
    rig.answered(request(max_forwards=0))
    rig.sent(response_to(rig.forwarded(request()).data), rig.server())
    rig.receive(response_to(rig.forwarded(request(uri="sip:a@198.51.100.7"), rig.server()).data))
    rig.receive(b"")
    rig.into(A)
    invite = request(call_id="refused")
    rig.receive(ack_of(invite, rig.answered(invite).data))
    status = status_of(rig.guard)
    assert status["state"] == "around_critical_limit"
    rig.into(C)
    rig.receive(request("REGISTER"))
    assert rig.tick(PlaneReading(rig.udp, 700, 0)) is C
    rig.tick(PlaneReading(rig.udp, 0, 40))

    status = status_of(rig.guard)
    assert status == json.loads(json.dumps(status))
    assert status["state"] == "critical_limit"
    assert status["rps"] == 400
    verdicts = status["verdicts"]
    assert sum(status["requests"].values()) == verdicts["allow"] + verdicts["reject"] + verdicts["drop"]
    assert verdicts["drop"] == 701
    assert status["kernel_dropped"] == 700
    assert status["overflowed"] == 40
    assert status["absorbed"] == 1
    assert status["checks"] == {"adl": 1}
    assert status["outcomes"]["max-forwards"] == 1
    assert status["discards"] == {"empty": 1}
    assert status["responses"] == {"inside": 1, "outside": 1}
    assert status["shadow"] == {"reject": 0, "drop": 0}


def test_in_shadow_mode_the_verdicts_that_would_have_been_stand_apart() -> None:
    """SPEC X2."""
    rig = Rig(policy=Policy(enforce=False)).into(C)
    rig.forwarded(request())
    status = status_of(rig.guard)
    assert status["policy"]["enforce"] is False
    assert status["verdicts"] == {"allow": sum(status["requests"].values()), "reject": 0, "drop": 0}
    assert status["shadow"]["reject"] == 44
    assert status["shadow"]["drop"] == 1


def test_the_runs_are_those_of_the_level() -> None:
    """The log line and the status name the run lengths (issue 2 §5)."""
    rig = Rig().into(A)
    for _ in range(11):
        rig.receive(request("OPTIONS"))
    rig.tick()
    assert status_of(rig.guard)["patience_run"] == 1
    rig.tick()
    status = status_of(rig.guard)
    assert (status["patience_run"], status["relax_run"]) == (0, 1)


def test_reprs_are_made_to_be_asserted_on() -> None:
    """DESIGN §2: and they hold no secret."""
    rig = Rig()
    assert repr(rig.guard).startswith("<Guard <OverloadController normal rps=0 ")
    assert repr(rig.udp) == "<listener 0 udp:192.0.2.1:5060>"
    assert repr(rig.udp6) == "<listener 2 udp:[2001:db8:1::1]:5060>"
    assert repr(rig.servers[0]) == "<upstream 0001 udp:10.0.0.10:5080>"
