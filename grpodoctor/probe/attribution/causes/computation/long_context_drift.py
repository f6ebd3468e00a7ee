"""The gap grows with the position by more than the tokens' uncertainty explains."""

from __future__ import annotations

import numpy as np
from scipy import stats

from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.tokens import expected, steady
from grpodoctor.probe.attribution.variant import Variant

_FEWEST = 200
_FEWEST_TOKENS = 64
"""Smallest length of the longest responses; shorter ones have no early and late part."""
_TIMES = 4.0
"""Smallest ratio of the gap in the last quarter to the gap in the first."""
_SIGNIFICANT = 1e-4
_CORRELATION = 0.3
"""Smallest rank correlation. Errors whose size grows with the square root of the position have .4,
those that grow in proportion .6, if all positions are equally common. A changed expert, which
affects the rest of its response, gives less, because most tokens agree."""


class LongContextDrift(Cause):
    """Detected in the gap by position, relative to each token's uncertainty."""

    id = "long-context-drift"
    title = "The gap grows with the position"
    remedies = (
        "Compare the settings that depend on the position: rope_theta and rope scaling, sliding "
        "windows, the maximum context, chunked prefill, context parallelism and attention "
        "backends.",
        "Probe at several response lengths. Until the cause is fixed, correct or mask responses "
        "beyond the length at which the gap starts.",
    )
    peels = False
    stage = 1
    cost = 0

    def hypothesize(self, experiments: Experiments, variant: Variant) -> Hypothesis | None:
        """Compare late with early positions, relative to the expected gap."""
        tokens = variant.tokens
        # A flipped expert affects all later tokens of the response, which is not drift.
        at = tokens.finite_N & steady(tokens)
        positions_N = (tokens.positions_N + tokens.prompt_lengths_B[tokens.rows_N])[at]
        if at.sum() < _FEWEST or np.quantile(tokens.lengths_B, 0.9) < _FEWEST_TOKENS:
            return None
        scaled_N = tokens.terms_N[at] / expected(tokens)[at]
        first, last = np.quantile(positions_N, (0.25, 0.75))
        early = float(scaled_N[positions_N <= first].mean())
        late = float(scaled_N[positions_N >= last].mean())
        test = stats.spearmanr(positions_N, scaled_N)
        rank, chance = float(test.statistic), float(test.pvalue)
        if late <= _TIMES * early or rank < _CORRELATION or chance > _SIGNIFICANT:
            return None
        share = 1 - early * scaled_N.size / scaled_N.sum()
        facts = {"times": late / max(early, 1e-30), "correlation": rank}
        return Hypothesis(float(np.clip(share, 0, 1)), facts)

    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """Report the growth."""
        times, correlation = (float(hypothesis.facts[key]) for key in ("times", "correlation"))
        return ExperimentResult(
            summary=(
                f"late tokens differ {times:.3g} times as much as early tokens of the same "
                f"uncertainty (rank correlation with the position {correlation:.2f})"
            ),
            explained=hypothesis.strength,
            confidence="likely",
            figures={"times": times, "correlation": correlation},
        )
