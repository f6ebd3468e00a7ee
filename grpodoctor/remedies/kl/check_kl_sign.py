"""Check of the KL penalty's sign."""

from __future__ import annotations

from grpodoctor.remedies.base import Criterion, Remedy


class CheckKlSign(Remedy):
    """Check the sign and the direction of the KL penalty.

    What it does:
        A penalty with the wrong sign rewards the policy for leaving its reference, and a larger
        coefficient makes it worse. k1 in the loss has a gradient of zero on average, so it does
        nothing. Log-probabilities in the wrong order turn the direction.

    When it applies:
        The KL grows faster with a larger coefficient, or its estimate is negative on average.

    What it costs:
        An hour of your time. Do not raise the coefficient before.

    What it overlaps:
        `kl-penalty`, which makes an inverted sign worse.

    How it is judged:
        By a person: with a large coefficient and no reward, the KL falls.

    References:
        Schulman 2020, Approximating KL Divergence; arXiv 2506.09477 and 2510.01555 (gradients of
        the estimators).
    """

    id = "check-kl-sign"
    title = "Check the sign of the KL penalty"
    applicability = "suggest"
    in_flight = False
    slots = ()
    target = Criterion("kl/reference/k3", "down")
    more_targets = (Criterion("kl/reference/k1", "up"),)
    paper = "arXiv 2510.01555"
    how = (
        "Set the reward to 0 and the coefficient to 1 for ten steps: the KL must fall. Use k3 or "
        "k2 in the loss, or k1 in the reward, with the policy's log-probability minus the "
        "reference's."
    )
