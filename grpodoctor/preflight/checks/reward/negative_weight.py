"""REW107."""

from __future__ import annotations

import re
from typing import ClassVar

from grpodoctor.preflight.base import Check
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.inputs.reward_weights import UNNAMED
from grpodoctor.preflight.results.check_results import CheckFinding, CheckResult, SkippedCheck

_PENALTY = re.compile(
    r"penal|punish|length|overlong|verbos|repet|repeat|duplic|redundan|error|mistake|violat|toxic"
    r"|halluc|perplex|distance|truncat"
    r"|(?<![a-z])(?:cost|len|long|token|word|size|time|latency|step|turn|call|wrong|incorrect"
    r"|invalid|unsafe|harm|hack|cheat|leak|refus|cut|diff|loss|kl|fail|bad|neg|anti|num|count)",
    re.IGNORECASE,
)
"""Names of functions that count what is unwanted, or a size that may be meant to shrink."""


class NegativeWeight(Check):
    """A reward function has a negative weight or none.

    What it sees:
        The weights of the reward functions in the run's config (reward_weights of TRL and
        ms-swift). Reports a negative weight of a function whose name does not say that it counts
        something unwanted, such as a penalty or a length, and notes a weight of zero. If the
        config does not name the functions, a negative weight is a note.

    Why it matters:
        Responses that the function rates highest lose against the others of their group: the policy
        learns the opposite.

    What to do:
        Make the weight positive. A function that returns negative penalties needs a positive
        weight.

    When it is wrong:
        The function returns what shall become smaller, under another name.

    References:
        None.
    """

    code: ClassVar[str] = "REW107"
    name: ClassVar[str] = "negative-reward-weight"
    summary: ClassVar[str] = "A reward function has a negative weight or none."
    reads_config_only: ClassVar[bool] = True

    def examine(self, context: PreflightContext) -> CheckResult:
        """Look at each weight."""
        if not (context.reward_weights or context.framework):
            return SkippedCheck("no config was given", "pass --run-config FILE")
        findings = []
        for name, weight in context.reward_weights:
            if weight < 0 and not _PENALTY.search(name):
                findings.append(
                    CheckFinding(
                        "info" if name.startswith(UNNAMED) else "warning",
                        f"The reward function {name!r:.60} has the weight {weight:g}: a higher "
                        "score lowers the reward.",
                        ("Make the weight positive, unless the function counts mistakes.",),
                        figures={"weight": weight},
                    )
                )
            elif weight == 0:
                findings.append(
                    CheckFinding(
                        "info",
                        f"The reward function {name!r:.60} has the weight 0: it is only logged.",
                        figures={"weight": weight},
                    )
                )
        return tuple(findings)
