"""Reading the rollout dumps of a run, whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from grpodoctor.frameworks.rollout_formats.base import DumpFormat
from grpodoctor.frameworks.rollout_formats.dump_file import DumpFile
from grpodoctor.runs.rollout_dumps.dumped_responses import DumpedResponses
from grpodoctor.runs.rollout_dumps.runners import Runner, ShardResult, runner_for
from grpodoctor.runs.rollout_dumps.shards import SHARD_BYTES, ShardPlan, plan
from grpodoctor.runs.rollout_dumps.step_merger import PromptRate, StepMerger
from grpodoctor.support.damage import Damage
from grpodoctor.vocabulary.values import Reading

_NAMED = 5
"""Shards that a note names one by one."""


@dataclass
class DumpReader:
    """Reads dumps once, shard by shard, in bounded memory.

    Args:
        files: the dumps with their formats.
        runner: where the shards are summarised; chosen by size if None.
        ray: a Ray cluster instead: `local`, `auto` or its address.
        shard_bytes: size of a shard on disk.
    """

    files: Sequence[tuple[DumpFormat, Path | DumpFile]]
    runner: Runner | None = None
    ray: str | None = None
    shard_bytes: int = SHARD_BYTES
    failed: list[str] = field(default_factory=list)
    """Shards that could not be read, with the reason: the answer is incomplete without them."""
    damage: list[Damage] = field(default_factory=list)
    damaged: int = 0
    responses: int = 0
    pass_rates: list[PromptRate] = field(default_factory=list)
    late: int = 0
    texts: DumpedResponses = field(default_factory=DumpedResponses)
    """Where the responses stand, for whoever wants to read some of them."""

    @property
    def is_incomplete(self) -> bool:
        """Whether something is missing of what the dumps hold."""
        return bool(self.failed or self.late)

    def steps(self) -> Iterator[tuple[int, dict[str, Reading]]]:
        """The readings of every step, ascending where the files' names tell the steps."""
        made: ShardPlan = plan(self.files, self.shard_bytes)
        self.failed += made.refused
        fold = StepMerger(made.shards)
        size = sum(_size_of(given) for _, given in self.files)
        runner = self.runner or runner_for(size, self.ray)
        for index, outcomes in enumerate(runner(made.shards)):
            for outcome in outcomes:
                self._note(outcome)
                if outcome.summary is not None:
                    fold.add(outcome.summary)
            yield from fold.whole_after(index)
        yield from fold.rest()
        self.pass_rates, self.late = fold.pass_rates(), fold.late

    def _note(self, outcome: ShardResult) -> None:
        if outcome.summary is None:
            self.failed.append(f"{outcome.shard.name}: {outcome.why}")
            return
        self.texts.note(outcome.shard, outcome.summary.digest)
        self.responses += len(outcome.summary.digest)
        self.damaged += outcome.summary.notes.damaged
        self.damage += outcome.summary.notes.damage[: max(0, 100 - len(self.damage))]

    def notes(self) -> list[str]:
        """What was read and what was not, a line each; once the steps were read."""
        kinds = sorted({form.name for form, _ in self.files})
        lines = [f"rollout dumps: {', '.join(kinds)}, {self.responses} responses"]
        if rates := [each.correct / each.responses for each in self.pass_rates]:
            lines.append(
                f"of {len(rates)} prompts of the dumps {rates.count(0.0)} were never solved and"
                f" {rates.count(1.0)} always"
            )
        lines += [f"incomplete: not read: {each}" for each in self.failed[:_NAMED]]
        if len(self.failed) > _NAMED:
            lines.append(f"incomplete: {len(self.failed) - _NAMED} more shards were not read")
        if self.late:
            lines.append(f"incomplete: {self.late} responses stand in files of later steps")
        return lines


def _size_of(given: Path | DumpFile) -> int:
    try:
        return DumpFile.of(given).size()
    except OSError:
        return 0
