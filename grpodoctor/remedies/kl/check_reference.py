"""Check of the reference model."""

from __future__ import annotations

from grpodoctor.remedies.base import Criterion, Remedy


class CheckReference(Remedy):
    """Make the policy that the run starts from the reference of the KL penalty.

    What it does:
        At the first step the policy is its own reference, so the KL must be near 0. A KL of 0.5
        nats or more means another model or adapter, another chat template or temperature, or
        log-probabilities that are shifted by one token. 10 nats and more mean a shift. A penalty
        then pulls the policy toward the wrong model.

    When it applies:
        The KL to the reference is far from 0 at the first step. ProRL also resets the reference to
        the current policy every few hundred steps, when the penalty holds back a policy that has
        moved on for the better.

    What it costs:
        An hour of your time, and a restart. The divergence of earlier steps cannot be compared with
        that of later ones.

    What it overlaps:
        A lower KL coefficient, which only hides a wrong reference.

    How it is judged:
        By a person: the first KL is below 0.01 nats.

    References:
        Schulman 2020, Approximating KL Divergence (what each estimator measures); ProRL, arXiv
        2505.24864, section 2.3.2 (reference policy reset).
    """

    id = "check-reference"
    former_ids = ("reset-reference",)
    title = "Check that the KL reference is the starting policy"
    applicability = "suggest"
    in_flight = False
    slots = ("kl",)
    target = Criterion("kl/reference/k3", "down")
    more_targets = (Criterion("kl/reference/k1", "toward-baseline"),)
    paper = "ProRL, arXiv 2505.24864"
    how = (
        "Score one prompt and response with policy and reference before any update: the "
        "log-probabilities must be equal. Compare path, revision, dtype, temperature, dropout and "
        "the alignment of tokens and logits. With LoRA, check that the adapter is off when the "
        "reference is scored. Load the reference from the starting policy's checkpoint."
    )
    command = "grpodoctor probe --sampler transformers:MODEL --learner transformers:REFERENCE"
