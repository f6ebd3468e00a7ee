"""A few responses carry the gap."""

from __future__ import annotations

import numpy as np

from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis, Identity
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.search.subsets import LONG_PROMPTS, subset_of
from grpodoctor.probe.attribution.variant import Variant
from grpodoctor.support.numbers import part_of


class SubsetOfSequences(Cause):
    """Detected when the gap per response has two peaks; reports the subset's common property."""

    id = "subset-of-sequences"
    title = "A subset of the responses carries the gap"
    remedies = (
        "Inspect the listed responses: how they were batched, on which rank and after which "
        "restart or preemption they were generated, and whether their log-probabilities belong "
        "to them.",
        "Until the cause is found, mask responses with a mean |Δlogp| far above the median: the "
        "batch mean hides them.",
    )
    peels = False
    stage = 1
    cost = 0

    def hypothesize(self, experiments: Experiments, variant: Variant) -> Hypothesis | None:
        """The gap per response has two peaks."""
        found = subset_of(experiments, variant)
        return Hypothesis(found.share, {"times": found.times}) if found else None

    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """List the subset and its common property."""
        found, tokens = subset_of(experiments, variant), variant.tokens
        if found is None:
            return None
        off_B, times = found.responses_B, found.times
        which = [
            f"prompt {tokens.prompt_B[b]} sample {tokens.sample_B[b]}"
            for b in np.flatnonzero(off_B)
        ]
        return ExperimentResult(
            summary=(
                f"{part_of(int(off_B.sum()), off_B.size, 'responses', 'carry')} "
                f"{hypothesis.strength:.0%} of "
                f"the gap and differ {times:.3g} times as much as the others; they are "
                f"{found.words}"
            ),
            explained=hypothesis.strength,
            confidence="likely",
            details=tuple(which[:12]),
            figures={"responses": float(off_B.sum()), "times": times},
            identity=_LONG if found.words.startswith(LONG_PROMPTS) else None,
        )


_LONG = Identity(
    "long-prompts",
    "Only responses to long prompts differ",
    (
        "Disable chunked prefill in the sampler and probe again: a chunk must attend to all chunks "
        "before it. Then raise the chunk size and the block size of the prefix cache one by one.",
        "Compare the limits of both engines: maximal prompt length, sliding window, and the length "
        "from which a rope scaling applies.",
    ),
)
