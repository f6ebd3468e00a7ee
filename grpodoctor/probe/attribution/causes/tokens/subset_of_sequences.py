"""A few responses carry the gap."""

from __future__ import annotations

import numpy as np

from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis
from grpodoctor.probe.attribution.causes.computation.long_context_drift import expected
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.tokens import Flags, Floats, Tokens
from grpodoctor.probe.attribution.variant import Variant

_FEWEST = 6
_MOST_OFF = 0.45
"""Largest share of the responses that counts as a subset."""
_CARRY = 0.8
"""Smallest share of the gap on the subset."""
_TIMES = 8.0
"""Smallest ratio between the medians of the two groups."""
_APART = 3.0
"""Ashman's D: distance of the two means of log gap over their pooled spread; 2 is two peaks."""
_SHARED = 0.9


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
    cost = 0

    def hypothesize(self, experiments: Experiments, variant: Variant) -> Hypothesis | None:
        """The gap per response has two peaks."""
        if "router-flips" in experiments.named:  # a flip affects the rest of its response
            return None
        tokens = variant.tokens
        level_B = _levels(tokens)
        known = int(np.isfinite(level_B).sum())
        if known < _FEWEST:
            return None
        off_B, apart, times = _split(level_B)
        share = tokens.share_at(off_B[tokens.rows_N])
        few = 0 < off_B.sum() <= _MOST_OFF * known
        if not few or share < _CARRY or apart < _APART or times < _TIMES:
            return None
        # If the other responses differ as well, the cause affects all responses, some of them more:
        # those with a flipped expert, for example, or those with less certain tokens.
        if experiments.is_loud(tokens.mean_at(~off_B[tokens.rows_N])):
            return None
        return Hypothesis(share, {"apart": apart, "times": times})

    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """List the subset and its common property."""
        tokens = variant.tokens
        off_B, _, _ = _split(_levels(tokens))
        which = [
            f"prompt {tokens.prompt_B[b]} sample {tokens.sample_B[b]}"
            for b in np.flatnonzero(off_B)
        ]
        times = float(hypothesis.facts["times"])
        return ExperimentResult(
            summary=(
                f"{int(off_B.sum())} of {off_B.size} responses carry {hypothesis.strength:.0%} of "
                f"the gap and differ {times:.3g} times as much as the "
                f"others{_shared(tokens, off_B)}"
            ),
            explained=hypothesis.strength,
            confidence="likely",
            details=tuple(which[:12]),
            figures={"responses": float(off_B.sum()), "times": times},
        )


def _levels(tokens: Tokens) -> Floats:
    """log10 of each response's gap, relative to the expectation from its tokens' uncertainty."""
    finite_N = tokens.finite_N
    expected_B = np.bincount(
        tokens.rows_N,
        weights=finite_N * expected(tokens),
        minlength=tokens.lengths_B.size,
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        # A bit-identical response counts as equal up to float32 rounding.
        return np.asarray(np.log10(tokens.gap_B / expected_B + 1e-12))


def _split(level_B: Floats) -> tuple[Flags, float, float]:
    """Split by least spread (Otsu): members of the upper group, Ashman's D, ratio of medians.

    Responses without a finite level are in neither group.
    """
    known_B = np.isfinite(level_B)
    order = np.sort(level_B[known_B])
    counts = np.arange(1, order.size)
    low, high = np.cumsum(order)[:-1] / counts, (order.sum() - np.cumsum(order)[:-1]) / counts[::-1]
    between = counts * counts[::-1] * (high - low) ** 2
    cut = order[int(np.argmax(between))]
    off_B = known_B & (level_B > cut)
    near, far = level_B[known_B & ~off_B], level_B[off_B]
    if not near.size or not far.size:
        return off_B, 0.0, 1.0
    spread = np.sqrt((near.var() + far.var()) / 2) + 1e-6
    apart = float((far.mean() - near.mean()) / spread)
    return off_B, apart, float(10 ** (np.median(far) - np.median(near)))


def _shared(tokens: Tokens, off_B: Flags) -> str:
    """A property of nearly all responses in the subset and of few others; empty if none."""
    facts: dict[str, Flags] = {
        "a cached prompt": tokens.cached_B > 0,
        "no end token": ~tokens.ended_B,
        "a long prompt": tokens.prompt_lengths_B > np.median(tokens.prompt_lengths_B),
        "a long response": tokens.lengths_B > np.median(tokens.lengths_B),
        "the first sample of a prompt": tokens.sample_B == 0,
    }
    for name, has_B in facts.items():
        if has_B[off_B].mean() >= _SHARED and has_B[~off_B].mean() < 1 - _SHARED / 2:
            return f"; they share {name}"
    prompts = set(tokens.prompt_B[off_B].tolist())
    whole = off_B[np.isin(tokens.prompt_B, list(prompts))].mean() >= _SHARED
    return f"; they are all responses of {len(prompts)} prompts" if whole else ""
