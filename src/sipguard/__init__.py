"""sipguard: SIP overload control.

The law alone, for Python SIP servers::

    from sipguard import OverloadController, Parameters, Policy
    controller = OverloadController(Parameters(LC=100), Policy(), origin_ns=time.monotonic_ns())
    verdict = controller.admit("INVITE", now_ns=time.monotonic_ns())   # .value "allow" | "reject" | "drop"

The guard in front of SIP servers: ``sipguard run``.
"""

from sipguard.core.controller import OverloadController
from sipguard.core.levels import State
from sipguard.core.parameters import Lcdm, ParameterError, Parameters
from sipguard.core.policy import Policy
from sipguard.core.verdicts import Change, Cycle, Verdict

__version__ = "0.1.0"

__all__ = [
    "Change",
    "Cycle",
    "Lcdm",
    "OverloadController",
    "ParameterError",
    "Parameters",
    "Policy",
    "State",
    "Verdict",
    "__version__",
]
