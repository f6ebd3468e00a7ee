"""MIS004."""

from __future__ import annotations

from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Sighting, cite, cite_all
from grpodoctor.rules.shared.environment_tokens import EXCHANGES, may_include_environment
from grpodoctor.rules.shared.mismatch_levels import (
    GROWTH_FACTOR,
    MIN_READINGS,
    MIN_SPREADS,
    ORDINARY,
    grown_mismatch,
)
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.conditions import Condition


class GrowingEngineMismatch(Rule):
    """The mismatch between sampler and learner grows as the run goes on.

    What it sees:
        A mean difference that is several times its starting value and above the level of ordinary
        engine pairs.

    Why it matters:
        Rounding in the engines causes a constant difference; a growing one depends on the weights.
        It reinforces itself: the biased gradient moves the learner toward tokens on which the
        engines differ more. Published runs go from 1e-3 to 1 before they fail.

    Evidence it needs:
        `mismatch/prob_diff_mean`, `mismatch/logprob_diff_mean`, or `mismatch/kl_k3`, `kl_k2` or
        `kl_k1`.

    Remedies:
        Sync the sampler at every step; correct by truncated importance sampling; if the sampler is
        quantized, quantize more finely (per channel or block instead of per tensor).

    When it is wrong:
        Tokens of tools or an environment in the loss show the same growth as the policy calls them
        more often; if the run has any and the loss mask is not recorded, the text says so. Tokens
        with medium probability differ most, so a policy with rising entropy shows more
        mismatch. A sampler that is synced every few steps shows a sawtooth; the rule uses its
        median.

    References:
        verl pull request 7519, where fp8 per tensor goes from .010 to .031 and bf16 from .006 to
        .009.
    """

    code: ClassVar[str] = "MIS004"
    name: ClassVar[str] = "growing-engine-mismatch"
    condition: ClassVar[Condition] = "engine-mismatch"
    explains: ClassVar[tuple[Condition, ...]] = ("reference-drift",)
    former_names: ClassVar[tuple[str, ...]] = ("growing-sampler-learner-mismatch",)
    summary: ClassVar[str] = "The mismatch between sampler and learner grows during the run."
    inputs: ClassVar[tuple[Need, ...]] = (tuple(ORDINARY),)
    remedies: ClassVar[tuple[str, ...]] = ("sync-sampler", "tis", "recompute-old-logprobs")
    references: ClassVar[tuple[str, ...]] = ("github.com/verl-project/verl/pull/7519",)
    judges_levels: ClassVar[bool] = True

    growth_factor: float = GROWTH_FACTOR
    """Multiple of the starting value: healthy bf16 runs reach 1.4, a bad quantization 3."""
    min_spreads: float = MIN_SPREADS
    """Growth as a multiple of the starting value's spread."""
    min_readings: int = MIN_READINGS
    """Minimum readings: the starting value and the current level must not overlap."""

    def examine(self, chart: Chart) -> RuleResult:
        """Compare the recent level with the starting value."""
        grown = grown_mismatch(chart, self.growth_factor, self.min_spreads, self.min_readings)
        if grown is None:
            return None
        start, now, name = grown.start, grown.now, grown.metric
        text = f"The sampler-learner mismatch grew from {start:.2g} to {now:.2g} ({name})."
        evidence = (cite(chart, name, start),)
        if not may_include_environment(chart):
            return Sighting("warning", text, evidence)
        text = f"{text[:-1]}; or the loss includes tool output."
        remedies = (*self.remedies, "mask-environment-tokens")
        return Sighting("warning", text, (*evidence, *cite_all(chart, *EXCHANGES)), remedies)
