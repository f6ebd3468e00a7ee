"""The responses that a report shows: those the findings rest on, and the extremes of the end."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from grpodoctor.errors import RunError
from grpodoctor.monitor.report import Report
from grpodoctor.monitor.vitals import number
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


class Rollouts(Protocol):
    """Single responses of a run, whoever dumped them."""

    @property
    def steps(self) -> Collection[int]:
        """Those that have any."""

    def rows(self, step: int, wanted: Collection[str] = ()) -> Iterable[_Row]:
        """The responses of a step; those wanted are among them, whatever is left out."""


@dataclass(frozen=True)
class Recorded:
    """The responses that our own recorder wrote."""

    directory: Path

    @property
    def steps(self) -> Collection[int]:
        """Those that have any."""
        return rollout_files(self.directory).keys()

    def rows(self, step: int, wanted: Collection[str] = ()) -> Iterable[_Row]:
        """The responses of a step, all of them."""
        del wanted
        try:
            table = read_rollouts(self.directory, step).select(list(_COLUMNS))
        except (RunError, KeyError):
            # A half-copied or foreign file costs the samples of its step, not the report.
            return []
        rows: list[_Row] = table.to_pylist()
        return rows


def samples_of(report: Report, rollouts: Rollouts) -> tuple[Sample, ...]:
    """The responses worth reading; none where no rollouts were recorded."""
    steps = frozenset(rollouts.steps)
    if not steps:
        return ()
    chosen: dict[str, Sample] = {}
    named = _named_in_evidence(report, rollouts, steps)
    for sample in (*named, *_at_the_end(rollouts, max(steps))):
        if len(chosen) < SHOWN:
            chosen.setdefault(sample.sequence_id, sample)
    return tuple(chosen.values())


def _named_in_evidence(
    report: Report, rollouts: Rollouts, steps: frozenset[int]
) -> Iterator[Sample]:
    wanted: dict[int, dict[str, str]] = {}
    for finding in report.findings:
        for each in finding.evidence:
            if each.where is not None and each.step in steps:
                why = f"{finding.code}: {each.metric} {number(each.value)}"
                wanted.setdefault(each.step, {}).setdefault(each.where, why)
    for step, whys in islice(wanted.items(), SHOWN):
        missing = dict(whys)
        for row in rollouts.rows(step, whys):
            if row["sequence_id"] in missing:
                yield _sample(row, step, missing.pop(row["sequence_id"]))
            if not missing:
                break


def _at_the_end(rollouts: Rollouts, last: int) -> Iterator[Sample]:
    best: dict[str, _Row] = {}
    for row in rollouts.rows(last):
        for column, _ in _EXTREMES:
            before = best.get(column)
            if row[column] is not None and (before is None or row[column] > before[column]):
                best[column] = row
    yield from (_sample(best[column], last, why) for column, why in _EXTREMES if column in best)


def _sample(row: _Row, step: int, why: str) -> Sample:
    facts = []
    if row["reward"] is not None:
        facts.append(f"reward {number(row['reward'])}")
    if row["length"] is not None:
        facts.append(f"{row['length']:g} tokens")
    if row["correct"] is not None:
        facts.append("correct" if row["correct"] else "incorrect")
    if row["truncated"]:
        facts.append("truncated")
    return Sample(step, row["sequence_id"], row["prompt"], row["text"], ", ".join(facts), why)
