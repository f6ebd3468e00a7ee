"""Falls of the training outcome that the policy did not cause, as held-out evaluations show."""

from __future__ import annotations

from dataclasses import replace

from grpodoctor.rules.base import Sighting, cite
from grpodoctor.rules.shared.health.heldout import heldout_level_kept_since, heldout_rise_since
from grpodoctor.rules.shared.health.reward_components import PREFIX, component_name
from grpodoctor.rules.shared.health.run_health import RECENT, fall_text
from grpodoctor.rules.shared.outcome.kept_policy import FALL_FROM_OUTSIDE, condition_outside
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.metric_qualifiers import HELDOUT

_MOST_WORDS_OF_FALL = 12
"""Words of a summary that leave room for the rise of a held-out metric."""


_MOST_WORDS_OF_NAME = 2
"""Words of a component's name for which a summary with a held-out metric has room."""


def harmless_fall(chart: Chart, sighting: Sighting) -> Sighting | None:
    """A fall through which a held-out metric rises: the policy improves on harder prompts."""
    if not any(len(chart.series(name)) for name in HELDOUT):
        return None
    since = sighting.find_onset() if sighting.find_onset else chart.step
    rise = heldout_rise_since(chart, since)
    if rise is None:
        return None
    metric, then, now = rise
    fall = sighting.summary.rstrip(".").split(";")[0]
    if len(fall.split()) > _MOST_WORDS_OF_FALL:
        fall = _fall(chart, sighting)
    text = f"{fall} while {metric} rose from {then:.3g} to {now:.3g}."
    evidence = (*sighting.evidence, cite(chart, metric, then))
    # A fall from outside may also be a fault of the training environment alone.
    remedies = ("recheck-reward",) if sighting.remedies else ()
    return Sighting("info", text, evidence, remedies, sighting.find_onset, ends_severer=True)


def fall_from_outside(chart: Chart, sighting: Sighting) -> Sighting | None:
    """A fall that the policy did not cause, as the fall itself or held-out prompts show."""
    since = sighting.find_onset() if sighting.find_onset else chart.step
    kept = heldout_level_kept_since(chart, since)
    if kept is None:
        if sighting.remedies is not FALL_FROM_OUTSIDE:
            return None
        condition = condition_outside(chart, since, is_solved_as_before=False)
        return replace(sighting, condition=condition)
    metric, level = kept
    text = (
        f"{_fall(chart, sighting)} while {_HELDOUT_NOUNS[metric]} stayed at {level:.2g}: "
        "the prompts, environment or verifier changed."
    )
    return replace(
        sighting,
        summary=text,
        evidence=(*sighting.evidence, cite(chart, metric)),
        remedies=_POLICY_IS_WELL,
        condition=condition_outside(chart, since, is_solved_as_before=True),
    )


def _fall(chart: Chart, sighting: Sighting) -> str:
    """The fall in few words: that of the outcome, or of the component that the sighting is about.

    The whole reward may have kept its level while a component fell.
    """
    metric, best = sighting.evidence[0].metric, sighting.evidence[0].baseline
    if not metric.startswith(PREFIX) or best is None:
        return fall_text(chart).capitalize()
    name, now = component_name(metric), chart.series(metric).level(RECENT)
    subject = f"Component {name}" if len(name.split()) <= _MOST_WORDS_OF_NAME else "A component"
    return f"{subject} fell from {best:.3g} to {now:.3g}"


_POLICY_IS_WELL = ("recheck-reward", "drop-failed-rollouts", "easier-prompts")
"""Remedies where held-out prompts show that no earlier checkpoint is needed."""

_HELDOUT_NOUNS = {"accuracy/heldout": "held-out accuracy", "reward/heldout": "held-out reward"}
