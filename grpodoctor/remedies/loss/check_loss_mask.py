"""Check of the loss mask."""

from __future__ import annotations

from grpodoctor.remedies.base import Criterion, Remedy


class CheckLossMask(Remedy):
    """Check which tokens the loss mask selects.

    What it does:
        If groups have variance and the gradient is still zero, the advantages do not reach any
        token. Possible causes are a mask that removes all tokens (usually because the padding token
        equals the end token), a detached tensor, or frozen weights.

    When it applies:
        Groups have variance, and the gradient is zero.

    What it costs:
        An hour of your time. Nothing else helps while no token is in the loss.

    What it overlaps:
        Nothing.

    How it is judged:
        By a person: the loss contains as many tokens as were generated, and the gradient is not
        zero.

    References:
        Understanding R1-Zero-Like Training, arXiv 2503.20783, listing 1 (what a masked mean divides
        by).
    """

    id = "check-loss-mask"
    title = "Check the loss mask"
    applicability = "suggest"
    in_flight = False
    slots = ()
    target = Criterion("optimizer/loss_tokens", "up")
    paper = "Understanding R1-Zero-Like Training, arXiv 2503.20783"
    how = (
        "Print the mask of one batch next to its decoded tokens. Compare the padding token with "
        "the end token, count the tokens in the loss, and print the gradient of the largest weight."
    )
