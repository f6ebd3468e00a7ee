"""The mismatch of a run as its log has it, as a view."""

from __future__ import annotations

import math
from collections.abc import Iterator

from grpodoctor.probe.run_mismatch.logged_mismatch import LEVELS, LoggedMismatch
from grpodoctor.report.probe.run_view import cause_card, trend_phrase
from grpodoctor.report.view import Block, Column, Section, Table, View
from grpodoctor.support.numbers import count_of
from grpodoctor.vocabulary.plain_names import plain_name

_WARNING = "only means of each step were logged: they do not show which tokens differ"

_TITLES = {
    "mismatch/kl_k3": "KL (k3)",
    "mismatch/kl_k1": "KL (k1)",
    "mismatch/logprob_diff_mean": "|Δlog p|",
    "mismatch/prob_diff_mean": "|Δp|",
    "mismatch/prob_diff_max": "max |Δp|",
    "mismatch/bias": "log ratio",
}


def view_of_logged(result: LoggedMismatch) -> View:
    """Translate the logged mismatch of a run."""
    return View(
        product="grpodoctor probe",
        page_title=f"Mismatch of {result.run}",
        heading=result.run,
        facts=f"{result.framework} · {count_of(len(result.steps), 'step')} of the log",
        diagnosis=_diagnosis(result),
        warnings=(f"{_WARNING}; for that, {result.recording}",),
        blocks=tuple(_blocks(result)),
        json=result.to_json,
    )


def _diagnosis(result: LoggedMismatch) -> str:
    sound, warning, critical = LEVELS[result.metric]
    value = abs(result.latest)
    limit = f"critical above {critical:g}" if value > critical else f"warning above {warning:g}"
    sound_word = "healthy" if value <= sound else "within limits"
    verdict = sound_word if result.severity == "info" else result.severity
    noun = plain_name(result.metric)
    trend = trend_phrase(result.trend, len(result.steps))
    return f"{verdict}: {noun} is {value:.2g} at step {result.steps[-1]} ({limit}); {trend}."


def _blocks(result: LoggedMismatch) -> Iterator[Block]:
    yield from (cause_card(cause, result.severity) for cause in result.causes)
    columns = ("step", *(_TITLES[name] for name in result.figures))
    rows = tuple(
        (str(step), *(_cell(values[row]) for values in result.figures.values()))
        for row, step in enumerate(result.steps)
    )
    yield Section("Steps", (Table(tuple(Column(name, numeric=True) for name in columns), rows),))


def _cell(value: float) -> str:
    return f"{value:.3g}" if math.isfinite(value) else ""
