"""Reads the log-probabilities of both sides from the rollouts of a run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from grpodoctor.errors import RunError
from grpodoctor.frameworks.bundled.rollouts import FORMAT as BUNDLED
from grpodoctor.frameworks.rollout_formats.base import DamageLog, DumpFormat, FilePart, Responses
from grpodoctor.frameworks.rollout_formats.registry import (
    dump_format_named,
    dumps_among,
    empty_dumps,
)
from grpodoctor.probe.run_mismatch.missing_side import empty_files, missing_side, no_dump
from grpodoctor.probe.run_mismatch.run_source import RecordedIds
from grpodoctor.runs.rollout_dumps.shards import plan_shards
from grpodoctor.support.files.regular_files import files_below

_MAX_TOKENS = 200_000
"""Tokens that are kept of a step: enough for every figure, in constant memory."""

_MAX_LOGPROB = 0.5
"""A log-softmax in bfloat16 exceeds 0 by rounding; larger values are no log-probabilities."""

_ID_LEVELS: tuple[RecordedIds, ...] = ("none", "responses", "prompts")


@dataclass(frozen=True, slots=True)
class StepTokens:
    """The tokens of a step that have finite log-probabilities on both sides."""

    step: int
    sampler_N: NDArray[np.float64]
    learner_N: NDArray[np.float64]
    row_N: NDArray[np.int64]
    """Number of the token's response."""
    position_N: NDArray[np.int64]
    """Number of the token in its response."""
    length_N: NDArray[np.int64]
    """Tokens of its response."""
    nonfinite: int
    """Tokens that were left out: a value is not finite, or too large for a log-probability."""
    ids: RecordedIds = "prompts"
    """What a live engine can be given to score the responses again."""

    @property
    def difference_N(self) -> NDArray[np.float64]:
        """Log-probability under the learner minus that under the sampler."""
        return self.learner_N - self.sampler_N


@dataclass(frozen=True, slots=True)
class RecordedTokens:
    """The last steps of a run."""

    steps: tuple[StepTokens, ...]
    """Ascending."""
    frameworks: tuple[str, ...]
    """The framework whose rollouts were read."""
    damaged: int
    """Entries and files of the dumps that could not be read."""
    incomplete: int = 0
    """Responses without the log-probabilities of both sides."""
    newest_step: int = 0
    """The last step of the dumps, with or without log-probabilities."""
    empty: tuple[str, ...] = ()
    """Names of the dumps of 0 bytes."""


@dataclass(slots=True)
class _Seen:
    """What was read next to the tokens."""

    notes: DamageLog
    incomplete: int = 0
    newest_step: int = 0

    def add(self, responses: Responses) -> None:
        """Count the responses without both sides."""
        learner = responses.learner
        is_paired = learner is not None and responses.sampler is not None
        whole = int((learner.lengths_B > 0).sum()) if learner is not None and is_paired else 0
        self.incomplete += len(responses) - whole
        self.newest_step = max(self.newest_step, int(responses.steps_B.max(initial=0)))


def read_recorded_tokens(run: Path, steps: int) -> RecordedTokens:
    """The tokens of the last steps that have both sides.

    Rollouts of two formats in one directory are two records of the same responses, or two runs.
    They are never pooled: the first format that has both sides is read, our own before others.

    Args:
        run: the run's directory, or a dump.
        steps: maximum number of steps.

    Raises:
        RunError: if there is no dump, or none has both sides.
    """
    if not run.exists():
        raise RunError("there is no run", where=str(run), remedy="check the path")
    files = list(files_below(run)) if run.is_dir() else [run]
    dumps = dumps_among(files)
    empty = empty_dumps(files, dumps)
    if not dumps:
        raise empty_files(empty) if empty else no_dump(run)
    for framework in sorted({form.framework for form, _ in dumps}, key=_own_first):
        own = [(form, path) for form, path in dumps if form.framework == framework]
        seen = _Seen(DamageLog())
        if kept := _last_steps(own, steps, seen):
            return RecordedTokens(
                tuple(kept[step] for step in sorted(kept)),
                (framework,),
                seen.notes.damaged,
                seen.incomplete,
                max(seen.newest_step, *kept),
                tuple(sorted(path.name for path in empty)),
            )
    raise missing_side(run, dumps)


def _own_first(framework: str) -> tuple[bool, str]:
    return framework != BUNDLED.framework, framework


def _last_steps(
    dumps: Sequence[tuple[DumpFormat, Path]], most: int, seen: _Seen
) -> dict[int, StepTokens]:
    """The newest files come first, so that older ones are not read if their steps are named."""
    plan = plan_shards(dumps)
    for failure in plan.failed:
        name, _, why = failure.partition(": ")
        seen.notes.damaged_at(name, 0, why)
    pieces = [(shard.format, piece) for shard in plan.shards for piece in shard.pieces]
    collected: dict[int, list[StepTokens]] = defaultdict(list)
    for form, piece in sorted(pieces, key=lambda entry: -_step_of(entry[1])):
        if piece.step is not None and len(collected) >= most and piece.step < min(collected):
            continue
        for tokens in _tokens_of(form, piece, seen):
            if sum(part.sampler_N.size for part in collected[tokens.step]) < _MAX_TOKENS:
                collected[tokens.step].append(tokens)
        for step in sorted(collected)[:-most]:
            del collected[step]
    return {step: joined(parts) for step, parts in collected.items() if parts}


def _step_of(piece: FilePart) -> int:
    return -1 if piece.step is None else piece.step


def _tokens_of(form: str, piece: FilePart, seen: _Seen) -> Iterator[StepTokens]:
    """The tokens of a part of a dump, by step; unreadable parts are counted."""
    try:
        for responses in dump_format_named(form).read(piece, seen.notes):
            seen.add(responses)
            yield from _by_step(responses)
    except (RunError, OSError, ValueError) as error:
        seen.notes.damaged_at(Path(piece.path).name, 0, str(error))


def _by_step(responses: Responses) -> Iterator[StepTokens]:
    learner, sampler = responses.learner, responses.sampler
    if learner is None or sampler is None or not learner.fits(sampler):
        return
    rows_N = np.repeat(np.arange(len(learner)), learner.lengths_B)
    first, last = int(learner.offsets_B[0]), int(learner.offsets_B[-1])
    start = int(sampler.offsets_B[0])
    learner_N = np.asarray(learner.values_N[first:last], float)
    sampler_N = np.asarray(sampler.values_N[start : start + learner_N.size], float)
    position_N = np.arange(learner_N.size) - (learner.offsets_B[:-1] - first)[rows_N]
    finite_N = _are_logprobs(learner_N) & _are_logprobs(sampler_N)
    for step in np.unique(responses.steps_B).tolist():
        own_N = responses.steps_B[rows_N] == step
        chosen_N = own_N & finite_N
        if chosen_N.any():
            yield StepTokens(
                int(step), sampler_N[chosen_N], learner_N[chosen_N], rows_N[chosen_N],
                position_N[chosen_N], learner.lengths_B[rows_N][chosen_N],
                int((own_N & ~finite_N).sum()), _ids_of(responses),
            )  # fmt: skip


def _are_logprobs(values_N: NDArray[np.float64]) -> NDArray[np.bool_]:
    return np.isfinite(values_N) & (values_N <= _MAX_LOGPROB)


def _ids_of(responses: Responses) -> RecordedIds:
    if responses.sequences is not None:
        return "prompts"
    return "none" if responses.tokens is None else "responses"


def joined(parts: Sequence[StepTokens]) -> StepTokens:
    """Parts of one step; the numbers of responses stay distinct."""
    rows, start = [], 0
    for part in parts:
        rows.append(part.row_N + start)
        start += int(part.row_N.max(initial=-1)) + 1
    return StepTokens(
        parts[0].step,
        np.concatenate([part.sampler_N for part in parts]),
        np.concatenate([part.learner_N for part in parts]),
        np.concatenate(rows),
        np.concatenate([part.position_N for part in parts]),
        np.concatenate([part.length_N for part in parts]),
        sum(part.nonfinite for part in parts),
        min((part.ids for part in parts), key=_ID_LEVELS.index),
    )
