"""The weights changed while responses were generated, or the cache is older than the weights."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis, Identity
from grpodoctor.probe.attribution.causes.computation.prefix_caching import PrefixCaching
from grpodoctor.probe.attribution.edits import EditFamily
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.found_weights import weights_in_words
from grpodoctor.probe.attribution.search.checkpoint_edits import edits_of_checkpoints
from grpodoctor.probe.attribution.tensors import (
    takes_other_weights,
)
from grpodoctor.probe.attribution.variant import Variant

_EDIT = "weights_until"


class MixedWeights(Cause):
    """Proven by scoring with older weights up to a token, and with its keys and values after it."""

    id = "mixed-weights"
    title = "The sampler's weights changed within responses"
    remedies = (
        "Pause generation, or abort and restart running requests, during a weight update.",
        "If updates in flight are intended, use the reported log-probabilities as those of the "
        "behaviour policy, and limit the importance ratios; recompute the key-value cache after "
        "each update if the engine can.",
    )
    is_surrogate = True
    uses_other_files = True
    least = 0.5

    def hypothesize(self, experiments: Experiments, variant: Variant) -> Hypothesis | None:
        """There is another checkpoint, and a learner that can compute with both."""
        setup = variant.setup
        used = any(name in (_EDIT, "other_weights") for name, _ in setup.edits)
        takes = not used and takes_other_weights(experiments, variant)
        return Hypothesis(0.45) if takes else None

    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """Search the token after which the weights change, for each other checkpoint."""
        found = edits_of_checkpoints(
            experiments, variant, lambda folder: [_family(variant, folder)]
        )
        if not found:
            return None
        best_one, folder = found[0]
        _, tokens = json.loads(best_one.edit[1])
        where = f"after {tokens} tokens of each response" if tokens else "after the prompt"
        return ExperimentResult(
            summary=(
                f"with weights that change from {weights_in_words(folder)} to the learner's "
                f"{where}, and a key-value cache that stays, k3 falls from {variant.gap:.2g} to "
                f"{best_one.after.gap:.2g} nats per token"
            ),
            after=best_one.after,
            details=(where,),
            figures={"tokens": float(tokens)},
            identity=None if tokens else _CACHED,
        )


def _family(variant: Variant, folder: Path) -> EditFamily:
    """Numbers of tokens up to the longest response."""
    longest = int(variant.tokens.lengths_B.max(initial=1))
    return EditFamily(_EDIT, tuple(_doubled(longest)), "integer", None, str(folder))


def _doubled(most: int) -> Iterator[int]:
    yield 0
    tokens = 1
    while tokens < most:
        yield tokens
        tokens *= 2


_CACHED = Identity(
    PrefixCaching.id,
    "The sampler's cached keys and values of prompts are older than its weights",
    (
        *PrefixCaching.remedies,
        "If other workers read the prompts (disaggregated prefill), sync their weights, too.",
    ),
)
