"""MIS101."""

from __future__ import annotations

from typing import ClassVar

from grpodoctor.preflight.base import Check
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.results.check_results import CheckFinding, CheckResult, SkippedCheck
from grpodoctor.rules.base import Severity

REQUIRES_TWO_ENGINES = SkippedCheck(
    "no sampler or no learner was given", "add --sampler ENGINE:MODEL and --learner ENGINE:MODEL"
)
K3 = "mismatch/kl_k3"
LARGEST = "mismatch/prob_diff_max/worst_sequence"


class InitialMismatch(Check):
    """Sampler and learner disagree before the first update.

    What it sees:
        The learner scores the sampler's responses, with the same weights on both sides. The check
        reports k3 per token, and the largest difference of a token's probability in any response.

    Why it matters:
        A mismatch at the start is present in every step, and grows with the updates. Training
        treats it as a change of the policy: importance ratios differ from 1 before anything was
        learned, and trust regions clip differences that are not updates.

    What to do:
        Find the cause with `grpodoctor probe`. Until it is fixed, cap importance weights (TIS).

    When it is wrong:
        Engines of different precision always differ a little. Two engines in bfloat16 have a k3
        around 3e-4 on small models, which is below the threshold.

    References:
        Yao et al. 2025; NeMo RL's guide recommends investigating a KL above 1e-3.
    """

    code: ClassVar[str] = "MIS101"
    name: ClassVar[str] = "engine-mismatch-at-start"
    former_names: ClassVar[tuple[str, ...]] = ("mismatch-at-step-zero",)
    summary: ClassVar[str] = "Sampler and learner disagree before the first update."
    references: ClassVar[tuple[str, ...]] = ("Yao et al. 2025",)
    warning_kl: ClassVar[float] = 1e-3
    """k3 in nats per token from which the finding is a warning: NeMo RL's bound."""
    critical_kl: ClassVar[float] = 1e-2
    """k3 in nats per token from which it is critical: ten times NeMo RL's bound, which means
    different weights or prompts instead of rounding."""

    def examine(self, context: PreflightContext) -> CheckResult:
        """Sample with one engine and score with the other."""
        if context.sampler is None or context.learner is None:
            return REQUIRES_TWO_ENGINES
        comparison = context.sampler.mismatch(context.learner)
        k3, largest = comparison.value(K3), comparison.value(LARGEST)
        nonfinite = comparison.value("mismatch/nonfinite")
        figures = {"k3": k3, "largest": largest, "nonfinite": nonfinite}
        summary = (
            f"KL (k3) is {k3:.1e} nats per token over {comparison.tokens} tokens; the largest "
            f"probability difference is {largest:.2g}"
        )
        severity: Severity = "info"
        if k3 >= self.warning_kl:
            severity = "critical" if k3 >= self.critical_kl else "warning"
        if nonfinite > 0:
            severity = "critical"
            summary = f"{nonfinite:.1%} of tokens are not finite in one engine; KL (k3) is {k3:.1e}"
        advice = (
            "Find the cause: grpodoctor probe with the same --sampler and --learner.",
            "Cap importance weights (TIS) until it is fixed.",
        )
        return (
            CheckFinding(
                severity, f"{summary}.", advice if severity != "info" else (), figures=figures
            ),
        )
