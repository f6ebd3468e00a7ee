"""Mask of responses with a large log-probability error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from grpodoctor.remedies.base import Criterion, Remedy
from grpodoctor.vocabulary.knobs import Setting


class SequenceErrorMask(Remedy):
    """Drop responses on which the two engines disagree by a factor above 2 per token.

    What it does:
        For each response, the mean over tokens of exp(|learner - sampler log-probability|) tells by
        which factor the engines differ. A response above the bound comes from a damaged cache, a
        wrong token or a failed request, and is dropped before the loss. The bound depends on
        neither length nor direction.

    When it applies:
        A few responses have a mismatch of another order than the rest. If the whole batch differs,
        fix the engine.

    What it costs:
        Little: the bound is far above ordinary rounding, so healthy runs drop nothing.

    What it overlaps:
        MIS per response, which drops responses by the product of their ratios.

    How it is judged:
        By a person, after the restart: the largest mismatch falls while the mean reward stays, and
        the dropped share is below one percent.

    References:
        NeMo RL, `grpo.seq_logprob_error_threshold`; NeMo-RL issue 2100 (a mismatch of single
        responses).
    """

    id = "sequence-error-mask"
    title = "Drop responses with a large log-probability error"
    applicability = "suggest"
    in_flight = False
    slots = ("engine-correction",)
    target = Criterion("mismatch/logprob_diff_max", "down")
    more_targets = (Criterion("mismatch/prob_diff_max", "down"),)
    paper = "NeMo RL, seq_logprob_error_threshold"
    how = (
        "Restart with a bound of 2 on the error per response. Where the framework has no such "
        "setting, use MIS per response, and read the dropped responses: they show the cause."
    )
    restart_with: ClassVar[Mapping[str, Setting]] = {"correction": "error_mask"}
