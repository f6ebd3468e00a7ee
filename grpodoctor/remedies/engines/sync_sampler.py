"""Weight sync after every step."""

from __future__ import annotations

from collections.abc import Mapping

from grpodoctor.remedies.base import Criterion, Remedy, number
from grpodoctor.vocabulary.knobs import Setting


class SyncSampler(Remedy):
    """Send the learner's weights to the sampler before every batch.

    What it does:
        A sampler that is k steps old samples responses that the learner would no longer produce.
        The mismatch grows until the next sync and then drops, as a sawtooth.

    When it applies:
        The sampler is more than one step old.

    What it costs:
        A weight transfer at each step and, with asynchronous sampling, some idle time.

    What it overlaps:
        Nothing. A correction of the mismatch compensates for some staleness; this remedy removes
        it.

    How it is judged:
        Responses come from the current policy, or the gap between their negative log-probability
        and the learner's entropy closes. Guard: a step does not take twice as long.

    References:
        AReaL: A Large-Scale Asynchronous Reinforcement Learning System for Language Reasoning,
        arXiv 2505.24298 (how much staleness a run tolerates).
    """

    id = "sync-sampler"
    title = "Sync weights to the sampler at every step"
    applicability = "safe"
    in_flight = True
    slots = ("weight-sync",)
    target = Criterion("staleness/mean", "down")
    more_targets = (Criterion("mismatch/nll_gap", "down"),)
    guards = (Criterion("reward/mean", "down", 0.1), Criterion("time/step", "up", 1.0))
    paper = "AReaL, arXiv 2505.24298"
    alternatives = ("check-weight-sync", "limit-staleness", "m2po")

    def change(self, knobs: Mapping[str, Setting]) -> dict[str, Setting]:
        """Set `sampler_sync_every` if it is known to be above 1."""
        every = number(knobs, "sampler_sync_every")
        return {} if every is None or every <= 1 else {"sampler_sync_every": 1}
