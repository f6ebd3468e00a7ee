"""A processor changes what is drawn, but not the reported log-probabilities."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis, Identity
from grpodoctor.probe.attribution.causes.sampling.requested_processors import (
    asked,
    identity_of,
)
from grpodoctor.probe.attribution.causes.sampling.wrong_sampler import (
    STANDARD_ERRORS,
    drawn_test,
    gap_nats,
    largest_test,
    likeliest_differ,
)
from grpodoctor.probe.attribution.causes.tokens.eos_handling import (
    ends_are_dropped,
    without_dropped_ends,
)
from grpodoctor.probe.attribution.columns.token_biases import (
    biased_tokens,
    choice_nats,
    token_biases,
)
from grpodoctor.probe.attribution.edit_causes.computed_causes import cause_of
from grpodoctor.probe.attribution.edits import Edit, EditFamily, Edits
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.search.edit_trials import refined_numbers
from grpodoctor.probe.attribution.tokens import Tokens
from grpodoctor.probe.attribution.variant import Variant
from grpodoctor.probe.attribution.wording.edit_words import described
from grpodoctor.probe.contract import Processing

PROCESSORS = (
    *("repetition_penalty", "presence_penalty", "frequency_penalty", "min_tokens"),
    *("part_repetition", "part_presence", "part_frequency", "recent_repetition"),
    *("dry_penalty", "no_repeat_ngram"),
)
_HINT = 2.5
"""Standard errors from which processors are tried; about 4 % of sound pairs reach it by chance in
one of four statistics."""
_HINT_NATS = 2.5
"""The same for a bias of one token: 8 % of sound pairs reach it."""
_CHANCE = 1e-4
"""Probability that a sound sampler is accused."""
_EDGE = 1e-4
"""Added to a top-p, so that rounding excludes no sampled token."""
_OF_NUMBER = 0.1
"""Share of the largest deviation that an inexact number may leave."""
RIVAL_NATS = 3.0
"""Nats of likelihood within which two processors explain the tokens equally well."""


@dataclass(frozen=True, slots=True)
class _Likelihood:
    """An edit, and how much likelier the tokens are under it."""

    edit: Edit
    nats: float


class SamplingProcessors(Cause):
    """Proven by the likelihood of the tokens.

    If tokens are drawn from the learner's distribution, the ratio of their probabilities under any
    other distribution has mean 1. By Markov's inequality, it exceeds K/a with probability a / K, so
    the best of K processors is accused wrongly with probability a at most. Biases and bans concern
    tokens that the responses themselves suggest, so any of the vocabulary's counts among the K.
    """

    id = "sampling-processors"
    title = "The sampler changes its logits before it draws"
    remedies = ("Disable penalties, biases and minimum lengths in the sampler.",)
    peels = False
    when = "always"

    def hypothesize(self, experiments: Experiments, variant: Variant) -> Hypothesis | None:
        """The tokens deviate from the learner's probabilities, although both sides agree."""
        if not variant.setup.learner.kind.can_alter or experiments.exceeds_rounding(variant):
            return None
        if set(asked(experiments)) - set(variant.setup.edits):
            return Hypothesis(0.95, {"asked": 1.0})
        test = drawn_test(experiments, variant)
        if test is None:
            return None
        if abs(test.z) >= _HINT:
            return Hypothesis(0.95, {"z": test.z, "of": test.name})
        biases = token_biases(without_dropped_ends(experiments, variant.tokens))
        chance = choice_nats(experiments.case.learner_facts.vocab_size, 1)
        if not biases or biases[0].nats < chance + _HINT_NATS:
            return None
        return Hypothesis(0.95, {"z": 0.0, "of": ""})

    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """Compare the likelihood of the tokens under each processor."""
        if "asked" in hypothesis.facts:
            return _requested(experiments, variant)
        tried = _likelihoods(experiments, variant)
        least = math.log(max(len(tried), 1) / _CHANCE) + gap_nats(variant.tokens)
        ranked = sorted(tried, key=lambda each: -each.nats)
        if not ranked or ranked[0].nats < least:
            return None
        best, cause = ranked[0], cause_of(ranked[0].edit)
        others = temperature_nats(variant.tokens), _truncation_nats(experiments, variant)
        if max(others) > best.nats - RIVAL_NATS:
            return None  # `wrong-sampler` reports it: a processor would be a mere imitation
        rivals = [
            each
            for each in ranked[1:]
            if each.nats > best.nats - RIVAL_NATS and cause_of(each.edit).id != cause.id
        ]
        z, of = float(hypothesis.facts["z"]), hypothesis.facts["of"]
        doubts = [f"also fits: {described(each.edit)}" for each in rivals[:3]]
        doubts += _deviation_under(experiments, variant, best.edit, z)
        return ExperimentResult(
            summary=(
                f"the reported log-probabilities lack it, but the tokens follow "
                f"{described(best.edit)}: they are {best.nats:.0f} nats likelier under it "
                f"(chance: below {least:.0f})" + (f"; {of} has z = {z:.1f}" if of else "")
            ),
            confidence="likely" if doubts else "proven",
            details=tuple(doubts),
            figures={"z": z, "nats": best.nats, "undeclared": 1.0},
            identity=Identity(cause.id, cause.title.format(side="sampler"), (cause.remedy,)),
        )


def _deviation_under(
    experiments: Experiments, variant: Variant, edit: Edit, before: float
) -> list[str]:
    """What a processor leaves of the deviation, in words; empty if the tokens follow it.

    The likelihood only excludes that no processor is at work. Another one, such as a rule that is
    in no list, makes tokens likelier under the nearest one in the list, but they do not follow it.
    """
    setup = variant.setup
    processing = Processing.of(experiments.case.sampling)
    under = experiments.columns(setup.learner, processing, (*setup.edits, edit))
    under = under.where(np.isfinite(under.learner_N))
    test = largest_test(under, is_fine=likeliest_differ(experiments, variant))
    if test is None or abs(test.z) <= STANDARD_ERRORS + _OF_NUMBER * abs(before):
        return []
    return [f"the tokens do not quite follow it: {test.name} has z = {test.z:.1f} under it"]


def _requested(experiments: Experiments, variant: Variant) -> ExperimentResult | None:
    """The likelihood of the tokens under the requested processors, which are known to be applied.

    They are no choice among many, so chance alone bounds the likelihood.
    """
    edits = asked(experiments)
    nats = _nats(experiments, variant, [edits])[0]
    if nats is None:
        return None
    least = math.log(1 / _CHANCE) + gap_nats(variant.tokens)
    shown = " and ".join(map(described, edits))
    is_shown = nats >= least
    lack = "the reported log-probabilities lack it" if is_shown else "too few tokens show it"
    return ExperimentResult(
        summary=(
            f"the sampling settings have {shown}, and {lack}: the tokens are {nats:.2g} nats "
            f"likelier under it (chance: below {least:.0f})"
        ),
        confidence="proven" if is_shown else "possible",
        figures={"nats": nats},
        identity=identity_of(edits),
    )


def temperature_nats(tokens: Tokens) -> float:
    """How much likelier the tokens are under the best other temperature; 0 if there is none."""
    if tokens.at_temperature_NT is None:
        return 0.0
    at = tokens.drawn_N
    nats_T = (tokens.at_temperature_NT[at] - tokens.learner_N[at, None]).sum(axis=0)
    return float(np.nanmax(nats_T, initial=0.0))


def _truncation_nats(experiments: Experiments, variant: Variant) -> float:
    """How much likelier the tokens are under the narrowest top-k or top-p that contains them."""
    tokens, at = variant.tokens, variant.tokens.drawn_N
    if tokens.rank_N is None or tokens.mass_above_N is None:
        return 0.0
    plain = Processing.of(experiments.case.sampling)
    narrow = [
        replace(plain, top_k=int(tokens.rank_N[at].max()) + 1),
        replace(plain, top_p=min(1.0, float(tokens.mass_above_N[at].max()) + _EDGE)),
    ]
    scores = experiments.score_all(variant.setup.learner, narrow, variant.setup)
    gains = [(score_N[: at.size] - tokens.learner_N)[at] for score_N in scores]
    return max(float(gain_N[np.isfinite(gain_N)].sum()) for gain_N in gains)


def _likelihoods(experiments: Experiments, variant: Variant) -> list[_Likelihood]:
    """The likelihood of the sampled tokens under each processor, relative to none."""
    families = [
        family
        for family in experiments.what_ifs(variant.setup.learner)
        if family.name in PROCESSORS
        and not (family.name == "min_tokens" and ends_are_dropped(experiments, variant.tokens))
    ]
    families += biased_tokens(without_dropped_ends(experiments, variant.tokens))
    tried: list[_Likelihood] = []
    by_family: dict[EditFamily, dict[float, float]] = {}
    wanted: list[tuple[EditFamily, Any]] = [
        (family, value) for family in families for value in family.values
    ]
    for _ in range(2):  # the listed values, then those around the best ones
        found = _scored(experiments, variant, wanted)
        tried += [each for each, _, _ in found]
        for each, family, value in found:
            if family.kind == "choice":
                continue
            by_family.setdefault(family, {})[value] = -each.nats
        wanted = [
            (family, value)
            for family, losses in by_family.items()
            if min(losses.values()) < 0 and family.kind == "number"
            for value in refined_numbers(losses)
        ]
    return tried


def _choice_nats(experiments: Experiments, edit: Edit) -> float:
    """The logarithm of the number of biases among which the tokens themselves chose one."""
    tokens = len(json.loads(edit[1])) if edit[0] == "logit_bias" else 0
    return choice_nats(experiments.case.learner_facts.vocab_size, tokens)


def _scored(
    experiments: Experiments, variant: Variant, wanted: Sequence[tuple[EditFamily, Any]]
) -> list[tuple[_Likelihood, EditFamily, Any]]:
    edits = [
        family.edit(int(value) if family.kind == "integer" else value) for family, value in wanted
    ]
    gains = _nats(experiments, variant, [(edit,) for edit in edits])
    found = []
    for (family, value), edit, nats in zip(wanted, edits, gains, strict=True):
        if nats is not None:
            likelihood = _Likelihood(edit, nats - _choice_nats(experiments, edit))
            found.append((likelihood, family, value))
    return found


def _nats(
    experiments: Experiments, variant: Variant, wanted: Sequence[Edits]
) -> list[float | None]:
    """How much likelier the tokens are under edits; None where these are impossible."""
    requested = Processing.of(experiments.case.sampling)
    setup = replace(variant.setup, processing=requested, learner_map=None)
    plain_N, *scores = experiments.score_edits(setup, [(), *wanted])
    if plain_N is None:
        return [None] * len(wanted)
    at = variant.tokens.drawn_N & np.isfinite(plain_N[: variant.tokens.drawn_N.size])
    gains = [
        None if score_N is None else float((score_N[: at.size][at] - plain_N[: at.size][at]).sum())
        for score_N in scores
    ]
    return [gain if gain is not None and math.isfinite(gain) else None for gain in gains]
