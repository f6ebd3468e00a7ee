"""One temperature for sampling and scoring."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from grpodoctor.remedies.base import Criterion, Remedy
from grpodoctor.vocabulary.knobs import Setting


class OneTemperature(Remedy):
    """Score responses at the temperature at which they are sampled.

    What it does:
        At temperature 0.7 the sampler draws from a sharper distribution than a learner at
        temperature 1 scores. The learner divides its logits by the sampling temperature, and the
        engine returns log-probabilities after the temperature, so both describe one distribution.

    When it applies:
        The two temperatures differ, or the responses are more likely under the sampler than under
        the learner from the first step on.

    What it costs:
        Nothing if the learner's temperature changes. A change of the sampling temperature also
        changes how much the policy explores.

    What it overlaps:
        Corrections and recomputed old log-probabilities, which would otherwise compensate for the
        bias.

    How it is judged:
        By a person, after the restart: the bias of the log-probabilities is near 0 at the first
        step.

    References:
        TRL issues 4159 and 4163 (log-probabilities before the temperature).
    """

    id = "one-temperature"
    title = "Sample and score at one temperature"
    applicability = "suggest"
    in_flight = False
    slots = ("old-policy",)
    target = Criterion("mismatch/nll_gap", "toward-baseline")
    more_targets = (Criterion("mismatch/logprob_diff_mean", "down"),)
    paper = "TRL issue 4163"
    how = (
        "Set the temperature of the learner's log-probabilities to the sampling temperature; 1 is "
        "the usual choice for both. Request processed log-probabilities from the engine: raw ones "
        "ignore the temperature."
    )
    restart_with: ClassVar[Mapping[str, Setting]] = {
        "one_temperature": True,
        "processed_logprobs": True,
    }
