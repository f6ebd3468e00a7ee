"""Which tokens bear loss."""

from __future__ import annotations

from collections.abc import Mapping

from grpodoctor.remedies.base import Remedy, Watch
from grpodoctor.vocabulary.knobs import Setting


class CheckLossMask(Remedy):
    """Look at the mask that selects the tokens of the loss.

    What it does:
        A gradient of zero although groups have variance means that the advantages do not reach any
        token: a mask that removes them all (padding equal to the end token is the usual cause), a
        detached tensor, frozen weights.

    What it costs:
        An hour of a person; nothing else helps while no token bears loss.

    What it overlaps:
        Nothing.

    How it is judged:
        By a person: as many tokens bear loss as were generated, and the gradient is not zero.

    References:
        Understanding R1-Zero-Like Training, arXiv 2503.20783, listing 1 (what a masked mean divides
        by).
    """

    id = "check-loss-mask"
    title = "Check which tokens bear loss"
    applicability = "suggest"
    in_flight = False
    slots = ()
    target = Watch("optimizer/loss_tokens", "up")
    paper = "Understanding R1-Zero-Like Training, arXiv 2503.20783"
    how = (
        "Print the mask of one batch beside its decoded tokens. Compare the padding token "
        "with the end token, count the tokens that bear loss, and ask the largest weight for "
        "its gradient."
    )

    def change(self, knobs: Mapping[str, Setting]) -> dict[str, Setting]:  # noqa: ARG002 - a person acts
        """Nothing: no knob stands for it."""
        return {}
