"""How the run samples, as far as its settings tell: what rules on mismatch ask before they advise.

A disagreement that the settings explain and correct is no news, and a remedy that is in place
already is no advice.
"""

from __future__ import annotations

import math
from typing import Literal

from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.metrics import PROBED

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


ProbeSays = Literal["same", "beyond"]

_BEYOND = 3.0
"""Times what a probe has measured: two probes of one pair, of other prompts, differ by less."""


def beside_probe(chart: Chart, metric: str, level: float) -> tuple[ProbeSays | None, str]:
    """How a level stands to what an attached probe has measured of the same engines, in words.

    `same` is the probe's own reading, in a run that has none. `beyond` is a run that differs by
    more than its engines do with the same weights, so that their weights are not the same.
    """
    probed = chart.value(f"{metric}/{PROBED}")
    if probed is None:
        return None, ""
    if math.isclose(probed, level, rel_tol=1e-9):
        return "same", ", as measured by a probe of its engines"
    if level > _BEYOND * probed:
        return "beyond", (
            f"; a probe of its engines with the same weights measured {probed:.2g}, so that the "
            "rest comes from their weights or inputs"
        )
    return None, f"; a probe of its engines measured {probed:.2g}"
