"""What an experiment asks of whoever runs engines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from grpodoctor.errors import GrpodoctorError
from grpodoctor.probe.inputs.engine_spec import EngineSpec

Want = Literal["entropy", "ranks", "temperatures", "experts"]

_DTYPE_NAMES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}


class BudgetSpentError(GrpodoctorError):
    """The time that the user gave is over; what is finished stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How responses are drawn. A top_k of 0, a top_p of 1 and a min_p of 0 cut nothing off."""

    samples: int = 8
    max_tokens: int = 512
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int = 0
    stop_ids: tuple[int, ...] = ()
    ignore_end: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Processing:
    """What is done to logits before a log-probability is taken of them."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0

    @classmethod
    def of(cls, sampling: Sampling) -> Processing:
        """That under which the responses were drawn."""
        return cls(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            min_p=sampling.min_p,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleJob:
    """Draw responses to the probe's prompts."""

    sampling: Sampling
    want: tuple[Want, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreJob:
    """Give this engine's log-probabilities of responses that are there already."""

    rollouts: Path
    """A folder of shards; its responses, in its order."""
    processing: Processing = field(default_factory=Processing)
    want: tuple[Want, ...] = ()
    backwards: bool = False
    """In the opposite order, so that responses meet other neighbours in their batches."""
    own_prompts: bool = False
    """After the engine's own ids of the prompts, instead of those the responses were drawn from."""
    replay: bool = False
    """With the routers forced to the experts that the rollouts tell of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizeJob:
    """Give the ids that this engine feeds its model for each of the probe's prompts."""


Job = SampleJob | ScoreJob | TokenizeJob


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What an engine has said of itself; see `Engine.describe` in `probes/contract.py`."""

    name: str
    version: str
    model: str
    dtype: str
    device: str
    layout: Mapping[str, int]
    vocab_size: int
    end_ids: tuple[int, ...]
    begin_id: int | None
    context: int
    logprobs: Literal["raw", "processed"]
    settings: Mapping[str, Any]
    python: str
    load_seconds: float


class JobRunner(Protocol):
    """Runs engines one after the other, and keeps what they answer.

    The same job on the same engine is done once, also across probes into one folder.
    """

    def run(self, engine: EngineSpec, jobs: Sequence[Job]) -> list[Path]:
        """Do jobs with an engine that is loaded once; the folder of each job's answer, in order.

        Those of `SampleJob` and `ScoreJob` hold shards, that of `TokenizeJob` an `ids.json`.

        Raises:
            EngineError: if the engine cannot, with the last lines of its log.
            BudgetSpentError: if there is no time left.
        """

    def facts(self, engine: EngineSpec) -> EngineFacts:
        """What the engine has said of itself; loads it if it never was.

        Raises:
            EngineError: if it does not start.
            BudgetSpentError: if there is no time left.
        """

    def part_of(self, rollouts: Path, responses: int) -> Path:
        """A folder with the first shards of another, of at least so many responses if it has them.

        For experiments, which need fewer responses than a measurement.
        """


def computes_in(facts: EngineFacts) -> str:
    """The precision of an engine's activations; llama.cpp uses names of its own."""
    dtype = str(facts.settings.get("autocast") or facts.dtype).removeprefix("torch.")
    return _DTYPE_NAMES.get(dtype.lower().removeprefix("all "), dtype)
