"""What the guard says of itself: plain JSON values (DESIGN §5, GET /api/v1/status)."""

from __future__ import annotations

from typing import Any

from sipguard.guard.guard import Guard


def status_of(guard: Guard) -> dict[str, Any]:
    """requests = allow + reject + drop of `verdicts`; kernel_dropped is part of drop; absorbed and overflowed stand apart.

    `transactions` only under one_verdict (SPEC X3): remembered now, copies that got an earlier one's verdict, evicted for room.
    """
    controller, counters = guard.controller, guard.counters
    policy = controller.policy
    transactions = guard.transactions
    return {
        "state": controller.state.value,
        "rps": controller.rps,
        "origin_ns": controller.origin_ns,
        "patience_run": controller.patience_run,
        "relax_run": controller.relax_run,
        "parameters": controller.parameters.as_dict(),
        "policy": {
            "shed": policy.shed,
            "enforce": policy.enforce,
            "refuse_methods": sorted(policy.refuse_methods),
            "drop_methods": sorted(policy.drop_methods),
            "transactions": "per_request" if transactions is None else "one_verdict",
        },
        "requests": dict(counters.requests),
        "verdicts": {
            "allow": controller.allowed,
            "reject": controller.rejected,
            "drop": controller.dropped + counters.kernel_dropped,
        },
        "shadow": {"reject": controller.shadow_rejected, "drop": controller.shadow_dropped},
        "lcps_refused": counters.lcps_refused,
        "kernel_dropped": counters.kernel_dropped,
        "absorbed": counters.absorbed,
        "overflowed": counters.overflowed,
        "responses": {"outside": counters.responses_outside, "inside": counters.responses_inside},
        "discards": dict(counters.discards),
        "outcomes": dict(counters.outcomes),
        "checks": dict(counters.checks),
        **({} if transactions is None else {"transactions": transactions.figures()}),
    }
