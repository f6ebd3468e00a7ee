"""The responses that a report shows: those the findings rest on, and the extremes of the end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpodoctor.errors import RunError
from grpodoctor.report.model import Report
from grpodoctor.report.vitals import number
from grpodoctor.runs.rollouts import read_rollouts, rollout_files

SHOWN = 8
"""Responses in a report, at most."""

_Row = dict[str, Any]

_EXTREMES = (
    ("logprob_diff_max", "widest gap between sampler and learner at this step"),
    ("length", "longest response at this step"),
    ("reward", "highest reward at this step"),
)
_COLUMNS = ("sequence_id", "prompt", "text", "reward", "correct", "truncated", "length",
            "logprob_diff_max")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sample:
    """One response, to be read by a person."""

    step: int
    sequence_id: str
    prompt: str
    text: str
    facts: str
    """Reward, correctness and length, on one line."""
    why: str
    """Why it is shown."""


def samples_of(report: Report, run_dir: Path) -> tuple[Sample, ...]:
    """The responses worth reading; none where no rollouts were recorded."""
    recorded = rollout_files(run_dir)
    if not recorded:
        return ()
    chosen: dict[str, Sample] = {}
    for sample in (
        *_named_in_evidence(report, run_dir, set(recorded)),
        *_at_the_end(run_dir, recorded),
    ):
        if len(chosen) < SHOWN:
            chosen.setdefault(sample.sequence_id, sample)
    return tuple(chosen.values())


def _named_in_evidence(report: Report, run_dir: Path, recorded: set[int]) -> Iterator[Sample]:
    for finding in report.findings:
        for each in finding.evidence:
            if each.where is None or each.step not in recorded:
                continue
            why = f"{finding.code}: {each.metric} {number(each.value)}"
            rows = [row for row in _rows(run_dir, each.step) if row["sequence_id"] == each.where]
            yield from (_sample(row, each.step, why) for row in rows[:1])


def _at_the_end(run_dir: Path, recorded: dict[int, list[Path]]) -> Iterator[Sample]:
    last = max(recorded)
    rows = _rows(run_dir, last)
    for column, why in _EXTREMES:
        known = [row for row in rows if row[column] is not None]
        if known:
            yield _sample(max(known, key=lambda row: float(row[column])), last, why)


def _rows(run_dir: Path, step: int) -> list[_Row]:
    try:
        rows: list[_Row] = read_rollouts(run_dir, step).select(list(_COLUMNS)).to_pylist()
    except (RunError, KeyError):
        # A half-copied or foreign file costs the samples of its step, not the report.
        return []
    return rows


def _sample(row: _Row, step: int, why: str) -> Sample:
    facts = [f"reward {number(row['reward'])}", f"{row['length']} tokens"]
    if row["correct"] is not None:
        facts.append("correct" if row["correct"] else "incorrect")
    if row["truncated"]:
        facts.append("truncated")
    return Sample(step, row["sequence_id"], row["prompt"], row["text"], ", ".join(facts), why)
