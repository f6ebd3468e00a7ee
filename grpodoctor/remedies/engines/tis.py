"""Truncated importance sampling between sampler and learner."""

from __future__ import annotations

import math
from collections.abc import Mapping

from grpodoctor.remedies.base import Criterion, Readings, Remedy, round_to_two_digits
from grpodoctor.vocabulary.knobs import Setting

CAP = 2.0
"""Cap that Yao et al. use for their GSM8K runs."""

LARGEST_CAP = 8.0
"""Cap that Yao et al. use for a 32B model with an int8 sampler."""

_QUANTILE = 6.2
"""log(0.5 / 0.001): the 99.9 % quantile of a Laplace distribution with mean absolute value 1."""

SETTINGS: dict[str, Setting] = {
    "old_logprobs": "recompute",
    "correction": "tis_token",
    "correction_cap": CAP,
}


class Tis(Remedy):
    """Weight each token by learner probability divided by sampler probability, capped at 2.

    What it does:
        Responses come from the sampler's policy, and the gradient is computed for the learner's.
        The capped weight compensates for the difference token by token. The weight is separate from
        the clipped ratio of the loss, whose old log-probabilities must be the learner's own; this
        remedy recomputes them.

    When it applies:
        The engines disagree moderately on many tokens. On few tokens, masking them (IcePop, MIS) is
        better.

    What it costs:
        A forward pass to recompute old log-probabilities where the sampler's were used. Tokens
        above the cap stay biased. On mixture-of-experts models, the authors of DPPO saw runs
        collapse earlier with it.

    What it overlaps:
        Every other correction of the same ratio (masking, IcePop, losses anchored on the sampler).
        The mismatch itself remains: fix the engine as well.

    How it is judged:
        Ratios are 1 again before the first update of a batch; if they were already, the reward
        rises. Guard: the reward does not fall.

    References:
        Yao et al. 2025, Your Efficient RL Framework Secretly Brings You Off-Policy RL Training.
    """

    id = "tis"
    title = "Weight tokens by importance sampling, truncated at 2 (TIS)"
    applicability = "safe"
    in_flight = True
    slots = ("engine-correction", "old-policy")
    target = Criterion("mismatch/first_ratio_off", "down")
    more_targets = (Criterion("reward/mean", "up"),)
    guards = (Criterion("reward/mean", "down", 0.1),)
    paper = "Yao et al. 2025"
    alternatives = ("mis", "icepop", "dppo", "sequence-error-mask", "float16-engines")

    def change(self, knobs: Mapping[str, Setting]) -> dict[str, Setting]:
        """Set the correction, its cap and `old_logprobs` if no correction is in force."""
        is_known = all(name in knobs for name in SETTINGS)
        if not is_known or knobs["correction"] != "none":
            return {}
        return {name: value for name, value in SETTINGS.items() if knobs[name] != value}

    def tuned(self, change: dict[str, Setting], readings: Readings) -> dict[str, Setting]:
        """Set a cap that at most one token in a thousand exceeds, from 2 to 8.

        Assumes that the gap of the log-probabilities has a Laplace distribution.
        """
        gap = readings.get("mismatch/logprob_diff_mean")
        if not change or gap is None:
            return change
        exponent = min(gap * _QUANTILE, math.log(LARGEST_CAP))
        cap = max(CAP, round_to_two_digits(math.exp(exponent)))
        return change if cap == CAP else {**change, "correction_cap": cap}
