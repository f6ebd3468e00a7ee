"""One side's log-probabilities are shifted by a few tokens."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.tokens import Floats, Tokens
from grpodoctor.probe.attribution.variant import Variant

_GAIN = 0.3
"""Smallest rise of the correlation when one column is shifted."""
_WORDS = {1: "one token", 2: "two tokens", 3: "three tokens"}
"""Shifts that are tried, in words."""


class OffByOne(Cause):
    """Detected when shifting one column by a few tokens makes the two agree."""

    id = "off-by-one"
    title = "Log-probabilities are shifted against the tokens"
    remedies = (
        "Align the columns: the log-probability of the token at position t comes from the logits "
        "at t - 1. Check where logits or labels are sliced (`logits[:, :-1]` with `labels[:, "
        "1:]`), and the borders of context-parallel shards.",
        "Until this is fixed, do not use the saved log-probabilities in ratios or corrections.",
    )
    is_surrogate = True
    is_symmetric = True
    cost = 0
    least = 0.5

    def hypothesize(self, experiments: Experiments, variant: Variant) -> Hypothesis | None:
        """Compare the correlation of the columns with that of shifted columns."""
        now = _correlation(variant.tokens)
        shifts = [sign * far for far in _WORDS for sign in (-1, 1)]
        moved = {shift: _correlation(_shifted(variant.tokens, shift)) for shift in shifts}
        shift = max(moved, key=lambda tokens: moved[tokens])
        if variant.setup.shift or moved[shift] < now + _GAIN:
            return None
        facts = {"shift": shift, "correlation": now, "correlation_moved": moved[shift]}
        return Hypothesis(moved[shift], facts)

    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """Shift the sampler's column."""
        shift = int(hypothesis.facts["shift"])
        now, moved = (float(hypothesis.facts[k]) for k in ("correlation", "correlation_moved"))
        side, far = "late" if shift > 0 else "early", _WORDS[abs(shift)]
        tokens = _shifted(variant.tokens, shift)
        return ExperimentResult(
            summary=(
                f"the {variant.setup.sides[0]}'s log-probabilities are {far} too {side}: "
                f"shifted by {far}, their correlation with the other side's rises from "
                f"{now:.2f} to {moved:.2f}"
            ),
            after=Variant(replace(variant.setup, shift=shift), tokens),
            figures={"shift": shift, "correlation": now, "correlation_moved": moved},
        )


def _shifted(tokens: Tokens, shift: int) -> Tokens:
    """Shift the sampler's column within each response: token t gets the value at t + shift."""
    source_N = np.arange(tokens.sampler_N.size) + shift
    at_N = tokens.positions_N + shift
    inside_N = (at_N >= 0) & (at_N < tokens.lengths_B[tokens.rows_N])
    moved_N: Floats = np.full(tokens.sampler_N.size, np.nan)
    moved_N[inside_N] = tokens.sampler_N[source_N[inside_N]]
    return tokens.with_sampler(moved_N)


def _correlation(tokens: Tokens) -> float:
    """Correlation of the two probabilities; 0 if undefined."""
    at = tokens.finite_N
    if at.sum() < 3:
        return 0.0
    one, other = np.exp(tokens.sampler_N[at]), np.exp(tokens.learner_N[at])
    if one.std() == 0 or other.std() == 0:
        return 0.0
    return float(np.corrcoef(one, other)[0, 1])
