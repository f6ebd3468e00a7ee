"""LEN101."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from grpodoctor.preflight.base import Check
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.results.check_results import CheckFinding, CheckResult, SkippedCheck
from grpodoctor.rules.base import Severity


class ResponseLengths(Check):
    """Many responses are truncated at the token limit.

    What it sees:
        The lengths of sampled responses and --max-tokens: the share that does not end with an EOS
        token.

    Why it matters:
        A truncated response has no answer and is rewarded as wrong, so the policy first learns to
        be brief. The learner's cost grows with the longest response.

    What to do:
        Raise the limit until 95% of the responses fit, or mask the loss of truncated ones.

    When it is wrong:
        During training on mathematics responses get longer, so a limit that suffices now may become
        too small. The details contain the 95th percentile for this reason.

    References:
        DAPO, arXiv 2503.14476, section 3.4.
    """

    code: ClassVar[str] = "LEN101"
    name: ClassVar[str] = "max-tokens-too-small"
    former_names: ClassVar[tuple[str, ...]] = ("length-budget",)
    summary: ClassVar[str] = "Many responses are truncated at the token limit."
    references: ClassVar[tuple[str, ...]] = ("arXiv 2503.14476",)
    warning_share: ClassVar[float] = 0.05
    """Share of truncated responses from which the finding is a warning."""
    critical_share: ClassVar[float] = 0.5
    """Share of truncated responses from which the finding is critical."""

    def examine(self, context: PreflightContext) -> CheckResult:
        """Measure sampled responses."""
        if context.sampler is None:
            return SkippedCheck("no engine was given", "add --sampler ENGINE:MODEL")
        responses = context.sampler.responses()
        if not responses:
            return SkippedCheck("the engine returned no responses")
        lengths = np.array([len(response.ids) for response in responses])
        truncated = float(np.mean([not response.ended for response in responses]))
        limit = context.settings.max_tokens
        mean, p95 = float(lengths.mean()), float(np.percentile(lengths, 95))
        figures = {"cut": truncated, "mean": mean, "p95": p95}
        summary = f"{truncated:.1%} of {len(responses)} responses are truncated at {limit} tokens."
        details = (f"length: mean {mean:.0f}, 95th percentile {p95:.0f} tokens",)
        if truncated < self.warning_share:
            hint = f"{limit} tokens are more than four times the 95th percentile."
            advice: tuple[str, ...] = (hint,) if p95 < limit / 4 else ()
            return (CheckFinding("info", summary, advice, details, figures),)
        severity: Severity = "critical" if truncated >= self.critical_share else "warning"
        advice = (
            "Raise --max-tokens and run the check again.",
            "Check that the EOS token is declared (DAT103).",
        )
        return (CheckFinding(severity, summary, advice, details, figures),)
