"""Several samples of a prompt are the same response."""

from __future__ import annotations

from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.variant import Variant
from grpodoctor.support.numbers import part_of

_GREEDY = 0.95
"""Share of likeliest tokens from which copies follow from greedy decoding."""


class DuplicateSamples(Cause):
    """Detected by the probability of the repeated responses; no log-probability shows it."""

    id = "duplicate-samples"
    title = "Samples of the same prompt are copies of each other"
    remedies = (
        "Give each sample of a prompt its own random numbers: do not send a request with a fixed "
        "seed several times, and disable response caches of the server.",
    )
    peels = False
    cost = 0
    when = "always"

    def hypothesize(self, experiments: Experiments, variant: Variant) -> Hypothesis | None:
        """Responses are repeated that are too unlikely to be drawn twice."""
        tokens = variant.tokens
        copied_N = tokens.copied_B[tokens.rows_N]
        if experiments.case.sampling.temperature == 0 or not copied_N.any():
            return None
        if tokens.rank_N is not None and (tokens.rank_N[copied_N] == 0).mean() > _GREEDY:
            return None  # the sampler decodes greedily, which repeats responses
        return Hypothesis(1.0)

    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """Count them."""
        copied_B = variant.tokens.copied_B
        return ExperimentResult(
            summary=(
                f"{part_of(int(copied_B.sum()), copied_B.size, 'responses', 'repeat')} "
                "an earlier sample of "
                "their prompt token by token, although a second draw is unlikely"
            ),
            confidence="likely",
            figures={"copies": float(copied_B.sum())},
        )
