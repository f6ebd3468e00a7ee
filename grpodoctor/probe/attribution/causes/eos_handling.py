"""The engines disagree about the token that ends a response, and about nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from grpodoctor.probe.attribution.base import Cause, Outcome, Scene, Suspicion
from grpodoctor.probe.attribution.bench import Bench

_FEWEST_ENDS = 8
_SHARE, _TIMES = 0.5, 10.0
"""Of the gap at end tokens, and how many times that of other tokens theirs must be."""


class EosHandling(Cause):
    """Seen when the gap, or what is missing, sits at end tokens."""

    id = "eos-handling"
    title = "The token that ends a response is treated differently"
    remedies = (
        "Keep the end token in the response on both sides, with its log-probability and in the "
        "loss mask: one side drops it, replaces it with padding or scores another id.",
        "Compare the end ids of both: eos_token_id in config.json, generation_config.json and the "
        "tokenizer, and the stop ids given to the sampler.",
    )
    cost = 0
    least = _SHARE
    when = "always"

    def suspect(self, bench: Bench, scene: Scene) -> Suspicion | None:
        """The share of the gap that sits at end tokens, against that of the others."""
        tokens, last_N = scene.tokens, scene.tokens.last_N
        if scene.setup.without_ends or scene.setup.shift or last_N.sum() < _FEWEST_ENDS:
            return None
        missing_N = ~np.isfinite(tokens.difference_N)
        if missing_N[last_N].mean() >= _SHARE and missing_N[~last_N].mean() < 1 / _TIMES:
            return Suspicion(1.0, {"missing": float(missing_N[last_N].mean())})
        share = tokens.share_at(last_N)
        if share < _SHARE or tokens.mean_at(last_N) < _TIMES * tokens.mean_at(~last_N):
            return None
        return Suspicion(share, {"share": share})

    def experiment(self, bench: Bench, scene: Scene, suspicion: Suspicion) -> Outcome | None:
        """Leave end tokens out."""
        tokens, last_N = scene.tokens, scene.tokens.last_N
        missing = float(suspicion.facts.get("missing", 0.0))
        ours, theirs = bench.case.sampler_facts.end_ids, bench.case.learner_facts.end_ids
        differ = set(ours) != set(theirs)
        details = (f"end ids: sampler {list(ours)}, learner {list(theirs)}",) if differ else ()
        if missing:
            told = f"{missing:.0%} of the end tokens have no log-probability on one of the sides"
            after = None
        else:
            told = (
                f"end tokens are {last_N.mean():.1%} of the tokens and carry "
                f"{tokens.share_at(last_N):.0%} of the gap"
            )
            after = Scene(replace(scene.setup, without_ends=True), tokens.where(~last_N))
        return Outcome(
            told=told,
            after=after,
            confidence="proven" if differ or missing else "likely",
            details=details,
            figures={"ends": float(last_N.sum()), "share": tokens.share_at(last_N)},
        )
