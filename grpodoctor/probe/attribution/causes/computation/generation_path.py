"""The sampler reports other values while it generates than when it scores the same tokens."""

from __future__ import annotations

from collections import Counter

import numpy as np

from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis, Identity
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.tokens import Integers, Tokens
from grpodoctor.probe.attribution.variant import Variant
from grpodoctor.support.numbers import part_of

_FADES = 5.0
"""Ratio of the early to the late gap from which a lost state is fading: what was computed with it
leaves the recurrent state after a few tokens."""
_EARLY = 8
_FEWEST = 8


class GenerationPath(Cause):
    """Detected when the sampler's own scores of its tokens agree with the learner."""

    id = "generation-path"
    title = "The sampler generates differently than it scores"
    remedies = (
        "The weights and the forward pass over whole sequences agree, so a sync or another setting "
        "of the model does not help. Look at what only generation uses: the prompt as the engine "
        "reads it (a system prompt that is added twice, truncation), the key-value cache and its "
        "blocks, position ids while decoding, the mask of a padded batch, chunked prefill, "
        "preemption, graphs of the decoding step, and the mapping of values to requests.",
        "Sample again with one sequence at a time, without graphs, prefix cache and chunked "
        "prefill, and turn them on one by one.",
    )
    peels = False
    stage = 2

    def hypothesize(self, experiments: Experiments, variant: Variant) -> Hypothesis | None:
        """The sampler's values are those that it reported while it generated."""
        setup = variant.setup
        used = setup.rescored or setup.shift or setup.transform or setup.replay
        is_loud = experiments.is_loud(variant.gap)
        return Hypothesis(0.5) if is_loud and not used else None

    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """The sampler scores its own tokens in one pass."""
        after = experiments.vary(variant, rescored=experiments.case.sampler)
        if experiments.is_loud(after.gap):
            return None
        identity, where = None, ""
        replaced = replaced_ids(variant.tokens)
        if replaced is not None:
            identity, where = _OTHER_IDS, f". {replaced}"
        elif _fades(experiments, variant.tokens):
            identity, where = _LOST_STATE, _FADING
        return ExperimentResult(
            summary=(
                f"when the sampler scores its own tokens, k3 falls from {variant.gap:.2g} to "
                f"{after.gap:.2g} nats per token, which is rounding{where}"
            ),
            explained=1.0,
            confidence="likely",
            identity=identity,
        )


def replaced_ids(tokens: Tokens) -> str | None:
    """What shows that a response has other tokens than were sampled; None if nothing does.

    Up to the first replaced token, both sides agree. There the sampler's value is that of another
    token, one of the likely ones. What follows was generated after that token.
    """
    listed_NM, values_NM = tokens.likeliest_NM, tokens.likeliest_logprob_NM
    if listed_NM is None or values_NM is None or tokens.ids_N is None:
        return None
    differs_N = tokens.finite_N & (np.abs(tokens.sampler_N - tokens.learner_N) > _CLEAR)
    places = np.flatnonzero(differs_N)
    _, first = np.unique(tokens.rows_N[places], return_index=True)
    places = places[first]
    if places.size < _FEWEST:
        return None
    errors = np.abs(values_NM[places] - tokens.sampler_N[places, None])
    is_listed = errors.min(axis=1) < _EQUAL
    if is_listed.mean() < _NEARLY_ALL or _is_of_others(tokens, places):
        return None
    sampled = listed_NM[places, errors.argmin(axis=1)]
    pairs = zip(tokens.ids_N[places].tolist(), sampled.tolist(), strict=True)
    (recorded, drawn), _ = Counter(pairs).most_common(1)[0]
    return (
        f"Where {part_of(int(is_listed.sum()), places.size, 'responses', 'begin')} "
        "to differ, the reported "
        f"value is that of another token, such as {drawn} in place of {recorded}"
    )


def _is_of_others(tokens: Tokens, places: Integers) -> bool:
    """Whether the values at most places are those of other samples of the prompt.

    After the same tokens, the value of a token that another sample drew is also one of the likely
    tokens' values: then the values are in the wrong rows, and not the tokens.
    """
    found = 0
    for place in places.tolist():
        row, position = int(tokens.rows_N[place]), int(tokens.positions_N[place])
        same_B = (tokens.prompt_B == tokens.prompt_B[row]) & (tokens.lengths_B > position)
        same_B[row] = False
        others = tokens.learner_N[tokens.starts_B[same_B] + position]
        found += bool((np.abs(others - tokens.sampler_N[place]) < _EQUAL).any())
    return found > _MOSTLY * places.size


_MOSTLY = 0.5
_CLEAR, _EQUAL = 0.02, 2e-4
"""|Δlogp| of a replaced token, and of two float32 values of one token."""
_NEARLY_ALL = 0.9
_FADING = (
    ". Each first token agrees, and the difference fades after a few tokens: the state that the "
    "prompt leaves is lost or replaced before decoding"
)


def _fades(experiments: Experiments, tokens: Tokens) -> bool:
    """Whether each first token agrees, and the gap is largest directly after it."""
    place_N = tokens.positions_N
    long_N = (tokens.lengths_B > 2 * _EARLY)[tokens.rows_N]
    first, early, late = (
        tokens.mean_at(long_N & at_N)
        for at_N in (place_N == 0, (place_N > 0) & (place_N < _EARLY), place_N >= _EARLY)
    )
    enough = np.count_nonzero(long_N & (place_N == 0)) >= _FEWEST
    return bool(enough and not experiments.is_loud(first) and early > _FADES * late)


_OTHER_IDS = Identity(
    "response-ids",
    "The responses have other tokens than were sampled",
    (
        "Train on the token ids that the sampler returns (vLLM: token_ids, return_token_ids). Text "
        "that is decoded and tokenized again can be split into other tokens.",
    ),
)
_LOST_STATE = Identity(
    "state-cache",
    "The state that the prompt leaves is lost before decoding",
    (
        "Check how the state of convolutions, state-space layers or the cache is handed from the "
        "prompt's pass to decoding: block tables, slots of a hybrid cache, and transfers between "
        "prefill and decode workers.",
    ),
)
