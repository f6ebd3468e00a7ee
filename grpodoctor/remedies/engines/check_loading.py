"""Check of the weights at the start."""

from __future__ import annotations

from grpodoctor.remedies.base import Criterion, Remedy


class CheckLoading(Remedy):
    """Check that the starting weights were loaded.

    What it does:
        A loader that finds no weight under a tensor's name initializes the tensor at random and
        only warns. The policy then chooses among all tokens with equal probability, whatever the
        prompt is, and no response earns more than another.

    When it applies:
        The policy writes noise at the first reading already, so no update can be the cause.

    What it costs:
        Minutes: generate one response from the starting policy.

    What it overlaps:
        A lower learning rate, which does not help a policy that was never trained.

    How it is judged:
        By a person: the starting policy answers a prompt with text.

    References:
        transformers, `from_pretrained`: weights that are not in the checkpoint are newly
        initialized.
    """

    id = "check-loading"
    title = "Check that the starting weights were loaded"
    applicability = "suggest"
    in_flight = False
    slots = ()
    target = Criterion("entropy/mean", "down")
    paper = "transformers, from_pretrained"
    how = (
        "Read the first lines of the log for newly initialized weights. Generate one response from "
        "the starting policy at temperature 0, outside the trainer. Check the path, names and "
        "format of the weights, the adapter and quantization, and the sampling temperature."
    )
