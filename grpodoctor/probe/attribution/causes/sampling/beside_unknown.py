"""A sampling setting acts next to a difference of the models that nothing explains.

Old weights that no checkpoint shows move every token by an unknown amount. A penalty or a
temperature next to them leaves most of the gap, so its experiment alone does not name it. But the
part of the gap that it causes has a known form.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis, Identity
from grpodoctor.probe.attribution.causes.sampling.temperature import Temperature
from grpodoctor.probe.attribution.causes.sampling.truncation import (
    Truncation,
    describe_truncation,
    guessed,
    one_sided,
)
from grpodoctor.probe.attribution.columns.token_biases import deviating_tokens, missing_tokens
from grpodoctor.probe.attribution.edit_causes.computed_causes import cause_of
from grpodoctor.probe.attribution.edits import Edit, EditFamily
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.search.edit_gaps import regression
from grpodoctor.probe.attribution.search.edit_search import SAMPLING, EditSearch
from grpodoctor.probe.attribution.search.edit_trials import refined_numbers
from grpodoctor.probe.attribution.search.own_scores import differ, own_scores
from grpodoctor.probe.attribution.search.unknown_rest import CHANCE, Part, part_of
from grpodoctor.probe.attribution.tokens import Floats, falls, significant
from grpodoctor.probe.attribution.variant import Variant
from grpodoctor.probe.attribution.wording.edit_words import described
from grpodoctor.probe.contract import Processing

_MOST_LEFT = 0.4
"""Share of what generation adds to a gap that a setting may leave: its effect is computed in the
learner, whose model differs."""
_RIVAL = 2.0
"""Another cause that leaves less than this multiple of what the best one leaves fits, too."""
_OFF = 0.25
"""Difference from 1 of the fitted size of an effect in what generation adds."""
_CLIP = 3.0
"""Upper bound on |Δlogp| per token."""
_LEAST_FALL = 0.1
"""Share of the gap that a setting must remove if only the gap shows it."""
_LEAST_KEPT = 0.95
"""Share of the tokens that a setting must allow: with other weights, it excludes other tokens."""
_ONE_SIDED = 0.98
"""Share of differing tokens that generation raises, from which it may truncate."""
_TRUNCATION = Identity(Truncation.id, Truncation.title, Truncation.remedies)
_TYPICAL = "typical-p"
_REFINED, _REFINEMENTS = 4, 2
"""Settings whose numbers are refined, and how often."""
_WORTH = 0.02
"""Share of the variance from which a number is refined."""


@dataclass(frozen=True, slots=True)
class _Found:
    """A setting, and what it explains."""

    identity: Identity
    words: str
    after: Variant
    """The gap next to it."""
    left: float
    """Share of what it was compared with that it leaves."""
    size: float
    """Fitted size of its effect as a multiple of the predicted one."""


class BesideUnknown(Cause):
    """Likely, never proven: the rest of the gap is unknown, and may contain anything.

    If the sampler can score its tokens, what it reports minus these scores has no difference of
    weights in it. This is added to the learner's values: a setting must explain it as it would
    explain the gap of two equal models. A sampler whose own scores equal what it reports has no
    such setting.

    Otherwise the gap is regressed on the effect of each setting; see `unknown_rest`. The sampled
    tokens must be likelier with the setting, too. Temperatures are not tried then: a model with
    other weights is flatter or sharper in the same way.
    """

    id = "beside-unknown"
    title = "The sampler changes its logits next to an unknown difference"
    remedies = ("Disable penalties, biases and truncation in the sampler.",)
    peels = False

    def hypothesize(self, experiments: Experiments, variant: Variant) -> Hypothesis | None:
        """A gap above rounding remains, and the learner can compute differently."""
        setup = variant.setup
        other = setup.swapped or setup.rescored or setup.shift or setup.transform or setup.behind
        if other or not setup.learner.kind.can_alter:
            return None
        return Hypothesis(0.95) if experiments.exceeds_rounding(variant) else None

    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """Find the setting in what generation adds, or else in the gap itself."""
        if variant.setup.replay:  # edits are scored with the learner's own experts
            variant = experiments.vary(variant, replay=False)
        own_N = None
        if variant.setup.processing == Processing():
            own_N = own_scores(experiments, variant)
        if own_N is None:
            return _in_gap(experiments, variant)
        if not differ(experiments, variant, own_N, variant.tokens.sampler_N):
            return None
        return _in_generation(experiments, variant, own_N)


def _families(experiments: Experiments, variant: Variant) -> list[EditFamily]:
    """The settings of sampling that the learner can imitate and that no named cause has."""
    listed = experiments.what_ifs(variant.setup.learner)
    families = [each for each in listed if each.name in SAMPLING]
    families += [*deviating_tokens(variant.tokens), *missing_tokens(variant.tokens)]
    used = {name for name, _ in variant.setup.edits}
    return [
        each
        for each in families
        if each.name not in used and cause_of(each.edit(each.values[0])).id not in experiments.named
    ]


def _in_generation(
    experiments: Experiments, variant: Variant, own_N: Floats
) -> ExperimentResult | None:
    """The setting that explains the sampler's reported values minus its own scores."""
    tokens = variant.tokens
    as_equal = tokens.with_sampler(tokens.learner_N + (tokens.sampler_N - own_N))
    equal = Variant(variant.setup, as_equal)
    if not experiments.is_loud(equal.gap):
        return None
    found = [
        *_edited(experiments, equal),
        *_heated(experiments, equal),
        *_truncated(experiments, equal),
    ]
    found = sorted((each for each in found if _fits(equal, each)), key=lambda each: each.left)
    if not found:
        return None
    best = found[0]
    rivals = [
        each
        for each in found[1:]
        if each.identity.id != best.identity.id and each.left < _RIVAL * best.left
    ]
    after = replace(best.after, tokens=replace(best.after.tokens, sampler_N=tokens.sampler_N))
    what = (
        f"what the sampler reports differs from its own scores of the same tokens, and "
        f"{best.words} explains {1 - best.left:.0%} of this"
    )
    return _result(variant, replace(best, after=after), what, rivals)


def _fits(equal: Variant, found: _Found) -> bool:
    kept_N = found.after.tokens.finite_N
    return (
        found.left <= _MOST_LEFT
        and kept_N.sum() >= _LEAST_KEPT * equal.tokens.finite_N.sum()
        and abs(found.size - 1) <= _OFF
        and falls(equal.tokens.where(kept_N), found.after.tokens.where(kept_N))
    )


def _edited(experiments: Experiments, equal: Variant) -> Iterator[_Found]:
    families = _families(experiments, equal)
    for each in EditSearch(experiments, equal).best(families) if families else ():
        yield _found(equal, each.after, _identity(each.edit), described(each.edit))


def _heated(experiments: Experiments, equal: Variant) -> Iterator[_Found]:
    cause = Temperature()
    hypothesis = cause.hypothesize(experiments, equal)
    if cause.id in experiments.named or hypothesis is None:
        return
    outcome = cause.experiment(experiments, equal, hypothesis)
    if outcome is not None and outcome.after is not None:
        words = f"temperature {outcome.after.setup.processing.temperature:.3g}"
        identity = Identity(cause.id, cause.title, cause.remedies)
        yield _found(equal, outcome.after, identity, words)


def _truncated(experiments: Experiments, equal: Variant) -> Iterator[_Found]:
    """Truncations, if generation only raises values.

    The learner's support is another one, so some of the sampled tokens are outside of it.
    """
    if one_sided(equal.tokens) < _ONE_SIDED or Truncation.id in experiments.named:
        return
    now = equal.setup.processing
    cuts = list(dict.fromkeys(guessed(equal.tokens, now, equal.tokens.learner_N)))
    experiments.score_all(equal.setup.learner, cuts, equal.setup)
    for cut in cuts:
        after = experiments.vary(equal, processing=cut)
        yield _found(equal, after, _TRUNCATION, describe_truncation(cut))


def _found(equal: Variant, after: Variant, identity: Identity, words: str) -> _Found:
    if identity.id == _TYPICAL and one_sided(equal.tokens) >= _ONE_SIDED:
        identity = _TRUNCATION  # the form of the support hardly shows next to other weights
    moved_N = after.tokens.learner_N - equal.tokens.learner_N
    at_N = equal.tokens.finite_N
    size, _ = regression(-equal.tokens.difference_N[at_N], moved_N[at_N], _CLIP)
    return _Found(identity, words, after, after.gap / equal.gap, size)


def _identity(edit: Edit) -> Identity:
    cause = cause_of(edit)
    return Identity(cause.id, cause.title.format(side="sampler"), (cause.remedy,))


def _in_gap(experiments: Experiments, variant: Variant) -> ExperimentResult | None:
    """The setting whose effect the gap contains."""
    tried = _parts(experiments, variant)
    least = math.log(max(len(tried), 1) / CHANCE)
    at_N = variant.tokens.drawn_N
    found = [
        (part, _Found(_identity(edit), described(edit), after, 1 - part.share, part.size))
        for edit, part, after in tried
        if part.is_accepted(len(tried))
        and _reduces(variant, after)
        and _nats(after.tokens.learner_N - variant.tokens.learner_N, at_N) > least
    ]
    if not found:
        return None
    found.sort(key=lambda pair: pair[1].left)
    part, best = found[0]
    rivals = [
        each
        for other, each in found[1:]
        if each.identity.id != best.identity.id and _RIVAL * other.share > part.share
    ]
    what = (
        f"the gap contains the effect of {best.words}: it explains {part.share:.0%} of what the "
        f"tokens' own probabilities do not predict (z = {part.z:.1f}), and its fitted size is "
        f"{part.size:.2f} ± {part.error:.2f} times the predicted one"
    )
    return _result(variant, best, what, rivals)


def _reduces(variant: Variant, after: Variant) -> bool:
    """Whether the whole gap falls, too.

    Other prompts are repeated by one side, which looks like a penalty apart from the controls.
    """
    is_less = after.gap <= (1 - _LEAST_FALL) * variant.gap
    return is_less and significant(variant.tokens, after.tokens)


def _nats(moved_N: Floats, at_N: np.ndarray) -> float:
    """How much likelier the sampled tokens are after a change; one that excludes them is not."""
    return float(np.maximum(moved_N[at_N], -_CLIP).sum())


def _parts(experiments: Experiments, variant: Variant) -> list[tuple[Edit, Part, Variant]]:
    """Each tried setting as a part of the gap: the listed values, and those around the best."""
    families = _families(experiments, variant)
    wanted = [(family, value) for family in families for value in family.values]
    tried: list[tuple[Edit, Part, Variant]] = []
    losses: dict[EditFamily, dict[float, float]] = {}
    for _ in range(1 + _REFINEMENTS):
        edits = [family.edit(value) for family, value in wanted]
        whole = [(*variant.setup.edits, edit) for edit in edits]
        scores = experiments.score_edits(variant.setup, whole)
        for (family, value), edit, all_edits, score_N in zip(
            wanted, edits, whole, scores, strict=True
        ):
            if score_N is None:
                continue
            learner_N = score_N[: variant.tokens.learner_N.size]
            part = part_of(variant.tokens, learner_N - variant.tokens.learner_N)
            if part is None:
                continue
            after = Variant(
                replace(variant.setup, edits=all_edits), variant.tokens.with_learner(learner_N)
            )
            tried.append((edit, part, after))
            if family.kind == "number":
                losses.setdefault(family, {})[float(value)] = -part.share
        ranked = sorted(losses, key=lambda family: min(losses[family].values()))[:_REFINED]
        wanted = [
            (family, value)
            for family in ranked
            if min(losses[family].values()) < -_WORTH
            for value in refined_numbers(losses[family])
        ]
    return tried


def _result(variant: Variant, best: _Found, what: str, rivals: list[_Found]) -> ExperimentResult:
    kept_N = best.after.tokens.finite_N
    before, after = variant.tokens.where(kept_N).gap, best.after.gap
    removed = max(0.0, 1 - after / before) if before > 0 else 0.0
    return ExperimentResult(
        summary=(
            f"{what}. With it in the learner, k3 changes from {before:.2g} to {after:.2g} nats per "
            f"token; the other {1 - removed:.0%} of the gap are unknown"
        ),
        explained=removed,
        confidence="likely",
        details=(best.words, *(f"also fits: {each.words}" for each in rivals[:3])),
        figures={"size": best.size, "gap_before": before, "gap_after": after},
        identity=best.identity,
    )
