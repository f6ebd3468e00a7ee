"""One run of an engine's program: a request with tasks, and the answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grpodoctor.probe.contract import CONTRACT_VERSION, shard_paths
from grpodoctor.probe.engines.commands import command_of, model_of
from grpodoctor.probe.engines.failures import read_answer
from grpodoctor.probe.engines.jobs import Task, expected_shards
from grpodoctor.probe.engines.processes import Launch, ProgramExit, run_program
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
    """One run of an engine's program."""

    engine: EngineSpec
    tasks: Sequence[Task]
    files: RunFiles

    def start(
        self,
        *,
        prompts: int,
        deadline: float,
        mark: str,
        watch: Callable[[EngineProgress], None],
    ) -> ProgramExit:
        """Write the request and run the program to its end.

        Args:
            prompts: the number of prompts, from which the progress is computed.
            deadline: on the monotonic clock.
            mark: see `processes.MARK`.
            watch: receives the progress several times a second.

        Raises:
            EngineError: if the program cannot be started.
        """
        command = command_of(self.engine, self.files.request)
        for task in self.tasks:
            write_json(task.output / JOB, task.description(self.engine.label))
        write_json(self.files.request, self._request())
        launch = Launch(
            command,
            log=self.files.log,
            outputs=tuple(task.output for task in self.tasks),
            silence=self.engine.timeout,
            deadline=deadline,
            mark=mark,
        )
        return run_program(launch, self._watcher(prompts, watch))

    def answer(self) -> Mapping[str, Any]:
        """The program's answer; empty if there is none."""
        return read_answer(self.files.answer)

    def _request(self) -> dict[str, Any]:
        model, options = model_of(self.engine)
        return {
            "contract": CONTRACT_VERSION,
            "model": model,
            "options": options,
            "answer": str(self.files.answer),
            "tasks": [task.request() for task in self.tasks],
        }

    def _watcher(self, prompts: int, watch: Callable[[EngineProgress], None]) -> Callable[[], None]:
        started = time.monotonic()
        expected = sum(expected_shards(task, self.tasks, prompts) for task in self.tasks)
        activities = tuple(task.job.activity for task in self.tasks)

        def report() -> None:
            shards = sum(len(shard_paths(task.output)) for task in self.tasks)
            seconds = time.monotonic() - started
            watch(EngineProgress(self.engine.label, activities, shards, expected, seconds))

        return report
