"""Wording of the reports about a probe."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from grpodoctor.probe.comparison.correction_effects import EFFECTS
from grpodoctor.probe.engines.engine_facts import EngineFacts
from grpodoctor.probe.results.results import (
    Cell,
    Comparison,
    NamedCause,
    ProbeResult,
    Replayed,
)
from grpodoctor.probe.severity import (
    figure,
    is_exact,
    is_fault,
    level_of,
    measured_severity,
)
from grpodoctor.report.view import Tone
from grpodoctor.support.numbers import count_of
from grpodoctor.vocabulary.values import Max, NotApplicable, scalar

FIGURES: tuple[tuple[str, str], ...] = (
    ("mismatch/prob_diff_mean", "mean |Δp|, mean over responses"),
    ("mismatch/prob_diff_max", "largest |Δp| of a response, mean over responses"),
    ("mismatch/prob_diff_max/worst_sequence", "largest |Δp| of all responses"),
    ("mismatch/logprob_diff_mean", "mean |Δlogp|, mean over responses"),
    ("mismatch/logprob_diff_max", "largest |Δlogp| of a response, mean over responses"),
    ("mismatch/bias", "learner minus sampler, nats per token"),
    ("mismatch/kl_k1", "KL(sampler, learner), k1"),
    ("mismatch/kl_k3", "KL(sampler, learner), k3"),
    ("mismatch/chi2", "chi-square divergence"),
    ("mismatch/ess", "effective sample size, share of tokens"),
    ("mismatch/pearson", "correlation of the probabilities"),
    ("mismatch/far_rate", "tokens with |Δlogp| above ln 2"),
    ("mismatch/nonfinite", "tokens with non-finite log-probability"),
)
"""The metrics of a pair, in display order."""

_BEST_AT_ONE = frozenset({"mismatch/ess", "mismatch/pearson"})
_SETTING_TEXTS = {
    "prompts": "{} prompts",
    "from": "prompt source: {}",
    "samples": "{} responses per prompt",
    "max_tokens": "up to {} tokens",
}
"""Wording of settings whose names do not explain themselves."""
_NOTICEABLE = 0.005
"""Smallest change that is reported, as a share of the gap."""
_SINGULAR = {"agree": "agrees", "differ": "differs", "exact": "is exact"}
_PLURAL = {"exact": "are exact", "small gap": "small gaps", "large gap": "large gaps"}

CONTROL_MARKS = {True: "passed", False: "FAILED", None: "not run"}


def figure_rows(comparison: Comparison) -> Iterator[tuple[str, str, str, str]]:
    """Name, value, interval and source of every metric that was measured."""
    for metric, name in FIGURES:
        reading = comparison.readings.get(metric)
        if reading is None:
            continue
        if isinstance(reading, NotApplicable):
            yield name, "n/a", "", reading.why
            continue
        value = scalar(reading)
        interval = comparison.intervals.get(metric)
        where = _sequence_name(reading.where) if isinstance(reading, Max) and reading.where else ""
        shown = format_near_one if metric in _BEST_AT_ONE else format_small
        between = f"{shown(interval.low)} to {shown(interval.high)}" if interval else ""
        yield name, shown(value), between, where


def _sequence_name(where: str) -> str:
    """`prompt-14/0` in words; other names are unchanged."""
    prompt, _, sample = where.removeprefix("prompt-").partition("/")
    named = where.startswith("prompt-") and prompt.isdigit() and sample.isdigit()
    return f"prompt {prompt}, sample {sample}" if named else where


def format_small(value: float | None) -> str:
    """A number with three digits, with an exponent if it is below 0.001."""
    if value is None:
        return ""
    if not math.isfinite(value) or value == 0:
        return "0" if value == 0 else str(value)
    return f"{value:.2e}" if abs(value) < 1e-3 else f"{value:.3g}"


def format_near_one(value: float | None) -> str:
    """A number with two digits of its distance from 1, if it is close to 1."""
    if value is None or not 0.99 < value < 1 - 1e-9:
        return format_small(value)
    return f"{value:.{1 - math.floor(math.log10(1 - value))}f}"


def facts_line(result: ProbeResult) -> str:
    """What was compared, on one line."""
    measured = [cell.comparison for cell in result.cells if cell.comparison]
    tokens = max((comparison.tokens for comparison in measured), default=0)
    responses = max((comparison.responses for comparison in measured), default=0)
    parts = [_format_time(result.created), *_settings_texts(result.settings)]
    if measured:
        parts.append(f"up to {responses:,} responses and {tokens:,} tokens per pair")
    parts.append(f"{result.seconds:.0f} s")
    return " · ".join(parts)


def _format_time(created: str) -> str:
    try:
        return f"{datetime.fromisoformat(created):%Y-%m-%d %H:%M} UTC"
    except ValueError:
        return created


def _settings_texts(settings: Mapping[str, Any]) -> Iterator[str]:
    for name, value in settings.items():
        if isinstance(value, list | tuple):
            value = ", ".join(map(str, value))  # noqa: PLW2901 - the same, as text
        if value is not None:
            yield _SETTING_TEXTS.get(name, f"{name.replace('_', ' ')} {{}}").format(value)


def diagnosis_line(result: ProbeResult) -> str:
    """The result on one line: how many pairs were measured, and how many agree."""
    states = Counter(cell.status for cell in result.cells)
    parts = [f"{count_of(states['done'], 'pair')} measured"]
    if states["failed"]:
        parts.append(f"{states['failed']} failed")
    first_rounds = sum(c.status == "not_run" and c.comparison is not None for c in result.cells)
    if first_rounds:
        parts.append(f"{first_rounds} only in a first round")
    if states["not_run"] > first_rounds:
        parts.append(f"{states['not_run'] - first_rounds} not run")
    results = _results(result)
    return ", ".join(parts) + (f": {results}" if results else "")


def _results(result: ProbeResult) -> str:
    """How many pairs agree or differ, with the causes, most frequent first."""
    cells: dict[str, list[Cell]] = {}
    for cell in result.cells:
        if cell.comparison is not None and cell.status != "failed":
            cells.setdefault(standing(cell)[0], []).append(cell)
    parts = []
    for word, group in sorted(cells.items(), key=lambda item: -len(item[1])):
        causes = Counter(cause.cause for cell in group for cause in cell.causes)
        single = len(group) == 1
        names = ", ".join(
            cause if single else f"{cause} {count}" for cause, count in causes.most_common()
        )
        names = names or ", ".join(
            dict.fromkeys(f"{setting} was not tried" for cell in group for setting in cell.untried)
        )
        verb = (_SINGULAR if single else _PLURAL).get(word, word)
        parts.append(f"{len(group)} {verb}" + (f" ({names})" if names else ""))
    return "; ".join(parts)


def standing(cell: Cell) -> tuple[str, Tone]:
    """The result for a pair in a word or two, and its severity."""
    if cell.comparison is None:
        return ("failed", "critical") if cell.status == "failed" else ("not run", "warning")
    severity, level = measured_severity(cell), level_of(cell)
    if cell.untried and severity in ("none", "info"):
        return "unsure", "warning"
    faults = [cause for cause in cell.causes if is_fault(cell, cause)]
    if severity == "critical":
        is_number = figure(cell.comparison, "mismatch/nonfinite") == 0
        return "large gap" if is_number else "not finite", "critical"
    if severity == "warning":
        return "differ" if faults or level == "above" else "control failed", "warning"
    if any(cause.confidence == "possible" for cause in cell.causes) or level == "unsettled":
        return "unsure", "info"
    if severity == "info":
        return ("small gap" if level == "above" else "agree"), "info"
    if is_exact(cell.comparison):
        return "exact", "good"
    is_same = figure(cell.comparison, "mismatch/prob_diff_max/worst_sequence") == 0
    return "agree" if cell.gap is not None or is_same or cell.causes else "small gap", "good"


def reason_line(cell: Cell) -> str:
    """The causes of a gap; without a cause, the verdict or why there is none."""
    causes = ", ".join(f"{cause.cause} ({cause.confidence})" for cause in cell.causes)
    return causes or cell.verdict or cell.reason


def pair_text(cell: Cell, names: Mapping[str, str]) -> str:
    """The sampler, the learner and the response length of a cell."""
    sampler, learner = (names.get(label, label) for label in (cell.sampler, cell.learner))
    return f"{sampler} → {learner}, {cell.max_tokens} tokens"


def engine_line(facts: EngineFacts) -> str:
    """What an engine reported about itself."""
    layout = ", ".join(f"{name} {degree}" for name, degree in facts.layout.items() if degree > 1)
    parts = [f"{facts.name} {facts.version}", facts.dtype, facts.device, layout]
    parts += [f"log-probabilities {facts.logprobs}", f"loaded in {facts.load_seconds:.1f} s"]
    return " · ".join(part for part in parts if part)


def settings_line(facts: EngineFacts) -> str:
    """The other settings that an engine reported."""
    return ", ".join(f"{name} {value}" for name, value in facts.settings.items())


def explained_share(cause: NamedCause) -> str:
    """How much of the gap a cause explains; empty if that was not measured."""
    if cause.explained is None:
        return ""
    return f"explains {min(max(cause.explained, 0.0), 1.0):.0%} of the gap"


def format_percent(share: float | None) -> str:
    """A share in percent; empty for None."""
    if share is None:
        return ""
    return f"{share:.2%}" if math.isfinite(share) else "n/a"


def effect_rows(comparison: Comparison) -> Iterator[tuple[str, str, float, float | None]]:
    """Title of a correction, what it acts on, the share it acts on, the share of weight lost."""
    for effect in EFFECTS:
        share = comparison.effects.get(effect.name)
        if share is not None:
            yield effect.title, effect.over, share, comparison.effects.get(f"{effect.name}/lost")


def replay_line(replayed: Replayed) -> str:
    """How much of the gap routing replay removed, in one sentence."""
    agreement = replayed.experts.agreement
    before, after = replayed.kl_k3_before, replayed.kl_k3_after
    share = 1 - after / before if before > 0 else 0.0
    if share > _NOTICEABLE:
        effect = f"removes {share:.0%} of the gap"
    else:
        effect = "removes none of the gap" if share < -_NOTICEABLE else "changes nothing"
    return (
        f"Replaying the sampler's routing in the learner {effect}: k3 goes from "
        f"{format_small(before)} to {format_small(after)} and mean |Δp| from "
        f"{format_small(replayed.prob_diff_before)} to {format_small(replayed.prob_diff_after)} "
        f"({replayed.tokens:,} tokens, coverage {replayed.experts.coverage:.2%}, agreement "
        f"{'not reported' if agreement is None else f'{agreement:.2%}'})."
    )
