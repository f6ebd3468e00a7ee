"""The engines disagree about the token that ends a response, and about nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis, Variant
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.tokens import Tokens

_FEWEST_ENDS = 8
_FEWEST = 4
_OFTEN = 0.1
"""Of the responses, whose end must be strange; fewer may have been broken off."""
_SHARE, _TIMES = 0.5, 10.0
"""Of the gap at end tokens, and how many times that of other tokens theirs must be."""


class EosHandling(Cause):
    """Seen when the gap, or what is missing, sits at end tokens."""

    id = "eos-handling"
    title = "The token that ends a response is treated differently"
    remedies = (
        "Keep the end token in the response on both sides, with its log-probability and in the "
        "loss mask: one side drops it, replaces it with padding or scores another id.",
        "Compare the end ids of both: eos_token_id in config.json, generation_config.json and the "
        "tokenizer, and the stop ids given to the sampler.",
    )
    cost = 0
    least = _SHARE
    when = "always"

    def hypothesize(self, experiments: Experiments, variant: Variant) -> Hypothesis | None:
        """The share of the gap that sits at end tokens, or ends that are none."""
        at_ends = self._at_ends(variant)
        if at_ends is None and _strange(experiments, variant.tokens):
            return Hypothesis(0.2, {"strange": 1.0})
        return at_ends

    def _at_ends(self, variant: Variant) -> Hypothesis | None:
        """The share of the gap that sits at end tokens, against that of the others."""
        tokens, last_N = variant.tokens, variant.tokens.last_N
        if variant.setup.without_ends or variant.setup.shift or last_N.sum() < _FEWEST_ENDS:
            return None
        missing_N = ~np.isfinite(tokens.difference_N)
        if missing_N[last_N].mean() >= _SHARE and missing_N[~last_N].mean() < 1 / _TIMES:
            return Hypothesis(1.0, {"missing": float(missing_N[last_N].mean())})
        share = tokens.share_at(last_N)
        if share < _SHARE or tokens.mean_at(last_N) < _TIMES * tokens.mean_at(~last_N):
            return None
        return Hypothesis(share, {"share": share})

    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """Leave end tokens out; where they are strange themselves, say how."""
        if "strange" in hypothesis.facts:
            return ExperimentResult(
                told="; ".join(_strange(experiments, variant.tokens)), details=_ends(experiments)
            )
        tokens, last_N = variant.tokens, variant.tokens.last_N
        missing = float(hypothesis.facts.get("missing", 0.0))
        details = _ends(experiments)
        if missing:
            told = f"{missing:.0%} of the end tokens have no log-probability on one of the sides"
            after = None
        else:
            told = (
                f"end tokens are {last_N.mean():.1%} of the tokens and carry "
                f"{tokens.share_at(last_N):.0%} of the gap"
            )
            after = Variant(replace(variant.setup, without_ends=True), tokens.where(~last_N))
        return ExperimentResult(
            told=told,
            after=after,
            confidence="proven" if details or missing else "likely",
            details=details,
            figures={"ends": float(last_N.sum()), "share": tokens.share_at(last_N)},
        )


def _ends(experiments: Experiments) -> tuple[str, ...]:
    """The end tokens of both sides, where they differ."""
    ours, theirs = experiments.case.sampler_facts.end_ids, experiments.case.learner_facts.end_ids
    differ = set(ours) != set(theirs)
    return (f"end ids: sampler {list(ours)}, learner {list(theirs)}",) if differ else ()


def _strange(experiments: Experiments, tokens: Tokens) -> list[str]:
    """What is wrong with the responses' last tokens, whatever probability they are given.

    What a record has left out nobody can tell, and where an end was not to be heeded none is.
    """
    case, ids_N = experiments.case, tokens.ids_N
    sampler, learner = (set(each.end_ids) for each in (case.sampler_facts, case.learner_facts))
    if ids_N is None or case.sampler.is_record or case.sampling.ignore_end or not learner:
        return []
    last_B = ids_N[tokens.starts_B + tokens.lengths_B - 1]
    known_B = np.isin(last_B, [*sampler, *learner, *case.sampling.stop_ids])
    context = min(case.sampler_facts.context or 2**31, case.learner_facts.context or 2**31)
    room_B = np.minimum(case.sampling.max_tokens, context - tokens.prompt_lengths_B - 2)
    foreign = sampler - learner - set(case.sampling.stop_ids)
    inside_N = np.ones(ids_N.size, np.bool_)
    inside_N[tokens.starts_B + tokens.lengths_B - 1] = False
    passed_N = inside_N & np.isin(ids_N, [*learner])
    found = {
        "have ended, and their last token is no end token": tokens.ended_B & ~known_B,
        "stop before the limit without an end token": ~known_B
        & ~tokens.ended_B
        & (tokens.lengths_B < room_B),
        "go on behind a token that ends a response for the learner": np.bincount(
            tokens.rows_N, weights=passed_N, minlength=last_B.size
        )
        > 0,
        "end with a token that is no end for the learner": np.isin(last_B, [*foreign])
        & tokens.ended_B,
    }
    least = max(_FEWEST, _OFTEN * last_B.size)
    return [
        f"{int(such_B.sum())} of {last_B.size} responses {words}"
        for words, such_B in found.items()
        if such_B.sum() >= least
    ]
