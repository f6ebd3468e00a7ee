"""Jobs as the engine programs are told of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from grpodoctor.probe.engines.jobs import Job, SampleJob, ScoreJob
from grpodoctor.probe.engines.shards import shard_paths
from grpodoctor.probe.engines.store import DONE, JOB, read_json

CONTRACT = 1
"""The version of `probes/contract.py` that is spoken."""

SHARD_RESPONSES = 256
"""Responses of a shard: what a killed engine has to do again, and what a comparison holds."""
_ROUTED_SHARD_RESPONSES = 64
"""With routed experts a token takes hundreds of bytes."""


@dataclass(frozen=True, slots=True)
class Task:
    """A job with its place."""

    job: Job
    name: str
    output: Path
    prompts: Path
    """The prompts that it speaks of."""

    @property
    def is_done(self) -> bool:
        """Whether its answer was found to be whole."""
        return (self.output / DONE).exists()

    @property
    def kind(self) -> str:
        """As the contract calls it."""
        return kind_of(self.job)

    @property
    def words(self) -> str:
        """What the engine is doing, for a person."""
        job = self.job
        if isinstance(job, SampleJob):
            return f"samples {job.sampling.max_tokens} tokens"
        return "scores" if isinstance(job, ScoreJob) else "tokenises"

    def request(self) -> dict[str, Any]:
        """The task as it stands in a request."""
        job = self.job
        asked = {"kind": self.kind, "name": self.name, "output": str(self.output)}
        if isinstance(job, SampleJob):
            return asked | {
                "prompts": str(self.prompts),
                "sampling": asdict(job.sampling),
                "want": list(job.want),
                "shard_responses": _width(job),
            }
        if isinstance(job, ScoreJob):
            own = {"prompts": str(self.prompts)} if job.own_prompts else {}
            forced = {"replay": True} if job.replay else {}
            return (
                asked
                | own
                | forced
                | {
                    "inputs": str(job.rollouts),
                    "processing": asdict(job.processing),
                    "want": list(job.want),
                    "order": "reversed" if job.backwards else "given",
                }
            )
        return asked | {"prompts": str(self.prompts)}

    def memo(self, engine: str) -> dict[str, Any]:
        """What stands beside the shards, for whoever finds them."""
        job = {key: value for key, value in asdict(self.job).items() if key != "rollouts"}
        rollouts = {"rollouts": str(self.job.rollouts)} if isinstance(self.job, ScoreJob) else {}
        return {
            "key": self.output.name,
            "engine": engine,
            "kind": self.kind,
            "prompts": str(self.prompts),
            "job": job | rollouts,
        }


def kind_of(job: Job) -> str:
    """`sample`, `score` or `tokenise`."""
    if isinstance(job, SampleJob):
        return "sample"
    return "score" if isinstance(job, ScoreJob) else "tokenise"


def prompts_of(rollouts: Path, otherwise: Path) -> Path:
    """The prompts file that responses were drawn for."""
    told = read_json(rollouts / JOB).get("prompts")
    return Path(told) if isinstance(told, str) else otherwise


def _width(job: SampleJob) -> int:
    return _ROUTED_SHARD_RESPONSES if "experts" in job.want else SHARD_RESPONSES


def shards_of(task: Task, tasks: Sequence[Task], prompts: int) -> int:
    """How many shards a task will write.

    Args:
        task: one of them.
        tasks: those of the request: one may score what another will have sampled.
        prompts: how many there are.
    """
    job = task.job
    if isinstance(job, SampleJob):
        return -(-prompts // max(1, _width(job) // job.sampling.samples))
    if isinstance(job, ScoreJob):
        source = next((each for each in tasks if each.output == job.rollouts), None)
        return shards_of(source, tasks, prompts) if source else len(shard_paths(job.rollouts))
    return 0
