"""Weights to the sampler after every step."""

from __future__ import annotations

from collections.abc import Mapping

from grpodoctor.remedies.base import Remedy, Watch, number
from grpodoctor.vocabulary.knobs import Setting


class SyncSampler(Remedy):
    """Send the learner's weights to the engine that samples before every batch.

    What it does:
        A sampler that is k steps old draws responses that the learner would no longer give. The
        disagreement then rises and falls as a sawtooth with the period of the syncs.

    What it costs:
        The time of a weight transfer at each step, and with asynchronous sampling some idle time.

    What it overlaps:
        Nothing. A correction of the mismatch makes up for some staleness, this removes it.

    How it is judged:
        Responses are fresh when they are used, or the sampled tokens fit the learner's entropy
        again. Guard: a step does not take twice as long.

    References:
        AReaL: A Large-Scale Asynchronous Reinforcement Learning System for Language Reasoning,
        arXiv 2505.24298 (how much staleness a run stands).
    """

    id = "sync-sampler"
    title = "Sync weights to the sampler at every step"
    applicability = "safe"
    in_flight = True
    slots = ("weight-sync",)
    target = Watch("staleness/mean", "down")
    also = (Watch("mismatch/nll_gap", "down"),)
    guards = (Watch("reward/mean", "down", 0.1), Watch("time/step", "up", 1.0))
    paper = "AReaL, arXiv 2505.24298"

    def change(self, knobs: Mapping[str, Setting]) -> dict[str, Setting]:
        """Set `sampler_sync_every`, where it is known to be above 1."""
        every = number(knobs, "sampler_sync_every")
        return {} if every is None or every <= 1 else {"sampler_sync_every": 1}
