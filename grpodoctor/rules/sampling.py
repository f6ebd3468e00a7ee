"""How the run samples, as far as its settings tell: what rules on mismatch ask before they advise.

A disagreement that the settings explain and correct is no news, and a remedy that is in place
already is no advice.
"""

from __future__ import annotations

from grpodoctor.runs.chart import Chart

TIS, RECOMPUTE, SYNC = "tis", "recompute-old-logprobs", "sync-sampler"

_WEIGHT = "correction/weight_mean"


def correction_of(chart: Chart) -> str | None:
    """Which correction weighs the difference between sampler and learner; None if none does.

    A log without settings shows it by the weights that it records.
    """
    kind = chart.knobs.get("correction")
    if isinstance(kind, str):
        return None if kind == "none" else kind
    return "a correction weight" if chart.is_fresh(_WEIGHT) else None


def remedies_of_mismatch(chart: Chart) -> tuple[str, ...]:
    """What is left to do about a sampler that disagrees, best first.

    A setting that is not known may be the cause, so that its remedy is named, but late.
    """
    synced, old = chart.knobs.get("sampler_sync_every"), chart.knobs.get("old_logprobs")
    is_stale = isinstance(synced, int) and synced > 1
    wanted = [(SYNC, is_stale), (RECOMPUTE, old == "sampler"), (TIS, correction_of(chart) is None)]
    known = [remedy for remedy, needed in wanted if needed]
    unknown = [remedy for remedy, knob in ((RECOMPUTE, old), (SYNC, synced)) if knob is None]
    return (*known, *unknown)
