"""The evidence as Markdown (docs/evidence.md), as JSON and as table rows for the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, cast

from grpodoctor.support.numbers import count_of
from grpodoctor.trials.evidence.collected_evidence import Evidence
from grpodoctor.trials.evidence.healthy_evidence import HealthyArm, HealthyEvidence, rate_interval
from grpodoctor.trials.evidence.statistics import LEVEL, Difference, Share
from grpodoctor.trials.evidence.trial_evidence import RemedyEvidence, RuleEvidence, TrialEvidence
from grpodoctor.trials.healthy_runs import HEALTHY

NONE = "-"
COMMAND = "grpodoctor trials --published --output-format markdown"
_RELIABLE = 0.9
_PERCENT = f"{100 * LEVEL:.0f} %"
HEALTHY_COLUMNS = ("task and variant", "runs", "steps", "warnings", "critical", "accuracy")
RULE_COLUMNS = ("rule", "severity", "fired", "false alarms", "steps to the report")
REMEDY_COLUMNS = (
    "remedy",
    "pairs",
    "control",
    "untreated",
    "treated",
    "gain",
    "at equal cost",
    "p",
    "effect",
    "target",
)
SHORT_COLUMNS = ("remedy", "effect", "gain", "outcome")
"""What an 80-column terminal has room for; the other columns are in the Markdown page."""


_INTRODUCTION = f"""\
# Evidence

Trials of rules and remedies on the bundled trainer. In each trial, the same seeds train a
*control*, a run with the *disease*, and a run of the disease with each remedy from the first step.
The seed varies the initial weights, the problems and the sampling. The method is described in
[trials.md](trials.md). Treatments without an effect are listed, too. The alarms of a run are those
of the rules when the run was published. This page is printed by

```
{COMMAND}
```"""
_LEGEND = f"""\
**severity** is the highest in the diseased runs. **fired** and **false alarms** count diseased runs
and controls with a warning or a critical finding of the rule, or with a note if it only notes.
**Outcome** is the held-out accuracy of the last three evaluations. **gain** is the outcome treated
minus untreated, paired by seed, with its {_PERCENT} t interval (the interval of a mixed model with
a random effect of the seed). **at equal cost** compares the runs within the token passes of the
cheaper one: one for each sampled or scored token, three for each token of an update. **p** is
corrected by Holm's method over all treatments of this page. **target** is the metric that the
remedy should move, at the end of the run, untreated → treated. **pairs** counts the seeds with both
runs; the outcomes are means over them. **effect** is the reading of the
interval of the gain: *helps*, *harms*, or *not shown*."""


def rule_row(evidence: RuleEvidence) -> tuple[str, ...]:
    """The cells of `RULE_COLUMNS`."""
    delay = evidence.median_delay
    return (
        evidence.code,
        evidence.severity or NONE,
        _share(evidence.fired),
        _share(evidence.false_alarms),
        NONE if delay is None else _median_and_range(delay, evidence.delays),
    )


def remedy_row(evidence: RemedyEvidence) -> tuple[str, ...]:
    """The cells of `REMEDY_COLUMNS`."""
    before, after = evidence.target_untreated, evidence.target_treated
    moved = NONE if before is None or after is None else f"{before:.3g} → {after:.3g}"
    name = f"{evidence.remedy}, {evidence.variant}" if evidence.variant else evidence.remedy
    return (
        name,
        str(evidence.gain.pairs if evidence.gain else 0),
        _number(evidence.control),
        _number(evidence.untreated),
        _number(evidence.treated),
        _difference(evidence.gain),
        _difference(evidence.matched_gain),
        NONE if evidence.adjusted_p is None else f"{evidence.adjusted_p:.3f}",
        evidence.effect,
        f"{evidence.target} {moved}",
    )


def short_row(evidence: RemedyEvidence) -> tuple[str, ...]:
    """The cells of `SHORT_COLUMNS`; the outcome is untreated → treated."""
    name, *_, effect, _ = remedy_row(evidence)
    outcome = f"{_number(evidence.untreated)} → {_number(evidence.treated)}"
    return (name, effect, _difference(evidence.gain), outcome)


def healthy_row(arm: HealthyArm) -> tuple[str, ...]:
    """The cells of `HEALTHY_COLUMNS`."""
    accuracy = _number(arm.accuracy)
    return (
        arm.name,
        str(arm.runs),
        str(arm.steps),
        str(arm.warnings),
        str(arm.criticals),
        accuracy,
    )


def markdown(evidence: Evidence) -> str:
    """The page of all trials."""
    return "\n".join(_page(evidence)).rstrip() + "\n"


def as_json(evidence: Evidence) -> dict[str, Any]:
    """The evidence for programs; numbers have six decimals."""
    data = {
        "trials": [_trial_json(each) for each in evidence.trials],
        "healthy_runs": _healthy_json(evidence.healthy) if evidence.healthy else None,
        "controls": asdict(evidence.controls) if evidence.controls else None,
    }
    return cast("dict[str, Any]", _rounded(data))


def _rounded(data: object) -> object:
    """The data with rounded numbers, which do not depend on the version of scipy."""
    if isinstance(data, float):
        return round(data, 6)
    if isinstance(data, Mapping):
        return {key: _rounded(value) for key, value in data.items()}
    return [_rounded(each) for each in data] if isinstance(data, list | tuple) else data


def summary(evidence: Evidence) -> list[str]:
    """The counts over all trials and the healthy runs, one sentence each."""
    lines = [*_trial_counts(evidence.trials)] if evidence.trials else []
    if evidence.controls is not None and evidence.controls.steps:
        lines.append(_alarm_sentence("controls", evidence.controls))
    if evidence.healthy is not None:
        lines.append(healthy_sentence(evidence.healthy))
    if failures := evidence.failed:
        lines.append(
            f"Incomplete: {_runs(len(failures))} without a result ({failures[0]}). The same "
            "command trains the missing runs."
        )
    if any(each.seeds < 2 for each in evidence.trials):
        lines.append("With one seed there are no intervals: repeat with --seeds 2 or more.")
    return lines


def _trial_counts(trials: Sequence[TrialEvidence]) -> Iterator[str]:
    rules = [rule for each in trials for rule in each.rules if rule.fired.runs]
    remedies = [remedy for each in trials for remedy in each.remedies]
    reliable = [rule for rule in rules if rule.fired.hits >= _RELIABLE * rule.fired.runs]
    quiet = [rule for rule in rules if not rule.false_alarms.hits]
    helpful = [each for each in remedies if each.helps]
    certain = [each for each in helpful if each.is_certain]
    harmful = [each for each in remedies if each.harms]
    yield (
        f"{len(reliable)} of {len(rules)} rules fired in at least {100 * _RELIABLE:.0f} % of their "
        "diseased runs."
    )
    yield f"{len(quiet)} of {len(rules)} rules fired in no control of their trial."
    yield (
        f"{len(helpful)} of {len(remedies)} treatments ({_distinct(helpful)} of "
        f"{_distinct(remedies)} remedies) improved the outcome: their {_PERCENT} "
        f"interval is above zero, for {len(certain)} of them also after the correction for the "
        f"number of treatments. {len(harmful)} made the outcome worse. For "
        f"{len(remedies) - len(helpful) - len(harmful)}, no effect is shown."
    )


def _distinct(remedies: Iterable[RemedyEvidence]) -> int:
    return len({each.remedy for each in remedies})


def healthy_sentence(healthy: HealthyEvidence) -> str:
    """The alarms in the healthy runs in one sentence."""
    if not healthy.total.steps:
        return "No healthy run has a result."
    combinations = sum(arm.runs > 0 for arm in healthy.arms)
    runs = f"healthy runs ({combinations} of {len(healthy.arms)} combinations of task and variant)"
    return _alarm_sentence(runs, healthy.total)


def _alarm_sentence(runs: str, counts: HealthyArm) -> str:
    low, high = rate_interval(counts.warnings, counts.steps)
    return (
        f"In {counts.runs} distinct {runs} with {counts.steps:,} steps, the rules that could run "
        f"reported {counts.criticals} critical findings and {counts.warnings} warnings: "
        f"{1000 * counts.warnings / counts.steps:.2f} warnings in 1,000 steps "
        f"({_PERCENT} interval {low:.2f} to {high:.2f})."
    )


def _page(evidence: Evidence) -> Iterator[str]:
    yield from _INTRODUCTION.splitlines()
    yield ""
    yield from (f"- {line}" for line in summary(evidence))
    if evidence.trials:
        yield ""
        yield from _LEGEND.splitlines()
    if evidence.healthy is not None:
        yield ""
        yield from _healthy_section(evidence.healthy)
    for each in evidence.trials:
        yield ""
        yield from _trial_section(each)


def _healthy_section(healthy: HealthyEvidence) -> Iterator[str]:
    experiment = HEALTHY
    yield f"## {experiment.name}"
    yield ""
    yield f"{experiment.question} {experiment.steps} steps. A rule that fires in a run counts once,"
    yield "with the highest severity that it reached."
    yield ""
    yield from _table(HEALTHY_COLUMNS, map(healthy_row, (*healthy.arms, healthy.total)))
    if healthy.alarms:
        yield ""
        alarms = ", ".join(f"{code} ({count})" for code, count in healthy.alarms)
        yield f"Rules that fired, with the number of runs: {alarms}."
    for line in healthy.failed:
        yield ""
        yield f"No result: {line}."


def _trial_section(evidence: TrialEvidence) -> Iterator[str]:
    trial = evidence.trial
    yield f"## {trial.name}"
    yield ""
    yield trial.question
    yield ""
    yield f"{trial.steps} steps. Disease: {_disease(evidence)}."
    if evidence.rules:
        yield ""
        yield from _table(RULE_COLUMNS, map(rule_row, evidence.rules))
    if trial.misses:
        yield ""
        yield trial.misses
    if evidence.remedies:
        yield ""
        yield from _table(REMEDY_COLUMNS, map(remedy_row, evidence.remedies))
    if evidence.others:
        others = ", ".join(f"{code} ({count})" for code, count in evidence.others)
        yield ""
        yield f"Other rules that fired in the diseased runs: {others}."
    for line in evidence.failed:
        yield ""
        yield f"No result: {line}."


def _disease(evidence: TrialEvidence) -> str:
    disease = evidence.trial.disease
    settings = (*evidence.trial.settings, *disease.settings)
    parts = [f"`{each}`" for each in settings]
    if disease.preset:
        parts.append(f"preset `{disease.preset}`")
    if disease.fault:
        parts.append(f"injected fault `{disease.fault}`")
    return ", ".join(parts)


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(columns)} |"
    yield f"|{'---|' * len(columns)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _trial_json(evidence: TrialEvidence) -> dict[str, Any]:
    return {
        "trial": evidence.trial.name,
        "question": evidence.trial.question,
        "seeds": evidence.seeds,
        "steps": evidence.trial.steps,
        "rules": [
            {**asdict(each), "median_delay": each.median_delay, "interval": each.fired.interval}
            for each in evidence.rules
        ],
        "remedies": [{**asdict(each), "effect": each.effect} for each in evidence.remedies],
        "others": dict(evidence.others),
        "failed": list(evidence.failed),
    }


def _healthy_json(healthy: HealthyEvidence) -> dict[str, Any]:
    total = healthy.total
    return {
        "arms": [asdict(arm) for arm in healthy.arms],
        "seeds": healthy.seeds,
        "runs": total.runs,
        "steps": total.steps,
        "warnings": total.warnings,
        "criticals": total.criticals,
        "alarms": dict(healthy.alarms),
        "failed": list(healthy.failed),
    }


def _runs(count: int) -> str:
    return count_of(count, "run")


def _share(share: Share) -> str:
    return f"{share.hits}/{share.runs}"


def _median_and_range(median: float, values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return f"{median:g}" if low == high else f"{median:g} ({low}-{high})"


def _number(value: float | None) -> str:
    return NONE if value is None else f"{value:.3f}"


def _difference(difference: Difference | None) -> str:
    if difference is None:
        return NONE
    if difference.low is None or difference.high is None:
        return f"{difference.mean:+.3f}"
    return f"{difference.mean:+.3f} ({difference.low:+.3f} to {difference.high:+.3f})"
