"""One side masks real tokens, because they equal the token that pads."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis, Identity
from grpodoctor.probe.attribution.causes.tokens.prompt_ids import first_token_lost
from grpodoctor.probe.attribution.edits import Edit
from grpodoctor.probe.attribution.engine_files import read_config
from grpodoctor.probe.attribution.engine_variants import model_path
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.search.edit_gaps import EditGaps
from grpodoctor.probe.attribution.search.selection import agreement
from grpodoctor.probe.attribution.tokens import Tokens
from grpodoctor.probe.attribution.variant import Variant
from grpodoctor.probe.results.token_text import texts_of
from grpodoctor.probe.severity import EXACT

EDIT = "masked_tokens"
_SPARED = 0.01
"""Largest share of the gap where the token has not occurred yet."""
_LEAST = 0.1
"""Smallest share of the tokens that none precedes: fewer are no evidence."""
_MOST = 4
"""Tokens that are tried."""
_ALIKE = 3.0
"""Multiple of what masked tokens leave that prompts without them may leave."""
_ENDS = ("pad", "eos", "bos")


class MaskedTokens(Cause):
    """Proven by letting the learner mask the same tokens.

    A mask that is read off the ids (`ids != pad_token_id`) hides every token that equals the
    padding, such as the end of each message of a chat.
    """

    id = "masked-tokens"
    title = "One side masks real tokens"
    remedies = (
        "Build the attention mask from the lengths of prompts and responses, not from "
        "ids != pad_token_id: the padding's id often also ends messages.",
        "Give the tokenizer a padding token that no text contains.",
    )
    least = 0.5
    is_surrogate = True
    is_symmetric = True

    def hypothesize(self, experiments: Experiments, variant: Variant) -> Hypothesis | None:
        """A gap above rounding, and tokens without which there is none."""
        setup = variant.setup
        other = setup.behind or setup.own_prompts or setup.rescored or setup.shift or setup.replay
        if other or not setup.learner.kind.can_alter or not experiments.exceeds_rounding(variant):
            return None
        if _suspects(experiments, variant.tokens):
            return Hypothesis(0.45)
        return Hypothesis(0.03) if _declared(experiments, variant) else None

    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """Mask each suspect, and all declared tokens."""
        suspects = _suspects(experiments, variant.tokens)
        declared = _declared(experiments, variant)
        sets: list[tuple[int, ...]] = [(token,) for token in dict.fromkeys((*suspects, *declared))]
        sets += [declared] if len(declared) > 1 else []
        best = _best(experiments, variant, sets)
        if best is None:
            return None
        after = experiments.vary(variant, edits=(*variant.setup.edits, _edit(best)))
        side, other_side = variant.setup.sides
        verb = agreement(variant, after)
        words = _in_words(best, texts_of(experiments.case.learner.model))
        return ExperimentResult(
            summary=(
                f"with {words} masked wherever it occurs, the {other_side} {verb} the "
                f"{side}: k3 falls from {variant.gap:.2g} to {after.gap:.2g} nats per token"
            ),
            after=after,
            details=(f"{words} masked",),
            identity=_identity(experiments, variant, best, after),
        )


def _identity(
    experiments: Experiments, variant: Variant, masked: tuple[int, ...], after: Variant
) -> Identity:
    """The name of masked tokens; of a lost first token, if nothing tells the two apart.

    With relative positions, a token that nothing sees is the same as none.
    """
    side = variant.setup.sides[0]
    if _begin_alone(experiments, variant.tokens, masked):
        lost = {number: ids[1:] for number, ids in experiments.sampled_prompts.items()}
        (without,) = experiments.variants_behind(variant, [experiments.behind(lost)])
        if without.gap <= max(EXACT, _ALIKE * after.gap):
            return first_token_lost(side)
    return Identity(MaskedTokens.id, f"The {side} masks real tokens", MaskedTokens.remedies)


def _begin_alone(experiments: Experiments, tokens: Tokens, masked: tuple[int, ...]) -> bool:
    """Whether tokens begin every prompt, and occur nowhere else."""
    prompts = list(experiments.sampled_prompts.values())
    if tokens.ids_N is None or np.isin(tokens.ids_N, masked).any():
        return False
    return all(
        len(ids) > 1 and ids[0] in masked and not set(ids[1:]) & set(masked) for ids in prompts
    )


def _suspects(experiments: Experiments, tokens: Tokens) -> tuple[int, ...]:
    """Tokens before whose first occurrence there is no gap, those with most such tokens first."""
    if tokens.ids_N is None or not tokens.any:
        return ()
    terms_N = np.where(tokens.finite_N, tokens.terms_N, 0.0)
    gaps: dict[int, float] = defaultdict(float)
    counts: dict[int, int] = defaultdict(int)
    for row, start in enumerate(tokens.starts_B.tolist()):
        end = start + int(tokens.lengths_B[row])
        prompt = experiments.sampled_prompts.get(int(tokens.prompt_B[row]), [])
        first = dict.fromkeys(prompt, start)
        for place, token in enumerate(tokens.ids_N[start:end].tolist()):
            first.setdefault(token, start + place + 1)
        left = np.cumsum(terms_N[start:end][::-1])[::-1]
        known = np.cumsum(tokens.finite_N[start:end][::-1])[::-1]
        for token, place in first.items():
            if place < end:
                gaps[token] += float(left[place - start])
                counts[token] += int(known[place - start])
    whole, count = float(terms_N.sum()), int(tokens.finite_N.sum())
    spared = {
        token: count - counts[token]
        for token, gap in gaps.items()
        if whole - gap <= _SPARED * whole and count - counts[token] >= _LEAST * count
    }
    return tuple(sorted(spared, key=lambda token: -spared[token])[:_MOST])


def _declared(experiments: Experiments, variant: Variant) -> tuple[int, ...]:
    """Tokens that end, begin or pad sequences, if prompts contain them."""
    config = read_config(model_path(variant.setup.learner))
    listed = [config.get(f"{name}_token_id") for name in _ENDS]
    single = [each if isinstance(each, list) else [each] for each in listed]
    present = {token for prompt in experiments.sampled_prompts.values() for token in prompt}
    return tuple(
        dict.fromkeys(
            token
            for each in single
            for token in each
            if isinstance(token, int) and token in present
        )
    )


def _edit(masked: tuple[int, ...]) -> Edit:
    return EDIT, json.dumps(list(masked))


def _best(
    experiments: Experiments, variant: Variant, sets: list[tuple[int, ...]]
) -> tuple[int, ...] | None:
    """The tokens that leave the smallest gap on a few responses; None if none lowers it."""
    gaps = EditGaps(experiments, variant)
    left = dict(zip(sets, gaps.of([_edit(each) for each in sets]), strict=True))
    best = min(left, key=left.__getitem__, default=None)
    return best if best is not None and left[best] < gaps.gap(gaps.base_N) else None


def _in_words(masked: tuple[int, ...], texts: Mapping[int, str]) -> str:
    named = [f"{token} ({texts[token]!r})" if token in texts else str(token) for token in masked]
    return f"token {' and '.join(named)}"
