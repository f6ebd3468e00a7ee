"""One side computes the same weights differently."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis, Identity
from grpodoctor.probe.attribution.causes.computation.pair_result import result_of
from grpodoctor.probe.attribution.columns.token_biases import deviating_tokens, missing_tokens
from grpodoctor.probe.attribution.edit_causes.computed_causes import cause_of
from grpodoctor.probe.attribution.edits import EditFamily
from grpodoctor.probe.attribution.engine_files import read_config
from grpodoctor.probe.attribution.engine_variants import model_path as path_of
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.search.edit_search import Candidate
from grpodoctor.probe.attribution.search.selection import agreement
from grpodoctor.probe.attribution.search.site_search import SiteSearch
from grpodoctor.probe.attribution.tokens import significant
from grpodoctor.probe.attribution.variant import Variant
from grpodoctor.probe.attribution.wording.edit_words import described
from grpodoctor.probe.attribution.wording.naming import ALSO_FITS
from grpodoctor.probe.severity import EXACT
from grpodoctor.support.numbers import rounded_down

_PAD_MULTIPLES = (1, 8, 16, 32, 64)
_SHOWN = 3
_OTHERS = 5
"""Further edits from which the search may start, if the best one is not among several causes."""


class WhatIf(Cause):
    """Proven by letting the learner compute differently until it agrees with the sampler."""

    id = "what-if"
    title = "One side computes the same weights differently"
    remedies = ("Compare the settings of both engines.",)
    least = 0.3
    is_surrogate = True
    is_symmetric = True
    repeats = True
    needs_steady = True

    def hypothesize(self, experiments: Experiments, variant: Variant) -> Hypothesis | None:
        """There is a gap above rounding, and an engine that can compute differently."""
        if not variant.setup.learner.kind.can_alter or not experiments.exceeds_rounding(variant):
            return None
        return Hypothesis(0.4)

    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """Try all edits that the learner's model allows."""
        search = SiteSearch(experiments, variant)
        families = _within_prompts(variant, experiments.what_ifs(variant.setup.learner))
        families += [*_padding(variant), *_padded_positions(variant, families)]
        families += _cutoffs(variant)
        families += [*deviating_tokens(variant.tokens), *missing_tokens(variant.tokens)]
        candidates = search.best(families)
        experiments.excluded.update(search.excluded)
        if search.pair is not None:
            return result_of(experiments, variant, search.pair)
        if not candidates:
            return None
        best, rivals = _likeliest(candidates, experiments)
        others = [each for each in _by_cause(candidates) if each.edit != best.edit]
        return replace(
            _result(variant, best, rivals, candidates),
            alternatives=tuple(
                _result(variant, each, rivals_of(each, candidates), candidates)
                for each in others[:_OTHERS]
            ),
        )


def _by_cause(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The best edit of each cause, smallest gap first."""
    best: dict[str, Candidate] = {}
    for candidate in candidates:
        best.setdefault(cause_of(candidate.edit).id, candidate)
    return list(best.values())


def _result(
    variant: Variant,
    best: Candidate,
    rivals: Sequence[Candidate],
    candidates: Sequence[Candidate],
) -> ExperimentResult:
    """What one edit explains, next to others that explain as much."""
    cause, side, other_side = cause_of(best.edit), *variant.setup.sides
    fits = tuple(f"{ALSO_FITS}{described(other.edit)}" for other in rivals[:_SHOWN])
    verb = agreement(variant, best.after)
    who = "a reference engine" if variant.setup.swapped else f"the {other_side}"
    return ExperimentResult(
        summary=(
            f"with {described(best.edit)}, {who} {verb} the {side}: k3 falls from "
            f"{variant.gap:.2g} to {best.after.gap:.2g} nats per token"
        ),
        after=best.after,
        confidence="likely" if rivals else "proven",
        details=(described(best.edit), *fits),
        figures={"undeclared": 1.0},
        identity=Identity(cause.id, cause.title.format(side=side), (cause.remedy,)),
        rivals=tuple(other.edit for other in similar_to(best, candidates)),
    )


def _likeliest(
    candidates: list[Candidate], experiments: Experiments
) -> tuple[Candidate, list[Candidate]]:
    """The best candidate, and others that fit as well.

    Of edits that fit equally well, a usual value is likelier than a fitted number: a multiplier
    that is ignored rather than embeddings times 0.6, which has the same effect. If a gap remains,
    the number was fitted to a part of its cause, too, so it may even fit a little better.
    """
    best, others = candidates[0], rivals_of(candidates[0], candidates)
    remains = experiments.is_loud(best.after.gap)
    absorbed = [
        each
        for each in similar_to(best, candidates)
        if remains and each.left < _ABSORBED * best.left
    ]
    usual = next((each for each in (*others, *absorbed) if each.is_usual), None)
    if best.is_usual or usual is None:
        return best, others
    return usual, [best, *(each for each in others if each is not usual)]


def similar_to(best: Candidate, candidates: Sequence[Candidate]) -> list[Candidate]:
    """Other causes that leave about as much of the gap as one."""
    return [
        other
        for other in candidates
        if cause_of(other.edit).id != cause_of(best.edit).id
        and other.left < max(_SIMILAR * best.left, EXACT)
    ]


def rivals_of(best: Candidate, candidates: Sequence[Candidate]) -> list[Candidate]:
    """Other causes that explain the gap as well as one, within chance.

    What two edits leave below the rounding of float32 tells nothing about them.
    """
    return [
        other
        for other in similar_to(best, candidates)
        if other.left <= EXACT or not significant(other.after.tokens, best.after.tokens)
    ]


_SIMILAR = 3.0
"""A rival that leaves more than this multiple of the best one's gap is no rival."""
_ABSORBED = 1.5
"""The same for a usual value next to a number that was fitted to a part of another cause."""


def _widths(variant: Variant) -> list[int]:
    """Numbers of tokens to which a batch of the prompts may be padded; none if all are equal."""
    lengths_B = variant.tokens.prompt_lengths_B
    if lengths_B.size == 0 or lengths_B.min() == lengths_B.max():
        return []
    longest = int(lengths_B.max())
    return list(dict.fromkeys(-(-longest // multiple) * multiple for multiple in _PAD_MULTIPLES))


def _within_prompts(variant: Variant, families: Sequence[EditFamily]) -> list[EditFamily]:
    """The edits, without places beyond all prompts where positions may jump."""
    longest = int(variant.tokens.prompt_lengths_B.max(initial=0))
    jumps = [family for family in families if family.name == "position_jump"]
    kept = [replace(each, values=tuple(v for v in each.values if v < longest)) for each in jumps]
    others = [family for family in families if family.name != "position_jump"]
    return [*others, *(each for each in kept if each.values)]


def _padded_positions(variant: Variant, known: list[EditFamily]) -> list[EditFamily]:
    """Positions that count the padding; rotary positions would not show it."""
    is_absolute = any(family.name == "position_start" for family in known)
    widths = _widths(variant) if is_absolute else []
    return [EditFamily("padded_positions", tuple(widths), "integer")] if widths else []


def _cutoffs(variant: Variant) -> list[EditFamily]:
    """Probabilities below which no token may have been drawn: those of the rarest sampled ones."""
    tokens = variant.tokens
    at_N = tokens.finite_N & np.isfinite(tokens.learner_N)
    if not at_N.any():
        return []
    least = np.exp(np.quantile(tokens.learner_N[at_N], _RARE))
    values = {
        rounded_down(far * p, digits) for p in least for far in _FARTHER for digits in _DIGITS
    }
    return [EditFamily("epsilon_cutoff", tuple(sorted(values)), "number")]


_RARE = (0.0, 0.005)
"""Quantiles of the sampled tokens: next to another fault a few are less likely in the learner."""
_FARTHER, _DIGITS = (1.0, 0.8), (1, 2, 3)


def _padding(variant: Variant) -> list[EditFamily]:
    """Attended padding up to the longest prompt, with the tokens that engines pad with."""
    widths = _widths(variant)
    if not widths:
        return []
    config = read_config(path_of(variant.setup.learner))
    tokens = [config.get(f"{name}_token_id") for name in ("pad", "eos", "bos")] + [0]
    known = dict.fromkeys(token for token in tokens if isinstance(token, int))
    values = tuple([token, width] for token in known for width in widths)
    return [EditFamily("padding", values, "choice")]
