"""Clip-higher: a higher upper clip bound."""

from __future__ import annotations

from collections.abc import Mapping

from grpodoctor.remedies.base import Criterion, Readings, Remedy, Requirement, number
from grpodoctor.vocabulary.knobs import Setting

CLIP_HIGH = 0.28
"""Value used by DAPO, section 4.1."""


class ClipHigher(Remedy):
    """Raise the upper clip bound to 0.28 and keep the lower one.

    What it does:
        With an upper clip of 0.2, a token of probability 0.01 may rise to 0.012 and one of 0.9 to
        1.08: the symmetric clip holds back unlikely tokens, on which exploration depends. A higher
        upper bound lets them rise further in each batch.

    When it applies:
        Tokens are clipped at the upper bound: `clip/high_rate` is above 0. With one update per
        batch the ratio is 1 and nothing is clipped, so the remedy is not offered.

    What it costs:
        Larger updates on tokens with a positive advantage. In runs with many updates per batch,
        only the clip keeps the policy near the data, so watch the importance ratio.

    What it overlaps:
        Everything that replaces the clip (GSPO, GMPO, CISPO, SAPO) or raises entropy by other means
        (entropy bonus, a higher temperature, Clip-Cov, KL-Cov).

    How it is judged:
        Entropy rises, or the share of tokens clipped at the upper bound falls. Guard: the reward
        does not fall. With one update per batch the ratio is 1 and nothing is clipped, so the
        remedy is not offered.

    References:
        DAPO: An Open-Source LLM Reinforcement Learning System at Scale, arXiv 2503.14476,
        section 3.1.
    """

    id = "clip-higher"
    title = "Raise the upper clip bound to 0.28"
    applicability = "safe"
    in_flight = True
    slots = ("trust-region", "exploration")
    target = Criterion("entropy/mean", "up")
    more_targets = (Criterion("clip/high_rate", "down"),)
    guards = (Criterion("reward/mean", "down", 0.1), Criterion("ratio/max", "up", 1.0, slack=1.0))
    paper = "DAPO, arXiv 2503.14476"
    alternatives = (
        "entropy-bonus",
        "clip-cov",
        "kl-cov",
        "forking-tokens",
        "dcpo",
        "cispo",
    )
    acts_on = Requirement(
        ("clip/high_rate",),
        "no token is clipped at the upper bound",
        wanted="tokens are clipped at the upper bound",
    )

    def change(self, knobs: Mapping[str, Setting]) -> dict[str, Setting]:
        """Set `clip_high` if it is lower and the clip can have an effect."""
        clip_high = number(knobs, "clip_high")
        if clip_high is None or clip_high >= CLIP_HIGH:
            return {}
        is_unused = knobs.get("updates_per_batch") == 1 and knobs.get("old_logprobs") != "sampler"
        if is_unused or knobs.get("loss", "ppo_clip") != "ppo_clip":
            return {}
        return {"clip_high": CLIP_HIGH}

    def obstacle(self, knobs: Mapping[str, Setting], readings: Readings) -> str:
        """The clip has no effect, or another loss replaces it."""
        loss = knobs.get("loss", "ppo_clip")
        if loss != "ppo_clip":
            return f"the loss {loss} has no upper clip of this kind"
        if knobs.get("updates_per_batch") == 1 and knobs.get("old_logprobs") != "sampler":
            return "one update per batch: the ratio is 1, and nothing is clipped"
        if readings.get("clip/any_rate") == 0:
            return "no token is clipped"
        return super().obstacle(knobs, readings)
