"""The gap grows along the response by more than the tokens' own uncertainty."""

from __future__ import annotations

import numpy as np
from scipy import stats

from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis, Variant
from grpodoctor.probe.attribution.causes.router_flips import steady
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.tokens import Floats, Tokens

_FEWEST = 200
_FEWEST_TOKENS = 64
"""In the longest responses; shorter ones have no early and late."""
_TIMES = 4.0
"""How many times that of the first quarter the gap of the last must be."""
_SIGNIFICANT = 1e-4
_CORRELATION = 0.15


class LongContextDrift(Cause):
    """Seen in the gap by position, each token measured against what its uncertainty explains."""

    id = "long-context-drift"
    title = "The gap grows with the position"
    remedies = (
        "Compare what acts over distance: rope_theta and rope scaling, sliding windows, the "
        "engine's longest context, chunked prefill, context parallelism and attention backends.",
        "Probe at several response lengths; until it is mended, correct or mask responses beyond "
        "the length at which the gap sets in.",
    )
    peels = False
    cost = 0

    def hypothesize(self, experiments: Experiments, variant: Variant) -> Hypothesis | None:
        """The gap per stretch of positions, relative to what uncertainty lets expect."""
        tokens = variant.tokens
        # What a flip moves is passed on to all tokens behind it, which is no drift.
        at = tokens.finite_N & steady(tokens)
        positions_N = (tokens.positions_N + tokens.prompt_lengths_B[tokens.rows_N])[at]
        if at.sum() < _FEWEST or np.quantile(tokens.lengths_B, 0.9) < _FEWEST_TOKENS:
            return None
        scaled_N = tokens.terms_N[at] / expected(tokens)[at]
        first, last = np.quantile(positions_N, (0.25, 0.75))
        early = float(scaled_N[positions_N <= first].mean())
        late = float(scaled_N[positions_N >= last].mean())
        found = stats.spearmanr(positions_N, scaled_N)
        rank, chance = float(found.statistic), float(found.pvalue)
        if late <= _TIMES * early or rank < _CORRELATION or chance > _SIGNIFICANT:
            return None
        share = 1 - early * scaled_N.size / scaled_N.sum()
        facts = {"times": late / max(early, 1e-30), "correlation": rank}
        return Hypothesis(float(np.clip(share, 0, 1)), facts)

    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """Say where it sets in."""
        times, correlation = (float(hypothesis.facts[key]) for key in ("times", "correlation"))
        return ExperimentResult(
            told=(
                f"late tokens are {times:.3g} times as far off as early ones of the same "
                f"uncertainty (rank correlation with the position {correlation:.2f})"
            ),
            explained=hypothesis.strength,
            confidence="likely",
            figures={"times": times, "correlation": correlation},
        )


def expected(tokens: Tokens) -> Floats:
    """What uncertainty lets expect of each token's k3, up to a factor.

    An error of the logits moves log p by about (1 - p) times itself, so k3 goes with its square.
    """
    spread_N = 1 - np.exp(np.minimum(np.where(tokens.finite_N, tokens.learner_N, 0.0), 0.0))
    return np.asarray(np.square(spread_N) + 1e-3)
