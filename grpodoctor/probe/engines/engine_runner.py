"""Runs engines one after the other, checks what they answer, and does nothing twice."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from pydantic import TypeAdapter, ValidationError

from grpodoctor.errors import EngineError
from grpodoctor.probe.engines.job_files import CONTRACT, Task, kind_of, prompts_of, shards_of
from grpodoctor.probe.engines.jobs import (
    BudgetSpentError,
    EngineFacts,
    Job,
    SampleJob,
    ScoreJob,
    TokenizeJob,
)
from grpodoctor.probe.engines.launch import (
    Ended,
    Launch,
    command_of,
    end_marked,
    failure,
    launch,
    model_of,
    read_answer,
)
from grpodoctor.probe.engines.output_validation import check_ids, check_sampled, check_scored
from grpodoctor.probe.engines.shards import read_shard, read_shards, shard_paths
from grpodoctor.probe.engines.store import (
    DONE,
    JOB,
    Store,
    engine_key,
    files_of,
    read_json,
    read_json_list,
    write_json,
)
from grpodoctor.probe.inputs.engine_spec import EngineSpec

JobResult = Path | EngineError
_FACTS = TypeAdapter(EngineFacts)


@dataclass(frozen=True, slots=True)
class EngineProgress:
    """What an engine is busy with; for a progress bar."""

    engine: str
    """Label."""
    tasks: tuple[str, ...]
    """In words."""
    shards: int
    """That are there, of all tasks."""
    expected: int
    """That will be there when all is done."""
    seconds: float
    """Since it was started."""


@dataclass(frozen=True, slots=True)
class _Errand:
    """One start of an engine's program."""

    engine: EngineSpec
    tasks: Sequence[Task]
    request: Path
    answer: Path
    log: Path


class EngineRunner:
    """A `JobRunner` on this machine.

    Args:
        folder: where everything is kept; locked until `close`.
        prompts: the probe's prompts, in the form of a prompts file of `probes/contract.py`.
        deadline: on the monotonic clock; what is not done by then raises `BudgetSpentError`.
        watch: told several times a second what runs.

    Raises:
        RunError: if another probe works in the folder, or it cannot be written to.
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
        end_marked(str(self.store.folder))  # what a killed probe may have left at work here
        self.deadline, self._watch = deadline, watch
        self.is_spent = False
        """Whether a job was refused or cut off because the time was over."""
        self._failed: dict[str, EngineError] = {}
        self._keys: dict[str, str] = {}
        self._files: dict[str, dict[str, object]] = {}
        # Names are not used twice: an answer of an earlier probe must not be taken for a new one.
        self._launches = sum(1 for _ in (self.store.folder / "logs").glob("*.log"))
        self.use_prompts(prompts)

    def use_prompts(self, prompts: Sequence[Mapping[str, Any]]) -> None:
        """Ask these prompts from now on."""
        self.prompts = tuple(prompts)
        self._prompts = self.store.prompts(self.prompts)

    def prompts_of(self, rollouts: Path) -> tuple[Mapping[str, Any], ...]:
        """The prompts that responses were drawn for."""
        path = prompts_of(rollouts, self._prompts)
        if path == self._prompts:
            return self.prompts
        told = read_json_list(path)
        return tuple(each for each in told if isinstance(each, dict))

    def close(self) -> None:
        """Let the next probe into the folder."""
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, engine: EngineSpec, jobs: Sequence[Job]) -> list[Path]:
        """Do jobs with an engine that is loaded once; the folder of each job's answer, in order.

        Raises:
            EngineError: if the engine cannot do one of them; those it could are kept.
            BudgetSpentError: if there is no time left.
        """
        paths: list[Path] = []
        for outcome in self.attempt(engine, jobs):
            if isinstance(outcome, EngineError):
                raise outcome
            paths.append(outcome)
        return paths

    def attempt(self, engine: EngineSpec, jobs: Sequence[Job]) -> list[JobResult]:
        """As `run`, but with the error of each job that failed in its place.

        An engine that fails at one job is started again for the others, unless it hangs. What has
        failed is not tried again in this probe.

        Raises:
            BudgetSpentError: if there is no time left.
        """
        tasks = [self._task(engine, number, job) for number, job in enumerate(jobs)]
        while waiting := self._waiting(engine, tasks):
            self._launch(engine, waiting)
        return [task.output if task.is_done else self._error(engine, task) for task in tasks]

    def finished(self, engine: EngineSpec, jobs: Sequence[Job]) -> list[Path | None]:
        """The folder of each job whose answer is there; engines are left alone."""
        tasks = [self._task(engine, number, job) for number, job in enumerate(jobs)]
        return [task.output if task.is_done else None for task in tasks]

    def where(self, engine: EngineSpec, job: Job) -> Path:
        """Where the answer of a job is, or will be: later jobs of the same call may name it."""
        return self._task(engine, 0, job).output

    def key(self, engine: EngineSpec) -> str:
        """The engine's key in the store; the files of its model are looked at once a probe."""
        if engine.key not in self._keys:
            self._files[engine.key] = files_of(engine)
            key = engine_key(engine)
            told = read_json(self._alias_path(key)).get("key")
            self._keys[engine.key] = told if isinstance(told, str) else key
        return self._keys[engine.key]

    def _alias_path(self, key: str) -> Path:
        return self.store.folder / "engines" / f"{key}.alias.json"

    def _note_download(self, engine: EngineSpec) -> None:
        """Have the next probe know an engine again that has fetched its model from the hub."""
        before, now = self._files[engine.key], files_of(engine)
        if before != now and before.items() <= now.items():
            write_json(self._alias_path(engine_key(engine)), {"key": self.key(engine)})

    def _task(self, engine: EngineSpec, number: int, job: Job) -> Task:
        output = self.store.folder_of(self.key(engine), job, self._prompts)
        prompts = self._prompts
        if isinstance(job, ScoreJob):
            prompts = prompts_of(job.rollouts, prompts)
        return Task(job, f"{number}-{kind_of(job)}", output, prompts)

    def _waiting(self, engine: EngineSpec, tasks: Sequence[Task]) -> list[Task]:
        """What is still to be done and may succeed, each answer once."""
        if self.key(engine) in self._failed:
            return []
        told = [task.output.name for task in tasks if isinstance(task.job, TokenizeJob)]
        unread = [self._failed[name] for name in told if name in self._failed]
        for task in tasks:  # what cannot be read cannot be answered, save from a record
            drawn = isinstance(task.job, SampleJob) and not engine.is_record
            if unread and drawn and not task.is_done:
                self._failed.setdefault(task.output.name, unread[0])
        for task in tasks:  # what was to be scored may not have been sampled
            source = task.job.rollouts.name if isinstance(task.job, ScoreJob) else ""
            if source in self._failed:
                self._failed.setdefault(task.output.name, self._failed[source])
        waiting = {
            task.output: task
            for task in tasks
            if not task.is_done and task.output.name not in self._failed
        }
        return list(waiting.values())

    def _error(self, engine: EngineSpec, task: Task) -> EngineError:
        return self._failed.get(task.output.name) or self._failed[self.key(engine)]

    def _launch(self, engine: EngineSpec, tasks: Sequence[Task]) -> None:
        """Start the engine once; afterwards a task is done, failed, or to be tried again."""
        if time.monotonic() >= self.deadline:
            self._spend()
        errand = self._errand(engine, tasks)
        try:
            ended = self._start(errand)
        except EngineError as error:
            self._failed[self.key(engine)] = error
            return
        answer = read_answer(errand.answer)
        is_known = self._note_facts(errand, answer)
        answered = self._accept(errand, answer) if is_known else []
        if ended.how == "out_of_time":
            self._spend()
        missing = [task for task in tasks if task not in answered]
        if missing or not is_known:
            # Who was silent for so long once is not waited for again.
            is_its = is_known and ended.how == "ended"
            blamed = missing[0].output.name if is_its else self.key(engine)
            self._failed.setdefault(blamed, failure(engine, errand.log, ended, answer))

    def _errand(self, engine: EngineSpec, tasks: Sequence[Task]) -> _Errand:
        self._launches += 1
        name = f"{time.strftime('%Y%m%d-%H%M%S')}-{self._launches:03d}-{engine.engine}"
        requests = self.store.folder / "requests"
        return _Errand(
            engine,
            tasks,
            request=requests / f"{name}.json",
            answer=requests / f"{name}.answer.json",
            log=self.store.folder / "logs" / f"{name}.log",
        )

    def _start(self, errand: _Errand) -> Ended:
        engine, tasks = errand.engine, errand.tasks
        command = command_of(engine, errand.request)
        model, options = model_of(engine)
        for task in tasks:
            write_json(task.output / JOB, task.memo(engine.label))
        request = {"contract": CONTRACT, "model": model, "options": options}
        request |= {"answer": str(errand.answer), "tasks": [task.request() for task in tasks]}
        write_json(errand.request, request)
        order = Launch(
            command,
            log=errand.log,
            outputs=tuple(task.output for task in tasks),
            silence=engine.timeout,
            deadline=self.deadline,
            mark=str(self.store.folder),
        )
        return launch(order, self._watcher(errand))

    def _watcher(self, errand: _Errand) -> Callable[[], None]:
        began, tasks = time.monotonic(), errand.tasks
        expected = sum(shards_of(task, tasks, len(self.prompts)) for task in tasks)
        words = tuple(task.words for task in tasks)

        def watch() -> None:
            shards = sum(len(shard_paths(task.output)) for task in tasks)
            seconds = time.monotonic() - began
            self._watch(EngineProgress(errand.engine.label, words, shards, expected, seconds))

        return watch

    def _note_facts(self, errand: _Errand, answer: Mapping[str, Any]) -> bool:
        """Keep what an engine says of itself; whether it has."""
        described = answer.get("engine")
        if not isinstance(described, Mapping) or not described:
            return False
        told = dict(described) | {key: answer.get(key) for key in ("python", "load_seconds")}
        try:
            _FACTS.validate_python(told)
        except ValidationError as error:
            self._failed[self.key(errand.engine)] = EngineError(
                f"{errand.engine.label} does not say what it is: {_first(error)}",
                where=f"log: {errand.log}",
                remedy="see Engine.describe in probes/contract.py for what is asked",
            )
            return False
        write_json(self._facts_path(errand.engine), told)
        self._note_download(errand.engine)
        return True

    def _accept(self, errand: _Errand, answer: Mapping[str, Any]) -> list[Task]:
        """Check what was answered; returns those tasks, which are done or have failed for good."""
        told = answer.get("tasks")
        results = told if isinstance(told, Mapping) else {}
        answered = [task for task in errand.tasks if task.name in results]
        for task in answered:
            try:
                self._check(errand, task)
            except EngineError as error:
                self._refuse(errand, task, error)
            else:
                write_json(task.output / DONE, results[task.name])
        return answered

    def _check(self, errand: _Errand, task: Task) -> None:
        engine = errand.engine
        if isinstance(task.job, SampleJob):
            prompts = None if engine.is_record else len(self.prompts)
            vocabulary = self.facts(engine).vocab_size
            check_sampled(task.output, task.job.sampling, prompts, vocabulary)
            if engine.is_record:
                self._name_prompts(errand, task)
        elif isinstance(task.job, ScoreJob):
            check_scored(task.job.rollouts, task.output)
        else:
            check_ids(task.output / "ids.json", len(self.prompts))

    def _name_prompts(self, errand: _Errand, task: Task) -> None:
        """Say which prompts the responses of a record are to: its own, and not the probe's."""
        ids: dict[int, list[int]] = {}
        for shard in read_shards(task.output):
            parts = np.split(shard.prompt_ids_P, shard.prompt_offsets[1:-1])
            ids |= {int(at): part.tolist() for at, part in zip(shard.prompt_B, parts, strict=True)}
        prompts = [{"ids": ids.get(at, [])} for at in range(max(ids, default=-1) + 1)]
        own = replace(task, prompts=self.store.prompts(prompts))
        write_json(task.output / JOB, own.memo(errand.engine.label))

    def _refuse(self, errand: _Errand, task: Task, error: EngineError) -> None:
        """Note what is wrong, and put the answer aside, lest the next probe go on with it."""
        aside = task.output.with_name(f"{task.output.name}.refused-{time.time_ns()}")
        task.output.rename(aside)
        self._failed[task.output.name] = EngineError(
            f"{errand.engine.label}: {error.what}",
            where=f"log: {errand.log}; answer: {aside}",
            remedy=error.remedy or "look at its log",
        )

    def facts(self, engine: EngineSpec) -> EngineFacts:
        """What the engine has said of itself; loads it if it never was.

        Raises:
            EngineError: if it does not start.
            BudgetSpentError: if there is no time left.
        """
        path, key = self._facts_path(engine), self.key(engine)
        if not path.exists() and key not in self._failed:
            self._launch(engine, [])
        if not path.exists():
            raise self._failed[key]
        try:
            return _FACTS.validate_python(read_json(path))
        except ValidationError as error:
            raise EngineError(
                f"what an engine has said of itself is damaged: {_first(error)}",
                where=str(path),
                remedy="delete the file",
            ) from error

    def _facts_path(self, engine: EngineSpec) -> Path:
        return self.store.folder / "engines" / f"{self.key(engine)}.json"

    def part_of(self, rollouts: Path, responses: int) -> Path:
        """A folder with the first shards of another, of at least so many responses if it has them.

        Raises:
            EngineError: if a shard is damaged.
        """
        paths, kept = shard_paths(rollouts), 0
        for number, path in enumerate(paths, start=1):
            kept += len(read_shard(path).prompt_B)
            if kept >= responses and number < len(paths):
                return self.store.part_of(rollouts, paths[:number])
        return rollouts

    def _spend(self) -> None:
        self.is_spent = True
        raise BudgetSpentError(
            "the time is over", where="--budget", remedy="probe again into the same --output"
        )


def _first(error: ValidationError) -> str:
    problem = error.errors()[0]
    place = ".".join(str(part) for part in problem["loc"])
    return f"{place[:80]}: {problem['msg'][:120]}"
