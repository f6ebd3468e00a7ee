"""Policy gradient on forking tokens only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from grpodoctor.remedies.base import Criterion, Remedy
from grpodoctor.vocabulary.knobs import Setting


class ForkingTokens(Remedy):
    """Train only on the fifth of the tokens with the highest entropy.

    What it does:
        Most tokens have one likely continuation. A minority decides how the reasoning goes on.
        Training on the 20 % of tokens with the highest entropy keeps entropy up and gave large
        models more accuracy than training on all tokens.

    When it applies:
        Upper clips hit forking tokens, or entropy falls. In the paper the gain grew with the model:
        large for 32B, none for 8B.

    What it costs:
        Entropy of all tokens must be computed before the loss. The gradient has a fifth of the
        tokens.

    What it overlaps:
        Clip-higher, an entropy bonus, Clip-Cov, KL-Cov: choose one. Lopti acts in the opposite
        direction.

    How it is judged:
        By a person, after the restart: entropy of forking tokens stays, and held-out accuracy
        rises.

    References:
        Beyond the 80/20 Rule, arXiv 2506.01939.
    """

    id = "forking-tokens"
    title = "Train on forking tokens only (80/20)"
    applicability = "suggest"
    in_flight = False
    slots = ("exploration",)
    target = Criterion("entropy/fork_tokens", "up")
    more_targets = (Criterion("accuracy/heldout", "up"),)
    paper = "arXiv 2506.01939"
    how = "Restart with the policy gradient on the 20 % of tokens with the highest entropy."
    restart_with: ClassVar[Mapping[str, Setting]] = {"forking_tokens": 0.2}
