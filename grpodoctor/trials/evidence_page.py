"""The evidence as Markdown (docs/evidence.md), as JSON and as table rows for the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from grpodoctor.trials.evidence import RemedyEvidence, RuleEvidence, TrialEvidence
from grpodoctor.trials.statistics import LEVEL, Difference, Share

NONE = "-"
RULE_COLUMNS = ("rule", "fired", "false alarms", "steps to the report")
REMEDY_COLUMNS = (
    "remedy",
    "control",
    "untreated",
    "treated",
    "gain",
    "at equal cost",
    "p",
    "target",
)


def rule_row(evidence: RuleEvidence) -> tuple[str, ...]:
    """The cells of `RULE_COLUMNS`."""
    delay = evidence.median_delay
    return (
        evidence.code,
        _share(evidence.fired),
        _share(evidence.false_alarms),
        NONE if delay is None else f"{delay:g} ({_range(evidence.delays)})",
    )


def remedy_row(evidence: RemedyEvidence) -> tuple[str, ...]:
    """The cells of `REMEDY_COLUMNS`."""
    before, after = evidence.target_untreated, evidence.target_treated
    moved = NONE if before is None or after is None else f"{before:.3g} → {after:.3g}"
    name = f"{evidence.remedy}, {evidence.variant}" if evidence.variant else evidence.remedy
    return (
        name,
        _number(evidence.control),
        _number(evidence.untreated),
        _number(evidence.treated),
        _difference(evidence.gain),
        _difference(evidence.matched_gain),
        NONE if evidence.adjusted_p is None else f"{evidence.adjusted_p:.3f}",
        f"{evidence.target} {moved}",
    )


def markdown(found: Sequence[TrialEvidence]) -> str:
    """The page of all trials."""
    return "\n".join(_page(found)).rstrip() + "\n"


def as_json(found: Sequence[TrialEvidence]) -> list[dict[str, Any]]:
    """The evidence for programs."""
    return [_trial_json(each) for each in found]


def summary(found: Sequence[TrialEvidence]) -> list[str]:
    """The counts over all trials, one sentence each."""
    rules = [rule for each in found for rule in each.rules if rule.fired.runs]
    remedies = [remedy for each in found for remedy in each.remedies]
    reliable = [rule for rule in rules if rule.fired.hits >= 0.9 * rule.fired.runs]
    quiet = [rule for rule in rules if not rule.false_alarms.hits]
    helpful = [each for each in remedies if each.helps]
    harmful = [each for each in remedies if each.harms]
    lines = [
        f"{len(reliable)} of {len(rules)} rules fired in at least 90 % of their diseased runs.",
        f"{len(quiet)} of {len(rules)} rules fired in no control.",
        f"{len(helpful)} of {len(remedies)} treatments improved the outcome, and "
        f"{len(harmful)} made it worse: their {LEVEL:.0%} interval excludes zero.",
    ]
    failures = [line for each in found for line in each.failed]
    if failures:
        lines.append(f"Incomplete: {len(failures)} runs have no result ({failures[0]}).")
    if any(each.seeds < 2 for each in found):
        lines.append("With one seed there are no intervals: repeat with --seeds 2 or more.")
    return lines


def _page(found: Sequence[TrialEvidence]) -> Iterator[str]:
    yield "# Evidence"
    yield ""
    yield "Trials of rules and remedies on the bundled trainer. In each trial, the same seeds train"
    yield "a *control*, a run with the *disease*, and a run of the disease with each remedy from"
    yield "the first step. The seed varies the initial weights, the problems and the sampling."
    yield ""
    yield "```"
    yield "grpodoctor trials --output-format markdown"
    yield "```"
    yield ""
    yield from (f"- {line}" for line in summary(found))
    yield ""
    yield "**fired** and **false alarms** count runs with a warning or a critical finding of the"
    yield "rule. **Outcome** is the held-out accuracy of the last three evaluations. **gain** is"
    yield f"the outcome treated minus untreated, paired by seed, with its {LEVEL:.0%} t interval"
    yield "(the interval of a mixed model with a random effect of the seed). **at equal cost**"
    yield "compares the runs within the token passes of the cheaper one: one for each sampled or"
    yield "scored token, three for each token of an update. **p** is corrected by Holm's method"
    yield "over all treatments of this page. **target** is the metric that the remedy should move,"
    yield "at the end of the run, untreated → treated."
    for each in found:
        yield ""
        yield from _trial_section(each)


def _trial_section(found: TrialEvidence) -> Iterator[str]:
    trial = found.trial
    yield f"## {trial.name}"
    yield ""
    yield trial.question
    yield ""
    yield f"{found.seeds} seeds, {trial.steps} steps. Disease: {_disease(found)}."
    if found.rules:
        yield ""
        yield from _table(RULE_COLUMNS, map(rule_row, found.rules))
    if found.remedies:
        yield ""
        yield from _table(REMEDY_COLUMNS, map(remedy_row, found.remedies))
    if found.others:
        others = ", ".join(f"{code} ({count})" for code, count in found.others)
        yield ""
        yield f"Other rules that fired in the diseased runs: {others}."
    for line in found.failed:
        yield ""
        yield f"No result: {line}."


def _disease(found: TrialEvidence) -> str:
    disease = found.trial.disease
    settings = (*found.trial.settings, *disease.settings)
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


def _trial_json(found: TrialEvidence) -> dict[str, Any]:
    return {
        "trial": found.trial.name,
        "question": found.trial.question,
        "seeds": found.seeds,
        "steps": found.trial.steps,
        "rules": [
            {**asdict(each), "median_delay": each.median_delay, "interval": each.fired.interval}
            for each in found.rules
        ],
        "remedies": [
            {**asdict(each), "helps": each.helps, "harms": each.harms} for each in found.remedies
        ],
        "others": dict(found.others),
        "failed": list(found.failed),
    }


def _share(share: Share) -> str:
    return f"{share.hits}/{share.runs}"


def _range(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return f"{low}" if low == high else f"{low}-{high}"


def _number(value: float | None) -> str:
    return NONE if value is None else f"{value:.3f}"


def _difference(difference: Difference | None) -> str:
    if difference is None:
        return NONE
    if difference.low is None or difference.high is None:
        return f"{difference.mean:+.3f}"
    return f"{difference.mean:+.3f} ({difference.low:+.3f} to {difference.high:+.3f})"
