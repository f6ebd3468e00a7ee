"""Check of the reference model."""

from __future__ import annotations

from grpodoctor.remedies.base import Criterion, Remedy


class CheckReference(Remedy):
    """Check that the reference is the model that the run started from.

    What it does:
        At the first step the policy is its own reference, so the KL must be near 0. A KL of 0.5
        nats or more means another model or adapter, another chat template or temperature, or
        log-probabilities that are shifted by one token. 10 nats and more mean a shift.

    When it applies:
        The KL to the reference is far from 0 at the first step.

    What it costs:
        An hour of your time. Until then the penalty pulls toward the wrong model.

    What it overlaps:
        A lower KL coefficient, which only hides it.

    How it is judged:
        By a person: the first KL is below 0.01 nats.

    References:
        Schulman 2020, Approximating KL Divergence (what each estimator measures).
    """

    id = "check-reference"
    title = "Check the reference model"
    applicability = "suggest"
    in_flight = False
    slots = ()
    target = Criterion("kl/reference/k3", "down")
    more_targets = (Criterion("kl/reference/k1", "toward-baseline"),)
    paper = "Schulman 2020, Approximating KL Divergence"
    how = (
        "Score one prompt and response with policy and reference before any update: the "
        "log-probabilities must be equal. Compare the paths of the two models, disabled adapters,"
        " dropout, dtype, temperature and the alignment of tokens and logits."
    )
