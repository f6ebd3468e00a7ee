"""Runs engines one after the other, validates their answers, and runs no job twice."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from grpodoctor.errors import EngineError
from grpodoctor.probe.engines.engine_facts import EngineFacts, parse_facts
from grpodoctor.probe.engines.engine_run import EngineProgress, EngineRun
from grpodoctor.probe.engines.failures import failure
from grpodoctor.probe.engines.jobs import (
    BudgetSpentError,
    Job,
    SampleJob,
    ScoreJob,
    Task,
    TokenizeJob,
    prompts_of,
)
from grpodoctor.probe.engines.loaded_engine import LoadedEngine
from grpodoctor.probe.engines.output_validation import name_recorded_prompts, validate_output
from grpodoctor.probe.engines.processes import ProgramExit, end_marked
from grpodoctor.probe.engines.store import DONE, Store, read_json, read_json_list, write_json
from grpodoctor.probe.inputs.engine_spec import EngineSpec

JobResult = Path | EngineError
"""The folder of a job's answer, or why there is none."""


class EngineRunner:
    """A `JobRunner` on this machine.

    Args:
        folder: where everything is stored; locked until `close`.
        prompts: the probe's prompts, in the form of a prompts file of the contract.
        deadline: on the monotonic clock; jobs not finished by then raise `BudgetSpentError`.
        watch: receives the progress of the running engine several times a second.

    Raises:
        RunError: if another probe uses the folder, or it cannot be written to.
    """

    def __init__(
        self,
        folder: Path,
        prompts: Sequence[Mapping[str, Any]],
        *,
        deadline: float = float("inf"),
        watch: Callable[[EngineProgress], None] = lambda _: None,
    ) -> None:
        self.store = Store(folder)
        end_marked(str(self.store.folder))  # processes that a killed probe may have left
        self.loaded = LoadedEngine(str(self.store.folder))
        self.deadline, self._watch = deadline, watch
        self.is_spent = False
        """Whether a job was refused or cut short because the time budget was spent."""
        self._failed: dict[str, EngineError] = {}
        """Errors by the key of an engine or the folder name of a job."""
        self.use_prompts(prompts)

    def use_prompts(self, prompts: Sequence[Mapping[str, Any]]) -> None:
        """Use these prompts from now on."""
        self.prompts = tuple(prompts)
        self._prompts_file = self.store.prompts(self.prompts)

    def prompts_of(self, rollouts: Path) -> tuple[Mapping[str, Any], ...]:
        """The prompts that responses were sampled from."""
        path = prompts_of(rollouts, self._prompts_file)
        if path == self._prompts_file:
            return self.prompts
        return tuple(prompt for prompt in read_json_list(path) if isinstance(prompt, dict))

    def close(self) -> None:
        """End the loaded engine, and release the folder."""
        try:
            self.loaded.close()
        finally:
            self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, engine: EngineSpec, jobs: Sequence[Job]) -> list[Path]:
        """Run jobs with one load of an engine; returns the folder of each answer, in order.

        Raises:
            EngineError: if the engine fails at a job; finished jobs are kept.
            BudgetSpentError: if no time is left.
        """
        paths: list[Path] = []
        for result in self.attempt(engine, jobs):
            if isinstance(result, EngineError):
                raise result
            paths.append(result)
        return paths

    def attempt(self, engine: EngineSpec, jobs: Sequence[Job]) -> list[JobResult]:
        """Like `run`, but returns the error of each failed job in its place.

        An engine that fails at one job is restarted for the others, unless it hangs. A failed job
        is not repeated in this probe.

        Raises:
            BudgetSpentError: if no time is left.
        """
        tasks = [self._task(engine, number, job) for number, job in enumerate(jobs)]
        while waiting := self._waiting(engine, tasks):
            self._run_engine(engine, waiting)
        return [task.output if task.is_done else self._error(engine, task) for task in tasks]

    def finished(self, engine: EngineSpec, jobs: Sequence[Job]) -> list[Path | None]:
        """The folder of each job whose answer exists; starts no engine."""
        tasks = [self._task(engine, number, job) for number, job in enumerate(jobs)]
        return [task.output if task.is_done else None for task in tasks]

    def where(self, engine: EngineSpec, job: Job) -> Path:
        """The folder of a job's answer, existing or not; later jobs of a call may refer to it."""
        return self._task(engine, 0, job).output

    def key(self, engine: EngineSpec) -> str:
        """The engine's key in the store."""
        return self.store.engine_key(engine)

    def part_of(self, rollouts: Path, responses: int) -> Path:
        """A folder with the first shards of another, with at least `responses` responses if any.

        Raises:
            EngineError: if a shard is damaged.
        """
        return self.store.part_of(rollouts, responses)

    def facts(self, engine: EngineSpec) -> EngineFacts:
        """The engine's description of itself; loads the engine if it never ran.

        Raises:
            EngineError: if the engine does not start.
            BudgetSpentError: if no time is left.
        """
        path, key = self.store.facts_path(engine), self.key(engine)
        if not path.exists() and key not in self._failed:
            self._run_engine(engine, [])
        if not path.exists():
            raise self._failed[key]
        try:
            return parse_facts(read_json(path))
        except ValueError as error:
            raise EngineError(
                f"the stored description of an engine is damaged: {error}",
                where=str(path),
                remedy="delete the file",
            ) from error

    def _task(self, engine: EngineSpec, number: int, job: Job) -> Task:
        prompts = self._prompts_file
        output = self.store.folder / job.folder(self.key(engine), prompts)
        if isinstance(job, ScoreJob):
            prompts = prompts_of(job.rollouts, prompts)
        return Task(job, f"{number}-{job.kind}", output, prompts)

    def _waiting(self, engine: EngineSpec, tasks: Sequence[Task]) -> list[Task]:
        """Tasks that are not done and may succeed, each output once."""
        if self.key(engine) in self._failed:
            return []
        self._fail_dependents(engine, tasks)
        waiting = {
            task.output: task
            for task in tasks
            if not task.is_done and task.output.name not in self._failed
        }
        return list(waiting.values())

    def _fail_dependents(self, engine: EngineSpec, tasks: Sequence[Task]) -> None:
        """Fail samples whose prompts cannot be tokenized, and scores whose samples failed."""
        tokenized = [task.output.name for task in tasks if isinstance(task.job, TokenizeJob)]
        unreadable = [self._failed[name] for name in tokenized if name in self._failed]
        for task in tasks:  # a record samples nothing, so it needs no prompts
            is_sampled = isinstance(task.job, SampleJob) and not engine.is_record
            if unreadable and is_sampled and not task.is_done:
                self._failed.setdefault(task.output.name, unreadable[0])
        for task in tasks:
            source = task.job.rollouts.name if isinstance(task.job, ScoreJob) else ""
            if source in self._failed:
                self._failed.setdefault(task.output.name, self._failed[source])

    def _error(self, engine: EngineSpec, task: Task) -> EngineError:
        return self._failed.get(task.output.name) or self._failed[self.key(engine)]

    def _run_engine(self, engine: EngineSpec, tasks: Sequence[Task]) -> None:
        """Run the engine once; afterwards each task is done, failed, or to be tried again."""
        if time.monotonic() >= self.deadline:
            self._spend()
        files = self.store.run_files(engine)
        files = replace(files, log=self.loaded.log_of(engine) or files.log)
        run = EngineRun(engine, tasks, files)
        try:
            program_exit = self._start(run)
        except EngineError as error:
            self._failed[self.key(engine)] = error
            return
        answer = run.answer()
        is_described = self._store_facts(run, answer)
        answered = self._accept(run, answer) if is_described else []
        if program_exit.reason == "out_of_time":
            self._spend()
        missing = [task for task in tasks if task not in answered]
        if missing or not is_described:
            # An engine that hung once is not started again.
            is_task_failure = is_described and program_exit.reason == "ended"
            failed = missing[0].output.name if is_task_failure else self.key(engine)
            self._failed.setdefault(failed, failure(engine, run.files.log, program_exit, answer))

    def _start(self, run: EngineRun) -> ProgramExit:
        watch = run.watcher(len(self.prompts), self._watch)
        return self.loaded.run(run, self.deadline, watch)

    def _store_facts(self, run: EngineRun, answer: Mapping[str, Any]) -> bool:
        """Store the engine's description of itself; whether there is a valid one."""
        description = answer.get("engine")
        if not isinstance(description, Mapping) or not description:
            return False
        facts = dict(description) | {key: answer.get(key) for key in ("python", "load_seconds")}
        try:
            parse_facts(facts)
        except ValueError as error:
            self._failed[self.key(run.engine)] = EngineError(
                f"the description that {run.engine.label} gives of itself is invalid: {error}",
                where=f"log: {run.files.log}",
                remedy="see Engine.describe in probes/contract/engine.py for the required keys",
            )
            return False
        write_json(self.store.facts_path(run.engine), facts)
        self.store.keep_key(run.engine)
        return True

    def _accept(self, run: EngineRun, answer: Mapping[str, Any]) -> list[Task]:
        """Validate the answered tasks; returns them, each done or failed for good."""
        results = answer.get("tasks")
        results = results if isinstance(results, Mapping) else {}
        answered = [task for task in run.tasks if task.name in results]
        for task in answered:
            inapplicable = _inapplicable(results[task.name])
            if inapplicable:
                self._failed[task.output.name] = EngineError(inapplicable)
                continue
            try:
                self._validate(run.engine, task)
            except EngineError as error:
                self._reject(run, task, error)
            else:
                write_json(task.output / DONE, results[task.name])
        return answered

    def _validate(self, engine: EngineSpec, task: Task) -> None:
        """Check an answer; the prompts of a record are stored with its responses.

        Raises:
            EngineError: if the answer is not what the task requested.
        """
        is_recorded = isinstance(task.job, SampleJob) and engine.is_record
        prompts = None if is_recorded else len(self.prompts)
        vocabulary = self.facts(engine).vocab_size
        validate_output(task, prompts=prompts, vocabulary=vocabulary)
        if is_recorded:
            name_recorded_prompts(task, self.store, engine.label)

    def _reject(self, run: EngineRun, task: Task, error: EngineError) -> None:
        """Store the error, and move the answer away so that the next probe does not use it."""
        rejected = task.output.with_name(f"{task.output.name}.refused-{time.time_ns()}")
        task.output.rename(rejected)
        self._failed[task.output.name] = EngineError(
            f"{run.engine.label}: {error.what}",
            where=f"log: {run.files.log}; answer: {rejected}",
            remedy=error.remedy or "read its log",
        )

    def _spend(self) -> None:
        self.is_spent = True
        raise BudgetSpentError(
            "the time budget is spent",
            where="--budget",
            remedy="run the probe again with the same --output",
        )


def _inapplicable(result: Any) -> str:
    """Why the engine's model does not allow a task's edits; empty if it does."""
    reason = result.get("inapplicable") if isinstance(result, Mapping) else None
    return str(reason)[:300] if reason else ""
