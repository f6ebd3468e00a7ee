"""One request to an engine's program, with its tasks, and the answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpodoctor.probe.contract import CONTRACT_VERSION, shard_paths
from grpodoctor.probe.engines.commands import model_of
from grpodoctor.probe.engines.failures import read_answer
from grpodoctor.probe.engines.jobs import Task, expected_shards
from grpodoctor.probe.engines.processes import Limits
from grpodoctor.probe.engines.store import JOB, RunFiles, write_json
from grpodoctor.probe.inputs.engine_spec import EngineSpec


@dataclass(frozen=True, slots=True)
class EngineProgress:
    """What an engine is doing, for a progress bar."""

    engine: str
    """Label of the engine."""
    activities: tuple[str, ...]
    """Its tasks in words."""
    shards: int
    """Shards written, of all tasks."""
    expected: int
    """Shards that all tasks will write."""
    seconds: float
    """Since the engine was started."""


@dataclass(frozen=True, slots=True)
class EngineRun:
    """One request to an engine's program."""

    engine: EngineSpec
    tasks: Sequence[Task]
    files: RunFiles

    def write(
        self, request_file: Path, following: Path | None = None, idle_seconds: float = 0.0
    ) -> None:
        """Write the request.

        Args:
            request_file: where the program reads it.
            following: where the program finds its next request; None if it shall end.
            idle_seconds: how long it waits for that.
        """
        model, options = model_of(self.engine)
        request: dict[str, Any] = {
            "contract": CONTRACT_VERSION,
            "model": model,
            "options": options,
            "answer": str(self.files.answer),
            "tasks": [task.request() for task in self.tasks],
        }
        if following is not None:
            request |= {"next": str(following), "idle_seconds": idle_seconds}
        for task in self.tasks:
            write_json(task.output / JOB, task.description(self.engine.label))
        write_json(request_file, request)

    def limits(self, deadline: float) -> Limits:
        """Limits of the program.

        Args:
            deadline: on the monotonic clock.
        """
        return Limits(
            outputs=tuple(task.output for task in self.tasks),
            silence=self.engine.timeout,
            deadline=deadline,
            is_waiting=lambda: self.answer().get("waiting") is True,
        )

    def answer(self) -> Mapping[str, Any]:
        """The program's answer; empty if there is none."""
        return read_answer(self.files.answer)

    def watcher(self, prompts: int, watch: Callable[[EngineProgress], None]) -> Callable[[], None]:
        """A function that reports the progress.

        Args:
            prompts: the number of prompts, from which the progress is computed.
            watch: receives the progress.
        """
        started = time.monotonic()
        expected = sum(expected_shards(task, self.tasks, prompts) for task in self.tasks)
        activities = tuple(task.job.activity for task in self.tasks)

        def report() -> None:
            shards = sum(len(shard_paths(task.output)) for task in self.tasks)
            seconds = time.monotonic() - started
            watch(EngineProgress(self.engine.label, activities, shards, expected, seconds))

        return report
