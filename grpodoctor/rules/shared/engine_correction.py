"""Corrections, remedies and attached probes for a sampler-learner mismatch."""

from __future__ import annotations

import math
from typing import Literal

from grpodoctor.frameworks.registry import find_framework, logging_frameworks
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.conditions import Condition
from grpodoctor.vocabulary.metric_qualifiers import PROBED

TIS, RECOMPUTE, SYNC = "tis", "recompute-old-logprobs", "sync-sampler"
UNQUANTIZED = "higher-precision-sampler"
WRONG_OLD_LOGPROBS: Condition = "wrong-old-logprobs"

_WEIGHT = "correction/weight_mean"


def correction_of(chart: Chart) -> str | None:
    """The correction of the sampler-learner mismatch that is in force; None if there is none.

    In a log without settings, a logged correction weight shows that there is one, unless the
    framework logs it in any case.
    """
    correction = chart.knobs.get("correction")
    if isinstance(correction, str):
        return None if correction == "none" else correction
    if not chart.is_fresh(_WEIGHT):
        return None
    framework = find_framework(chart.manifest.framework, logging_frameworks())
    is_applied = framework is None or not framework.logs_unused_weights
    return "a correction weight" if is_applied else None


def weights_tokens(chart: Chart) -> bool | None:
    """Whether the correction weights tokens; False for whole responses, None if it is unknown."""
    framework = find_framework(chart.manifest.framework, logging_frameworks())
    if framework is not None and framework.weights_tokens:
        return True
    correction = chart.knobs.get("correction")
    if not isinstance(correction, str) or correction == "none":
        return None
    return correction.endswith("_token") or correction == "icepop"


def is_quantized(chart: Chart) -> bool:
    """Whether the config, or the engine's own output, says that the sampler is quantized."""
    return chart.config.settings(chart.knobs).get("sampler_quantized") is True


def mismatch_remedies(chart: Chart) -> tuple[str, ...]:
    """Remedies for a sampler-learner mismatch that are not in force yet, best first.

    A remedy whose setting is unknown may already be in force, so it comes last. A logged weight
    compares the learner's old log-probabilities with the sampler's: they are recomputed. A sampler
    that is known to be quantized is the cause itself: it is corrected, or replaced.
    """
    sync_every, old = chart.knobs.get("sampler_sync_every"), chart.knobs.get("old_logprobs")
    is_stale = isinstance(sync_every, int) and sync_every > 1
    needed = [(SYNC, is_stale), (RECOMPUTE, old == "sampler"), (TIS, correction_of(chart) is None)]
    needed.append((UNQUANTIZED, is_quantized(chart)))
    known = [remedy for remedy, is_needed in needed if is_needed]
    is_recomputed = old is not None or chart.is_fresh(_WEIGHT)
    unknown = [(RECOMPUTE, not is_recomputed), (SYNC, sync_every is None)]
    return (*known, *(remedy for remedy, may_help in unknown if may_help))


ProbeRelation = Literal["same", "beyond"]

_BEYOND = 3.0
"""Factor above the probe's value: two probes of one pair with different prompts differ by less."""


def compare_with_probe(chart: Chart, metric: str, level: float) -> tuple[ProbeRelation | None, str]:
    """How a level compares with an attached probe of the same engines, and words for a summary.

    `same`: the level is the probe's own reading, in a run that does not log the metric. `beyond`:
    the run differs by more than its engines do with equal weights, so their weights or inputs are
    not equal.
    """
    probed = chart.value(f"{metric}/{PROBED}")
    if probed is None:
        return None, ""
    if math.isclose(probed, level, rel_tol=1e-9):
        return "same", ", as measured by a probe"
    if level > _BEYOND * probed:
        return "beyond", f"; the probe measured only {probed:.2g}"
    return None, f"; the probe measured {probed:.2g}"
