"""The starting policy as the reference of the KL penalty."""

from __future__ import annotations

from grpodoctor.remedies.base import Criterion, Remedy


class ResetReference(Remedy):
    """Load the reference model from the checkpoint that the policy starts from.

    What it does:
        A KL penalty measures the distance from where the policy started. If the reference is
        another model, the penalty pulls the policy toward that model instead. ProRL resets the
        reference to the current policy every few hundred steps for the same reason.

    When it applies:
        The KL to the reference is far from 0 at the first step, or the penalty holds back a policy
        that has moved on for the better.

    What it costs:
        A restart. The divergence of earlier steps cannot be compared with that of later ones.

    What it overlaps:
        A change of the KL coefficient, which scales the same term.

    How it is judged:
        The divergence from the reference is zero at the first step.

    References:
        ProRL, arXiv 2505.24864, section 2.3.2 (reference policy reset).
    """

    id = "reset-reference"
    title = "Use the starting policy as the KL reference"
    applicability = "suggest"
    in_flight = False
    slots = ("kl",)
    target = Criterion("kl/reference/k3", "down")
    paper = "ProRL, arXiv 2505.24864"
    alternatives = ("check-reference",)
    how = (
        "Compare the path, revision, precision and adapter of the reference model with those of "
        "the starting policy. Load the reference from that checkpoint. With LoRA, check that the "
        "adapter is off when the reference is evaluated."
    )
