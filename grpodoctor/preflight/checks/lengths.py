"""LEN101."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from grpodoctor.preflight.base import Check, Outcome, Remark, Skipped
from grpodoctor.preflight.context import Patient
from grpodoctor.rules.base import Severity


class LengthBudget(Check):
    """Many responses will be cut at the limit.

    What it sees:
        Lengths of sampled responses against --max-tokens: the share that does not end by itself.

    Why it matters:
        A cut response has no answer and is rewarded as a wrong one, so that training first learns
        to be short; the learner's cost grows with the longest.

    What to do:
        Raise the limit to what nineteen of twenty responses need, or mask the loss of cut ones.

    When it is wrong:
        Responses get longer in training on mathematics, so that a limit which fits now may not fit
        later; the 95th percentile is told for that.

    References:
        DAPO, arXiv 2503.14476, section 3.4.
    """

    code: ClassVar[str] = "LEN101"
    name: ClassVar[str] = "length-budget"
    summary: ClassVar[str] = "Many responses will be cut at the limit."
    references: ClassVar[tuple[str, ...]] = ("arXiv 2503.14476",)
    some: ClassVar[float] = 0.05
    most: ClassVar[float] = 0.5
    """Shares of cut responses from which on it is a warning, and critical."""

    def examine(self, patient: Patient) -> Outcome:
        """Measure sampled responses."""
        if patient.bench is None:
            return Skipped("no engine was given", "give --sampler ENGINE:MODEL")
        drawn = patient.bench.responses()
        if not drawn:
            return Skipped("the engine gave no responses")
        lengths = np.array([len(each.ids) for each in drawn])
        cut = float(np.mean([not each.ended for each in drawn]))
        limit = patient.plan.max_tokens
        figures = {
            "cut": cut,
            "mean": float(lengths.mean()),
            "p95": float(np.percentile(lengths, 95)),
        }
        told = (
            f"{cut:.1%} of {len(drawn)} responses are cut at {limit} tokens; mean "
            f"{figures['mean']:.0f}, 95th percentile {figures['p95']:.0f}"
        )
        if cut < self.some:
            spare = figures["p95"] < limit / 4
            hint = (f"{limit} tokens are more than four times what is needed",) if spare else ()
            return (Remark("info", told, hint, figures=figures),)
        severity: Severity = "critical" if cut >= self.most else "warning"
        advice = ("raise --max-tokens and look again", "check that the end token is known (DAT103)")
        return (Remark(severity, told, advice, figures=figures),)
