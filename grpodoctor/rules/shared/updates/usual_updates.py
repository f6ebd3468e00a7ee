"""Whether the updates of a run are as small as those of runs that learn."""

from __future__ import annotations

from grpodoctor.rules.shared.health.run_health import ENTROPY_METRICS, RECENT, current_metric
from grpodoctor.rules.shared.outcome.flat_outcome import reference_kl
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.series import Series

_KLS = ("kl/old_policy/k3", "kl/old_policy/k2")
_CLIPS = ("clip/any_rate", "clip/low_rate", "clip/high_rate")
_GRADIENT = "optimizer/grad_norm"

_USUAL_KL = 0.002
"""Nats per token that the updates on a batch move a policy that learns: .001 in healthy runs, .005
to .009 with a learning rate three times too high (see OPT006)."""
_USUAL_CLIP = 0.01
"""Clipped share of tokens: healthy runs clip .001 to .005 (see OPT006)."""
_USUAL_DRIFT = 0.2
"""Nats per token from the reference: twice what healthy runs reach in 100 steps (see OPT006)."""
_LARGE_GRADIENT = 5.0
"""Multiple of the usual gradient norm that could change a policy in one step."""
_GROWTH = 2.0
"""Factor by which the gradient norm may have grown, and the entropy changed."""


def usual_updates(chart: Chart) -> tuple[str, ...]:
    """The metrics that show updates of the usual size; empty if one is larger or none is logged.

    The size is the KL divergence of a batch's updates, or the clipped share, together with the
    gradient norm. A policy that has lost its entropy has moved far, however small its steps were.
    """
    names = [name for name in (*_KLS, *_CLIPS) if len(chart.series(name)) >= 2 * RECENT]
    if not names or not all(_is_usual(chart.series(name), name) for name in names):
        return ()
    reference = reference_kl(chart)
    if reference is not None and not chart.series(reference).level(RECENT) <= _USUAL_DRIFT:
        return ()
    gradient = chart.series(_GRADIENT)
    entropy = chart.series(current_metric(chart, ENTROPY_METRICS))
    if not _is_kept(gradient) or not _is_kept(entropy, also_below=True):
        return ()
    usual = gradient.level(len(gradient.tail(2 * RECENT)))
    is_even = gradient.window_max() <= _LARGE_GRADIENT * usual
    return (names[0], _GRADIENT) if is_even else ()


def _is_usual(series: Series, name: str) -> bool:
    limit = _USUAL_KL if name in _KLS else _USUAL_CLIP
    return abs(series.level(RECENT)) <= limit and series.level(2 * RECENT) <= limit


def _is_kept(series: Series, *, also_below: bool = False) -> bool:
    """Whether a positive metric is near its starting value."""
    start = series.start
    if start is None or not start.level > 0:
        return False
    ratio = series.level(RECENT) / start.level
    return ratio <= _GROWTH and (not also_below or ratio >= 1 / _GROWTH)
