"""Lopti and advantage reweighting: less weight on unlikely tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from grpodoctor.remedies.base import Criterion, Remedy
from grpodoctor.vocabulary.knobs import Setting


class Lopti(Remedy):
    """Give unlikely tokens less weight, or update on them first: Lopti.

    What it does:
        The gradient of an unlikely token is larger than that of a likely one, so unlikely tokens
        dominate the update and push likely tokens in random directions. Reweighting scales the
        advantage by 0.7 + 0.3 p. Lopti updates on the unlikely tokens first and on the others
        afterward.

    When it applies:
        Entropy explodes or the gradient norm is dominated by rare tokens.

    What it costs:
        Lopti takes two optimizer steps where there was one. It lowers entropy.

    What it overlaps:
        Everything that favors unlikely tokens: clip-higher, forking tokens, an entropy bonus.

    How it is judged:
        By a person, after the restart: the gradient norm falls, and the reward rises.

    References:
        Do Not Let Low-Probability Tokens Over-Dominate in RL for LLMs, arXiv 2505.12929.
    """

    id = "lopti"
    title = "Give rare tokens less weight, or update them first (Lopti)"
    applicability = "suggest"
    in_flight = False
    slots = ("exploration",)
    target = Criterion("optimizer/grad_norm", "down")
    more_targets = (Criterion("reward/mean", "up"),)
    paper = "arXiv 2505.12929"
    how = (
        "Restart with advantages scaled by 0.7 + 0.3 times the token's old probability. Lopti "
        "(threshold 0.5) is the stronger form."
    )
    restart_with: ClassVar[Mapping[str, Setting]] = {"advantage_reweighting": 0.3, "lopti": 0.5}
