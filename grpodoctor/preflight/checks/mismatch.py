"""MIS101."""

from __future__ import annotations

from typing import ClassVar

from grpodoctor.preflight.base import Check, Outcome, Remark, Skipped
from grpodoctor.preflight.context import Patient
from grpodoctor.probe.results.results import Comparison
from grpodoctor.rules.base import Severity
from grpodoctor.vocabulary.values import scalar

NEEDS_PAIR = Skipped(
    "no pair of engines was given", "give --sampler ENGINE:MODEL and --learner ENGINE:MODEL"
)
K3 = "mismatch/kl_k3"
LARGEST = "mismatch/prob_diff_max/worst_sequence"


def figure(comparison: Comparison, metric: str) -> float:
    """A figure of a comparison; NaN where there is none."""
    reading = comparison.readings.get(metric)
    value = scalar(reading) if reading is not None else None
    return float("nan") if value is None else value


class MismatchAtStepZero(Check):
    """Sampler and learner disagree before the first update.

    What it sees:
        The sampler's responses are scored by the learner, with the same weights on both sides: k3
        per token, and the largest difference of a token's probability in any response.

    Why it matters:
        Whatever differs now is there in every step, and grows with the updates. It is taken for a
        change of the policy: ratios are off before anything was learnt, and trust regions clip
        what was never an update.

    What to do:
        Have `grpodoctor probe` name the cause. Until then cap importance weights (TIS).

    When it is wrong:
        Engines of different precision always differ a little; two in bfloat16 have k3 around 3e-4
        on small models. That is below the threshold.

    References:
        Yao et al. 2025; NeMo RL's guide calls a KL above 1e-3 one to look into.
    """

    code: ClassVar[str] = "MIS101"
    name: ClassVar[str] = "mismatch-at-step-zero"
    summary: ClassVar[str] = "Sampler and learner disagree before the first update."
    references: ClassVar[tuple[str, ...]] = ("Yao et al. 2025",)
    some: ClassVar[float] = 1e-3
    most: ClassVar[float] = 1e-2
    """k3 in nats per token: NeMo RL's bound, and ten times that: other weights or another prompt,
    and no rounding."""

    def examine(self, patient: Patient) -> Outcome:
        """Sample with one engine, score with the other."""
        if patient.bench is None or patient.learner is None:
            return NEEDS_PAIR
        comparison = patient.bench.mismatch(patient.learner)
        k3, largest = figure(comparison, K3), figure(comparison, LARGEST)
        broken = figure(comparison, "mismatch/nonfinite")
        figures = {"k3": k3, "largest": largest, "nonfinite": broken}
        told = (
            f"k3 is {k3:.1e} nats a token over {comparison.tokens} tokens, the largest difference "
            f"of a probability {largest:.2g}"
        )
        severity: Severity = "info"
        if k3 >= self.some:
            severity = "critical" if k3 >= self.most else "warning"
        if broken > 0:
            severity = "critical"
            told += f"; {broken:.1%} of the tokens are not finite on one side"
        advice = (
            "find out why: grpodoctor probe with the same --sampler and --learner",
            "cap importance weights (TIS) until it is mended",
        )
        return (Remark(severity, told, advice if severity != "info" else (), figures=figures),)
