"""Reading all rollout dumps of a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from grpodoctor.frameworks.rollout_formats.base import DumpFormat
from grpodoctor.frameworks.rollout_formats.dump_file import DumpFile
from grpodoctor.runs.rollout_dumps.dumped_responses import DumpedResponses
from grpodoctor.runs.rollout_dumps.runners import Runner, ShardResult, runner_for
from grpodoctor.runs.rollout_dumps.shards import SHARD_BYTES, plan_shards
from grpodoctor.runs.rollout_dumps.step_merger import PromptRate, StepMerger
from grpodoctor.support.files.growing_files import Damage
from grpodoctor.support.numbers import count_of
from grpodoctor.support.progress import NoProgress, Progress
from grpodoctor.vocabulary.values import Reading

_MAX_NAMED = 5
"""Failed shards that get a note each."""
_MAX_DAMAGE = 100


@dataclass
class DumpReader:
    """Reads dumps once, shard by shard, in bounded memory.

    Args:
        files: the dumps with their formats.
        runner: where the shards are summarized; chosen by size if None.
        ray: Ray cluster to use instead: `local`, `auto` or an address.
        shard_bytes: size of a shard on disk.
        progress: receives the bytes of the shards that were read.
    """

    files: Sequence[tuple[DumpFormat, Path | DumpFile]]
    runner: Runner | None = None
    ray: str | None = None
    shard_bytes: int = SHARD_BYTES
    progress: Progress = field(default_factory=NoProgress)
    failed: list[str] = field(default_factory=list)
    """Shards that could not be read, with the reason; the result is incomplete without them."""
    damage: list[Damage] = field(default_factory=list)
    damaged: int = 0
    responses: int = 0
    """Number of responses."""
    pass_rates: list[PromptRate] = field(default_factory=list)
    late: int = 0
    """Responses in files of later steps."""
    dumped_responses: DumpedResponses = field(default_factory=DumpedResponses)
    """Locations of the responses, to read some of them again."""

    def steps(self) -> Iterator[tuple[int, dict[str, Reading]]]:
        """Yield the readings of every step, ascending if the file names contain the steps."""
        plan = plan_shards(self.files, self.shard_bytes)
        self.failed += plan.failed
        merger = StepMerger(plan.shards)
        size = sum(_size_of(file) for _, file in self.files)
        runner = self.runner or runner_for(size, self.ray)
        total, completed = sum(shard.size for shard in plan.shards), 0
        for index, results in enumerate(runner(plan.shards)):
            for result in results:
                self._note(result)
                if result.summary is not None:
                    merger.add(result.summary)
            completed += plan.shards[index].size
            self.progress.update(completed, total=total, detail="rollout dumps")
            yield from merger.complete_after(index)
        yield from merger.rest()
        self.pass_rates, self.late = merger.pass_rates(), merger.late

    def _note(self, result: ShardResult) -> None:
        if result.summary is None:
            self.failed.append(f"{result.shard.name}: {result.why}")
            return
        self.dumped_responses.note(result.shard, result.summary.table)
        self.responses += len(result.summary.table)
        self.damaged += result.summary.notes.damaged
        self.damage += result.summary.notes.damage[: max(0, _MAX_DAMAGE - len(self.damage))]

    def notes(self) -> list[str]:
        """Notes on the responses that were read or are missing, once the steps were read."""
        kinds = sorted({form.name for form, _ in self.files})
        notes = [f"rollout dumps: {', '.join(kinds)}, {count_of(self.responses, 'response')}"]
        if rates := [rate.correct / rate.responses for rate in self.pass_rates]:
            notes.append(
                f"of {count_of(len(rates), 'prompt')} in the dumps, {rates.count(0.0)} were never "
                f"solved and {rates.count(1.0)} always"
            )
        notes += [f"incomplete: not read: {failure}" for failure in self.failed[:_MAX_NAMED]]
        if len(self.failed) > _MAX_NAMED:
            notes.append(
                f"incomplete: not read: {count_of(len(self.failed) - _MAX_NAMED, 'more shard')}"
            )
        if self.late:
            notes.append(f"incomplete: {count_of(self.late, 'response')} in files of later steps")
        return notes


def _size_of(file: Path | DumpFile) -> int:
    try:
        return DumpFile.of(file).size()
    except OSError:
        return 0
