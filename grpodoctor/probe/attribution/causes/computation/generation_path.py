"""The sampler reports other values while it generates than when it scores the same tokens."""

from __future__ import annotations

import numpy as np

from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis, Identity
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.tokens import Tokens
from grpodoctor.probe.attribution.variant import Variant

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
        return Hypothesis(0.5) if is_loud and not used and not setup.edits else None

    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """The sampler scores its own tokens in one pass."""
        after = experiments.vary(variant, rescored=experiments.case.sampler)
        if experiments.is_loud(after.gap):
            return None
        fades = _fades(experiments, variant.tokens)
        where = (
            ". Each first token agrees, and the difference fades after a few tokens: the state "
            "that the prompt leaves is lost or replaced before decoding"
        )
        return ExperimentResult(
            summary=(
                f"when the sampler scores its own tokens, k3 falls from {variant.gap:.2g} to "
                f"{after.gap:.2g} nats per token, which is rounding{where if fades else ''}"
            ),
            explained=1.0,
            confidence="likely",
            identity=_LOST_STATE if fades else None,
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


_LOST_STATE = Identity(
    "state-cache",
    "The state that the prompt leaves is lost before decoding",
    (
        "Check how the state of convolutions, state-space layers or the cache is handed from the "
        "prompt's pass to decoding: block tables, slots of a hybrid cache, and transfers between "
        "prefill and decode workers.",
    ),
)
