"""The responses that a report shows: those cited by findings, and the extremes of the last step."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from grpodoctor.errors import RunError
from grpodoctor.monitor.report import Report
from grpodoctor.monitor.vitals import format_number, format_reading
from grpodoctor.runs.rollouts import read_rollouts, rollout_files

MAX_RESPONSES = 8
"""Maximum number of responses in a report."""

_ResponseRow = dict[str, Any]

_EXTREMES = (
    ("logprob_diff_max", "largest log-probability gap between sampler and learner at this step"),
    ("length", "longest response at this step"),
    ("reward", "highest reward at this step"),
)
_COLUMNS = ("sequence_id", "prompt", "text", "reward", "correct", "truncated", "length",
            "logprob_diff_max")  # fmt: skip


@dataclass(frozen=True, slots=True)
class SampleResponse:
    """One response for a person to read."""

    step: int
    sequence_id: str
    prompt: str
    text: str
    facts: str
    """Reward, length and correctness, on one line."""
    reason: str
    """Why the report shows it."""


class ResponseSource(Protocol):
    """The individual responses of a run."""

    @property
    def steps(self) -> Collection[int]:
        """The steps that have responses."""

    def rows(self, step: int, wanted: Collection[str] = ()) -> Iterable[_ResponseRow]:
        """The responses of a step, possibly a subset that contains the `wanted` sequence ids."""


@dataclass(frozen=True)
class RecordedResponses:
    """The responses that our own recorder wrote."""

    directory: Path

    @property
    def steps(self) -> Collection[int]:
        """The steps that have responses."""
        return rollout_files(self.directory).keys()

    def rows(self, step: int, wanted: Collection[str] = ()) -> Iterable[_ResponseRow]:
        """All responses of a step."""
        del wanted
        try:
            table = read_rollouts(self.directory, step).select(list(_COLUMNS))
        except (RunError, KeyError):
            # An unreadable file costs the samples of its step, not the report.
            return []
        rows: list[_ResponseRow] = table.to_pylist()
        return rows


def sample_responses(report: Report, source: ResponseSource) -> tuple[SampleResponse, ...]:
    """The responses worth reading; empty if the run has no rollouts."""
    steps = frozenset(source.steps)
    if not steps:
        return ()
    chosen: dict[str, SampleResponse] = {}
    cited = _cited_as_evidence(report, source, steps)
    for sample in (*cited, *_extremes(source, max(steps))):
        if len(chosen) < MAX_RESPONSES:
            chosen.setdefault(sample.sequence_id, sample)
    return tuple(chosen.values())


def _cited_as_evidence(
    report: Report, source: ResponseSource, steps: frozenset[int]
) -> Iterator[SampleResponse]:
    reasons_by_step: dict[int, dict[str, str]] = {}
    for finding in report.findings:
        for evidence in finding.evidence:
            if evidence.where is not None and evidence.step in steps:
                value = format_reading(evidence.metric, evidence.value)
                reason = f"{finding.code}: {evidence.metric} {value}"
                reasons_by_step.setdefault(evidence.step, {}).setdefault(evidence.where, reason)
    for step, reasons in islice(reasons_by_step.items(), MAX_RESPONSES):
        missing = dict(reasons)
        for row in source.rows(step, reasons):
            if row["sequence_id"] in missing:
                yield _sample(row, step, missing.pop(row["sequence_id"]))
            if not missing:
                break


def _extremes(source: ResponseSource, last_step: int) -> Iterator[SampleResponse]:
    best: dict[str, _ResponseRow] = {}
    for row in source.rows(last_step):
        for column, _ in _EXTREMES:
            before = best.get(column)
            if row[column] is not None and (before is None or row[column] > before[column]):
                best[column] = row
    yield from (
        _sample(best[column], last_step, reason) for column, reason in _EXTREMES if column in best
    )


def _sample(row: _ResponseRow, step: int, reason: str) -> SampleResponse:
    facts = []
    if row["reward"] is not None:
        facts.append(f"reward {format_number(row['reward'])}")
    if row["length"] is not None:
        facts.append(f"{row['length']:g} tokens")
    if row["correct"] is not None:
        facts.append("correct" if row["correct"] else "incorrect")
    if row["truncated"]:
        facts.append("truncated")
    return SampleResponse(
        step=step,
        sequence_id=row["sequence_id"],
        prompt=row["prompt"],
        text=row["text"] or "",
        facts=", ".join(facts),
        reason=reason,
    )
