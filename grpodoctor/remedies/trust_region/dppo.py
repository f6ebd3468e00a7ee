"""DPPO: a trust region on probabilities instead of ratios."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from grpodoctor.remedies.base import Criterion, Remedy
from grpodoctor.vocabulary.knobs import Setting


class Dppo(Remedy):
    """Mask tokens by the change of their probability, not by its ratio: DPPO.

    What it does:
        A ratio of 1.2 is a large change for a token of probability 0.8 and none for one of 0.001. A
        ratio clip therefore drops rare tokens and lets common ones move far. DPPO masks a token if
        its probability differs from the sampler's by more than 0.15 in the direction of its
        advantage. The anchor is the sampler, so no engine correction is needed.

    When it applies:
        Clipped tokens have low probabilities, or the engines disagree mostly on rare tokens.

    What it costs:
        The sampler's log-probabilities are required for every token. Advantages are only centered:
        dividing by the standard deviation changes how often the bound is reached.

    What it overlaps:
        Every engine correction (TIS, MIS, IcePop) and every ratio clip. Variants: the KL form with
        a bound of 0.05; prime-rl's default, with 0.2 and a penalty of 0.001 times the squared
        log-ratio (preset prime_rl); IPO, which masks a change above 0.1 in either direction (preset
        ipo).

    How it is judged:
        By a person, after the restart: fewer rare tokens are masked, and the reward rises.

    References:
        Rethinking the Trust Region in LLM Reinforcement Learning, arXiv 2602.04879; prime-rl,
        trainer.loss (default and IPO).
    """

    id = "dppo"
    title = "Use DPPO: trust region on probabilities"
    applicability = "suggest"
    in_flight = False
    slots = ("trust-region", "engine-correction", "advantage")
    target = Criterion("clip/fork_token_rate", "down")
    more_targets = (Criterion("reward/mean", "up"),)
    paper = "DPPO, arXiv 2602.04879"
    how = (
        "Restart with DPPO on total variation with a bound of 0.15, centered advantages and no "
        "other correction."
    )
    restart_with: ClassVar[Mapping[str, Setting]] = {
        "loss": "dppo_binary_tv",
        "advantage": "centred",
        "correction": "none",
    }
