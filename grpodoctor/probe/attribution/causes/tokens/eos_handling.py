"""The engines disagree only about the token that ends a response."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis, Identity
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.tokens import Tokens
from grpodoctor.probe.attribution.variant import Variant
from grpodoctor.support.numbers import part_of

_FEWEST_ENDS = 8
_FEWEST = 4
_OFTEN = 0.1
"""Smallest share of responses with an unexpected end; fewer may have been interrupted."""
_NO_END = "are marked as ended, but their last token is not an end token"
_DROPPED = "stop before the limit without an end token"
_MOSTLY = 0.9
"""Share of the gap at end tokens that the tokens on which the sides disagree must carry."""
_SHARE, _TIMES = 0.5, 10.0
"""Smallest share of the gap at end tokens, and smallest ratio to the gap of other tokens."""


class EosHandling(Cause):
    """Detected when the gap, or missing values, concentrate on end tokens."""

    id = "eos-handling"
    title = "The token that ends a response is treated differently"
    remedies = (
        "Keep the end token in the response on both sides, with its log-probability and in the "
        "loss mask: one side drops it, replaces it with padding or scores a different id.",
        "Compare the end ids of both engines: eos_token_id in config.json, "
        "generation_config.json and the tokenizer, and the stop ids given to the sampler.",
    )
    cost = 0
    least = _SHARE
    when = "always"

    def hypothesize(self, experiments: Experiments, variant: Variant) -> Hypothesis | None:
        """The gap concentrates on end tokens, or responses end unexpectedly."""
        at_ends = self._at_ends(variant)
        if at_ends is None and _strange(experiments, variant.tokens):
            return Hypothesis(0.2, {"strange": 1.0})
        return at_ends

    def _at_ends(self, variant: Variant) -> Hypothesis | None:
        """Compare the gap at end tokens with the gap at other tokens."""
        tokens, last_N = variant.tokens, variant.tokens.last_N
        setup = variant.setup
        # A shift leaves the last token without a value, whatever the engines do with end tokens.
        if setup.without_ends or setup.shift or setup.transform or last_N.sum() < _FEWEST_ENDS:
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
        """Exclude end tokens; if the ends themselves are unexpected, describe them."""
        if "strange" in hypothesis.facts:
            return ExperimentResult(
                summary="; ".join(_strange(experiments, variant.tokens)),
                details=_ends(experiments),
                identity=_without_end(experiments, variant.tokens),
            )
        tokens, last_N = variant.tokens, variant.tokens.last_N
        missing = float(hypothesis.facts.get("missing", 0.0))
        details = _ends(experiments)
        if missing:
            summary = f"{missing:.0%} of the end tokens have no log-probability on one side"
            after = None
        else:
            summary = (
                f"end tokens are {last_N.mean():.1%} of the tokens and carry "
                f"{tokens.share_at(last_N):.0%} of the gap"
            )
            after = Variant(replace(variant.setup, without_ends=True), tokens.where(~last_N))
        return ExperimentResult(
            summary=summary,
            after=after,
            confidence="proven" if missing or _at_other_ends(experiments, tokens) else "likely",
            details=details,
            figures={"ends": float(last_N.sum()), "share": tokens.share_at(last_N)},
        )


def _at_other_ends(experiments: Experiments, tokens: Tokens) -> bool:
    """Whether the gap at end tokens is at tokens that end responses on one side only.

    At a token that ends responses on both sides, a bias or a penalty causes the same gap.
    """
    if tokens.ids_N is None:
        return False
    facts = experiments.case.sampler_facts, experiments.case.learner_facts
    ours, theirs = (set(each.end_ids) for each in facts)
    other_N = tokens.last_N & np.isin(tokens.ids_N, [*(ours ^ theirs)])
    return bool(tokens.terms_N[other_N].sum() > _MOSTLY * tokens.terms_N[tokens.last_N].sum())


def _without_end(experiments: Experiments, tokens: Tokens) -> Identity | None:
    """The name of responses that lack an end token, if nothing else is wrong with their ends.

    Whatever stops generation before an end token is drawn leaves the same responses.
    """
    faults = _faulty_ends(experiments, tokens)
    if not faults or faults.keys() - {_DROPPED, _NO_END}:
        return None
    return Identity(
        EosHandling.id,
        "Responses end without an end token: it is dropped, or generation is stopped",
        (
            "Check stop strings, time limits, aborted and preempted requests, and limits of the "
            "context: they end responses without an end token.",
            *EosHandling.remedies,
        ),
    )


def _ends(experiments: Experiments) -> tuple[str, ...]:
    """The end ids of both sides, if they differ."""
    ours, theirs = experiments.case.sampler_facts.end_ids, experiments.case.learner_facts.end_ids
    differ = set(ours) != set(theirs)
    return (f"end ids: sampler {list(ours)}, learner {list(theirs)}",) if differ else ()


def ends_are_dropped(experiments: Experiments, tokens: Tokens) -> bool:
    """Whether responses lack the token that ended them, so that ends look too rare."""
    return _DROPPED in _faulty_ends(experiments, tokens)


def without_dropped_ends(experiments: Experiments, tokens: Tokens) -> Tokens:
    """The tokens, with end tokens as impossible choices if responses lack them."""
    likeliest_NM, logprob_NM = tokens.likeliest_NM, tokens.likeliest_logprob_NM
    if likeliest_NM is None or logprob_NM is None or not ends_are_dropped(experiments, tokens):
        return tokens
    is_end_NM = np.isin(likeliest_NM, experiments.case.learner_facts.end_ids)
    return replace(tokens, likeliest_logprob_NM=np.where(is_end_NM, -np.inf, logprob_NM))


def _strange(experiments: Experiments, tokens: Tokens) -> list[str]:
    """Faults of the responses' last tokens in words."""
    counts, total = _faulty_ends(experiments, tokens), tokens.lengths_B.size
    return [part_of(count, total, "responses", words) for words, count in counts.items()]


def _faulty_ends(experiments: Experiments, tokens: Tokens) -> dict[str, int]:
    """How many responses have each fault of their last token, independent of its probability.

    Not applicable to recorded engines, which may have dropped end tokens, or with `ignore_end`.
    """
    case, ids_N = experiments.case, tokens.ids_N
    sampler, learner = (set(facts.end_ids) for facts in (case.sampler_facts, case.learner_facts))
    if ids_N is None or case.sampler.is_record or case.sampling.ignore_end or not learner:
        return {}
    last_B = ids_N[tokens.starts_B + tokens.lengths_B - 1]
    known_B = np.isin(last_B, [*sampler, *learner, *case.sampling.stop_ids])
    context = min(case.sampler_facts.context or 2**31, case.learner_facts.context or 2**31)
    room_B = np.minimum(case.sampling.max_tokens, context - tokens.prompt_lengths_B - 2)
    foreign = sampler - learner - set(case.sampling.stop_ids)
    inside_N = np.ones(ids_N.size, np.bool_)
    inside_N[tokens.starts_B + tokens.lengths_B - 1] = False
    passed_N = inside_N & np.isin(ids_N, [*learner])
    found = {
        _NO_END: tokens.ended_B & ~known_B,
        _DROPPED: ~known_B & ~tokens.ended_B & (tokens.lengths_B < room_B),
        "continue after a token that ends a response in the learner": np.bincount(
            tokens.rows_N, weights=passed_N, minlength=last_B.size
        )
        > 0,
        "end with a token that is not an end token of the learner": np.isin(last_B, [*foreign])
        & tokens.ended_B,
    }
    least = max(_FEWEST, _OFTEN * last_B.size)
    return {words: int(such_B.sum()) for words, such_B in found.items() if such_B.sum() >= least}
