"""Jobs for engines: sample, score and tokenize, and their form in a request."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

from grpodoctor.errors import EngineError, GrpodoctorError
from grpodoctor.probe.contract import SHARD_RESPONSES, Processing, Sampling, shard_paths
from grpodoctor.probe.engines.engine_facts import EngineFacts
from grpodoctor.probe.engines.store import DONE, JOB, content_key, read_json, rollouts_key
from grpodoctor.probe.inputs.engine_spec import EngineSpec

Want = Literal["entropy", "ranks", "temperatures", "experts"]
_ROUTED_SHARD_RESPONSES = 64
"""Responses per shard with routed experts, which take hundreds of bytes per token."""

_DTYPE_NAMES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}


class BudgetSpentError(GrpodoctorError):
    """The user's time budget is spent; finished results are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleJob:
    """Sample responses to the probe's prompts."""

    kind: ClassVar[str] = "sample"
    sampling: Sampling
    want: tuple[Want, ...] = ()

    @property
    def shard_responses(self) -> int:
        """Responses per shard."""
        return _ROUTED_SHARD_RESPONSES if "experts" in self.want else SHARD_RESPONSES

    @property
    def activity(self) -> str:
        """What the engine does, for a progress bar."""
        return f"samples {self.sampling.max_tokens} tokens"

    def request(self, prompts: Path) -> dict[str, Any]:
        """The job's own keys in a request."""
        return {
            "prompts": str(prompts),
            "sampling": asdict(self.sampling),
            "want": list(self.want),
            "shard_responses": self.shard_responses,
        }

    def folder(self, engine: str, prompts: Path) -> str:
        """The folder of the answer below the store; `engine` is the engine's key."""
        return f"sampled/{content_key('sample', engine, asdict(self), prompts.name)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreJob:
    """Compute this engine's log-probabilities of existing responses."""

    kind: ClassVar[str] = "score"
    activity: ClassVar[str] = "scores"
    rollouts: Path
    """A folder of shards with the responses."""
    processing: Processing = field(default_factory=Processing)
    want: tuple[Want, ...] = ()
    backwards: bool = False
    """Score in reverse order, so that responses share batches with other responses."""
    own_prompts: bool = False
    """Score after the engine's own prompt ids instead of those that the responses were sampled
    from."""
    replay: bool = False
    """Force the routers to the experts recorded in the rollouts."""
    what_if: str = ""
    """Edits to compute with, as the JSON list of `[name, value]`; see `AlterableEngine`."""
    repeat: int = 0
    """Number of the repetition: the same job again, to see whether an engine repeats its values."""

    def request(self, prompts: Path) -> dict[str, Any]:
        """The job's own keys in a request."""
        optional = {"prompts": str(prompts)} if self.own_prompts else {}
        return {
            **optional,
            **({"replay": True} if self.replay else {}),
            **({"what_if": json.loads(self.what_if)} if self.what_if else {}),
            "inputs": str(self.rollouts),
            "processing": asdict(self.processing),
            "want": list(self.want),
            "order": "reversed" if self.backwards else "given",
        }

    def folder(self, engine: str, _prompts: Path) -> str:
        """The folder of the answer below the store; `engine` is the engine's key."""
        job = asdict(self) | {"rollouts": rollouts_key(self.rollouts)}
        return f"scored/{content_key('score', engine, job)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizeJob:
    """Return the token ids that this engine feeds to its model for each of the probe's prompts."""

    kind: ClassVar[str] = "tokenise"
    activity: ClassVar[str] = "tokenizes"

    def request(self, prompts: Path) -> dict[str, Any]:
        """The job's own keys in a request."""
        return {"prompts": str(prompts)}

    def folder(self, engine: str, prompts: Path) -> str:
        """The folder of the answer below the store; `engine` is the engine's key."""
        return f"tokenised/{content_key('tokenise', engine, prompts.name)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfsJob:
    """List the edits that this engine's model allows."""

    kind: ClassVar[str] = "what_ifs"
    activity: ClassVar[str] = "lists its settings"

    def request(self, _prompts: Path) -> dict[str, Any]:
        """The job's own keys in a request."""
        return {}

    def folder(self, engine: str, _prompts: Path) -> str:
        """The folder of the answer below the store; `engine` is the engine's key."""
        return f"what-ifs/{content_key('what_ifs', engine)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SensitivityJob:
    """Measure what changes at each place of this engine's model do to log-probabilities."""

    kind: ClassVar[str] = "sensitivities"
    activity: ClassVar[str] = "measures sensitivities"
    rollouts: Path
    """A folder of shards with the responses."""
    tokens: int
    processing: Processing = field(default_factory=Processing)
    what_if: str = ""
    """As in a `ScoreJob`."""

    def request(self, _prompts: Path) -> dict[str, Any]:
        """The job's own keys in a request."""
        return {
            **({"what_if": json.loads(self.what_if)} if self.what_if else {}),
            "inputs": str(self.rollouts),
            "processing": asdict(self.processing),
            "tokens": self.tokens,
        }

    def folder(self, engine: str, _prompts: Path) -> str:
        """The folder of the answer below the store; `engine` is the engine's key."""
        job = asdict(self) | {"rollouts": rollouts_key(self.rollouts)}
        return f"sensitivities/{content_key('sensitivities', engine, job)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstOrderJob(SensitivityJob):
    """Estimate what the generic edits of this engine's model do to log-probabilities."""

    kind: ClassVar[str] = "first_order"
    activity: ClassVar[str] = "estimates edits"

    def folder(self, engine: str, _prompts: Path) -> str:
        """The folder of the answer below the store; `engine` is the engine's key."""
        job = asdict(self) | {"rollouts": rollouts_key(self.rollouts)}
        return f"first-order/{content_key('first_order', engine, job)}"


Job = SampleJob | ScoreJob | TokenizeJob | WhatIfsJob | SensitivityJob | FirstOrderJob


@dataclass(frozen=True, slots=True)
class Task:
    """A job with its place in the store."""

    job: Job
    name: str
    output: Path
    prompts: Path
    """The file of the job's prompts."""

    @property
    def is_done(self) -> bool:
        """Whether a complete, validated answer exists."""
        return (self.output / DONE).exists()

    def request(self) -> dict[str, Any]:
        """The task as written in a request; see `probes/contract/__init__.py`."""
        task = {"kind": self.job.kind, "name": self.name, "output": str(self.output)}
        return task | self.job.request(self.prompts)

    def description(self, engine: str) -> dict[str, Any]:
        """The content of `job.json`, stored with the shards."""
        job = asdict(self.job)
        if isinstance(self.job, ScoreJob | SensitivityJob):
            job["rollouts"] = str(self.job.rollouts)
        return {
            "key": self.output.name,
            "engine": engine,
            "kind": self.job.kind,
            "prompts": str(self.prompts),
            "job": job,
        }


def prompts_of(rollouts: Path, default: Path) -> Path:
    """The file of the prompts that responses were sampled from."""
    prompts = read_json(rollouts / JOB).get("prompts")
    return Path(prompts) if isinstance(prompts, str) else default


def expected_shards(task: Task, tasks: Sequence[Task], prompts: int) -> int:
    """The number of shards that a task will write.

    Args:
        task: the task.
        tasks: all tasks of its request, since a task may score what an earlier one samples.
        prompts: the number of prompts.
    """
    job = task.job
    if isinstance(job, SampleJob):
        return -(-prompts // max(1, job.shard_responses // job.sampling.samples))
    if isinstance(job, ScoreJob):
        source = next((other for other in tasks if other.output == job.rollouts), None)
        return expected_shards(source, tasks, prompts) if source else len(shard_paths(job.rollouts))
    return 0


def requested_edits(sampling: Sampling, applied: Collection[str]) -> tuple[tuple[str, str], ...]:
    """The penalties and biases of sampling settings that an engine applies, as what-if edits.

    Args:
        sampling: the settings.
        applied: names of the contract's `PROCESSORS` that the engine applies.
    """
    requested = sampling.processors().items()
    return tuple((name, json.dumps(value)) for name, value in requested if name in applied)


class JobRunner(Protocol):
    """Runs engines one after the other and keeps their answers.

    The same job on the same engine runs once, also across probes into the same folder.
    """

    def run(self, engine: EngineSpec, jobs: Sequence[Job]) -> list[Path]:
        """Run jobs with one load of an engine; returns the folder of each answer, in order.

        The folders of a `SampleJob` and a `ScoreJob` hold shards, that of a `TokenizeJob` an
        `ids.json`.

        Raises:
            EngineError: if the engine fails, with the last lines of its log.
            BudgetSpentError: if no time is left.
        """

    def attempt(self, engine: EngineSpec, jobs: Sequence[Job]) -> list[Path | EngineError]:
        """Like `run`, but returns the error of each failed job in its place.

        Raises:
            BudgetSpentError: if no time is left.
        """

    def facts(self, engine: EngineSpec) -> EngineFacts:
        """The engine's description of itself; loads the engine if it never ran.

        Raises:
            EngineError: if the engine does not start.
            BudgetSpentError: if no time is left.
        """

    def part_of(self, rollouts: Path, responses: int) -> Path:
        """A folder with the first shards of another, with at least `responses` responses if any.

        Experiments need fewer responses than a measurement.
        """


def computes_in(facts: EngineFacts) -> str:
    """The precision of an engine's activations; llama.cpp uses other names."""
    dtype = str(facts.settings.get("autocast") or facts.dtype).removeprefix("torch.")
    return _DTYPE_NAMES.get(dtype.lower().removeprefix("all "), dtype)
