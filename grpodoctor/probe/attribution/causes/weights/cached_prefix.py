"""Cached keys and values of the prompt were computed without the LoRA adapter."""

from __future__ import annotations

from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis
from grpodoctor.probe.attribution.causes.computation.prefix_caching import PrefixCaching
from grpodoctor.probe.attribution.edits import IN_PREFIX, EditFamily, in_phase
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.search.edit_search import EditSearch
from grpodoctor.probe.attribution.variant import Variant

_ADAPTER = EditFamily("adapter", (0.0,), "choice")
_OPTION = "adapter"


class CachedPrefix(Cause):
    """Proven by a learner that reads the prompts, but for their last token, without its adapter.

    A prefix cache that knows blocks by their tokens alone gives a request with an adapter the
    blocks of the base model, and those of an older adapter with the same name.
    """

    id = PrefixCaching.id
    title = "The sampler caches prompts without the adapter"
    remedies = (
        "Make the adapter a part of the cache's key: give each version of the adapter another name "
        "and id, and clear the prefix cache when it is loaded.",
        *PrefixCaching.remedies,
    )
    is_surrogate = True
    least = 0.5

    def hypothesize(self, experiments: Experiments, variant: Variant) -> Hypothesis | None:
        """The learner has an adapter, and scores itself."""
        setup = variant.setup
        other = setup.rescored or setup.shift or setup.transform or setup.replay or setup.behind
        if other or setup.own_prompts or setup.swapped or not setup.learner.kind.can_alter:
            return None
        if not setup.learner.options.get(_OPTION) or not experiments.exceeds_rounding(variant):
            return None
        return Hypothesis(0.42)

    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """Score along the path of generation with a prefix of the base model."""
        found = EditSearch(experiments, variant).best([in_phase(IN_PREFIX, _ADAPTER)])
        if not found:
            return None
        after = found[0].after
        return ExperimentResult(
            summary=(
                f"with keys and values of the prompt that were computed without the adapter, k3 "
                f"falls from {variant.gap:.2g} to {after.gap:.2g} nats per token"
            ),
            after=after,
        )
