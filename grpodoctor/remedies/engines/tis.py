"""Truncated importance sampling between the engine that samples and the learner."""

from __future__ import annotations

from collections.abc import Mapping

from grpodoctor.remedies.base import Remedy, Watch
from grpodoctor.vocabulary.knobs import Setting

CAP = 2.0
"""The cap that Yao et al. use for their GSM8K runs."""

SETTINGS: dict[str, Setting] = {
    "old_logprobs": "recompute",
    "correction": "tis_token",
    "correction_cap": CAP,
}


class Tis(Remedy):
    """Weigh each token by learner probability over sampler probability, capped at 2.

    What it does:
        Responses come from the engine's policy, the gradient is taken for the learner's. The capped
        weight makes up for the difference token by token, on top of the ratio of the trust region,
        whose old log-probabilities must be the learner's own: they are recomputed.

    What it costs:
        A forward pass to recompute old log-probabilities where the engine's were used. Tokens above
        the cap stay biased. On mixture-of-experts models the authors of DPPO saw earlier collapse.

    What it overlaps:
        Every other correction of the same ratio (masking, IcePop, losses anchored on the sampler).
        The mismatch itself remains: mend the engine as well.

    How it is judged:
        Ratios are 1 again before the first update of a batch, or, where they were already, the
        reward rises. Guard: the reward does not fall.

    References:
        Yao et al. 2025, Your Efficient RL Framework Secretly Brings You Off-Policy RL Training.
    """

    id = "tis"
    title = "Truncated importance sampling, per token, capped at 2"
    applicability = "safe"
    in_flight = True
    slots = ("engine-correction", "old-policy")
    target = Watch("mismatch/first_ratio_off", "down")
    also = (Watch("reward/mean", "up"),)
    guards = (Watch("reward/mean", "down", 0.1),)
    paper = "Yao et al. 2025"

    def change(self, knobs: Mapping[str, Setting]) -> dict[str, Setting]:
        """Set the correction, its cap and whose log-probabilities are old, where none acts yet."""
        known = all(name in knobs for name in SETTINGS)
        if not known or knobs["correction"] != "none":
            return {}
        return {name: wanted for name, wanted in SETTINGS.items() if knobs[name] != wanted}
