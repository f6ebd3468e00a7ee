"""KL-Cov: a penalty on a few tokens of high covariance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from grpodoctor.remedies.base import Criterion, Remedy
from grpodoctor.vocabulary.knobs import Setting


class KlCov(Remedy):
    """Penalize a few tokens whose probability and advantage are both high: KL-Cov.

    What it does:
        As Clip-Cov, but the 0.2 % of tokens with the highest covariance (0.02 % for a 32B model)
        get a penalty on their change instead of no gradient. It has no PPO clip.

    When it applies:
        Entropy falls within the first hundred steps. In the paper it held entropy better than
        Clip-Cov, most of all on the larger model.

    What it costs:
        Without a clip, many updates per batch can move the policy far.

    What it overlaps:
        Clip-higher, an entropy bonus, Clip-Cov, forking tokens: choose one.

    How it is judged:
        By a person, after the restart: entropy stays higher, and the reward rises.

    References:
        The Entropy Mechanism of Reinforcement Learning for Reasoning Language Models, arXiv
        2505.22617.
    """

    id = "kl-cov"
    title = "Use KL-Cov: penalize tokens of high covariance"
    applicability = "suggest"
    in_flight = False
    slots = ("exploration", "trust-region")
    target = Criterion("entropy/mean", "up")
    paper = "arXiv 2505.22617"
    how = "Restart with KL-Cov, a share of 0.002 (0.0002 for a 32B model) and a penalty of 1."
    restart_with: ClassVar[Mapping[str, Setting]] = {"loss": "kl_cov"}
