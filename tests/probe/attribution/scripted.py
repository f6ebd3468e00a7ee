"""A job runner whose engines are functions that return log-probabilities of a random model.

The model is real in what bears on signatures: peaked distributions over a small vocabulary, tokens
drawn from them, and errors of the logits that move log-probabilities as such errors do.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import log_softmax

from grpodoctor.errors import EngineError
from grpodoctor.probe.attribution.case import Case
from grpodoctor.probe.attribution.investigate import attribute
from grpodoctor.probe.comparison.compare import compare
from grpodoctor.probe.contract import Processing, Sampling
from grpodoctor.probe.engines.engine_facts import EngineFacts
from grpodoctor.probe.engines.jobs import BudgetSpentError, Job, ScoreJob, TokenizeJob, WhatIfsJob
from grpodoctor.probe.inputs.engine_spec import EngineSpec

sys.path.insert(0, str(Path(__file__).parents[3] / "probes"))

from contract import TEMPERATURES, Response, read_responses, write_shard  # the path first

VOCABULARY, PROMPTS, SAMPLES, TOKENS = 24, 24, 4, 40
"""The end token is outside the vocabulary, so responses have maximum length."""
Logits = Callable[[EngineSpec, Any, np.random.Generator], Any]
"""The logits (N, V) of an engine with this spec, from the true ones."""

LEARNER = EngineSpec.of("transformers", "model", {})
VLLM = EngineSpec.of("vllm", "model", {})
BFLOAT16 = 0.01
"""The error of logits that represents rounding to this precision."""


@dataclass
class Scripted:
    """See the module."""

    folder: Path
    logits: Logits
    seed: int = 0
    dtypes: dict[str, str] = field(default_factory=dict)
    """By the engine's name; float32 otherwise."""
    layouts: dict[str, int] = field(default_factory=dict)
    refuses: Callable[[EngineSpec], bool] = lambda _: False
    prompts: int = PROMPTS
    runs: int = 10_000
    """Engines that may be loaded before the budget is spent."""
    loaded: list[EngineSpec] = field(default_factory=list)

    def run(self, engine: EngineSpec, jobs: Sequence[Job]) -> list[Path]:
        self.loaded.append(engine)
        if len(self.loaded) > self.runs:
            raise BudgetSpentError("the time is over")
        if self.refuses(engine):
            raise EngineError("it cannot do that")
        return [self._done(engine, job) for job in jobs]

    def attempt(self, engine: EngineSpec, jobs: Sequence[Job]) -> list[Path | EngineError]:
        results: list[Path | EngineError] = []
        for job in jobs:
            try:
                results += self.run(engine, [job])
            except EngineError as error:
                results.append(error)
        return results

    def facts(self, engine: EngineSpec) -> EngineFacts:
        degree = self.layouts.get(engine.engine, 1)
        return EngineFacts(
            name=engine.engine,
            version="1",
            model=engine.model,
            dtype=str(engine.options.get("dtype", self.dtypes.get(engine.engine, "float32"))),
            device="cpu",
            layout={"tensor_parallel": degree},
            vocab_size=VOCABULARY,
            end_ids=(VOCABULARY,),
            begin_id=None,
            context=512,
            logprobs="processed",
            settings={"autocast": engine.options.get("autocast", "")},
            python="3.11",
            load_seconds=0.1,
        )

    def part_of(self, rollouts: Path, responses: int) -> Path:
        assert responses >= 64
        return rollouts

    def _done(self, engine: EngineSpec, job: Job) -> Path:
        folder = (
            self.folder
            / f"{len(self.loaded)}-{engine.engine}-{np.random.default_rng().integers(1 << 40)}"
        )
        folder.mkdir(parents=True)
        if isinstance(job, TokenizeJob):
            (folder / "ids.json").write_text(json.dumps([[7, 8]] * PROMPTS))
        elif isinstance(job, WhatIfsJob):
            (folder / "what_ifs.json").write_text("[]")
        elif isinstance(job, ScoreJob):
            for path in sorted(job.rollouts.glob("shard-*.npz")):
                responses = read_responses(path)
                scored = [self._scored(engine, each, job) for each in responses]
                write_shard(folder / path.name, scored)
        return folder

    def _scored(self, engine: EngineSpec, response: Response, job: ScoreJob) -> Response:
        logits_NV = self.seen(engine, response)
        ids_N = np.asarray(response.response_ids)
        extras = _columns(logits_NV, ids_N, job.processing) if job.want else {}
        logprobs_NV = processed(logits_NV, job.processing)
        response.logprobs = logprobs_NV[np.arange(ids_N.size), ids_N].tolist()
        response.extras = extras
        return response

    def seen(self, engine: EngineSpec, response: Response) -> Any:
        """The logits that an engine has of a response, (N, V)."""
        true_NV = truth(self.seed, response.prompt, response.sample, len(response.response_ids))
        noise = np.random.default_rng((9, response.prompt, response.sample))
        return self.logits(engine, true_NV, noise)


def truth(seed: int, prompt: int, sample: int, tokens: int = TOKENS) -> Any:
    """Logits of the true model at each place of a response; some sure of a token, some not."""
    generator = np.random.default_rng((seed, prompt, sample))
    sharpness_T = generator.choice([0.5, 2.0, 5.0], size=TOKENS)[:tokens]
    return (generator.standard_normal((TOKENS, VOCABULARY)))[:tokens] * sharpness_T[:, None]


def noisy(logits_NV: Any, scale: Any, generator: np.random.Generator) -> Any:
    """The logits with an error."""
    return logits_NV + np.asarray(scale)[..., None] * generator.standard_normal(logits_NV.shape)


def processed(logits_NV: Any, processing: Processing) -> Any:
    """Log-probabilities after temperature and truncation."""
    logprobs_NV = log_softmax(logits_NV / processing.temperature, axis=-1)
    if 0 < processing.top_k < VOCABULARY:
        kth = np.sort(logprobs_NV, axis=-1)[:, -processing.top_k, None]
        logprobs_NV = np.where(logprobs_NV >= kth, logprobs_NV, -np.inf)
    if processing.top_p < 1:
        probs_NV = np.exp(logprobs_NV)
        above_NV = (probs_NV[:, None] * (probs_NV[:, None] > probs_NV[..., None])).sum(-1)
        logprobs_NV = np.where(above_NV < processing.top_p, logprobs_NV, -np.inf)
    return log_softmax(logprobs_NV, axis=-1)


def _columns(logits_NV: Any, ids_N: Any, processing: Processing) -> dict[str, Any]:
    logprobs_NV, at = processed(logits_NV, processing), np.arange(ids_N.size)
    own_N = logprobs_NV[at, ids_N]
    above_NV = logprobs_NV > own_N[:, None]
    columns = [log_softmax(logits_NV / t, axis=-1)[at, ids_N] for t in TEMPERATURES]
    return {
        "entropy": -(np.exp(logprobs_NV) * logprobs_NV).sum(-1),
        "rank": above_NV.sum(-1),
        "mass_above": (np.exp(logprobs_NV) * above_NV).sum(-1),
        "top_logprob": logprobs_NV.max(-1),
        "at_temperature": np.stack(columns, axis=-1),
    }


def case_of(
    runner: Scripted,
    sampler: EngineSpec,
    learner: EngineSpec,
    *,
    told: Callable[[Response], None] = lambda _: None,
    **more: Any,
) -> Case:
    """Draw from the sampler, score with the learner.

    Args:
        runner: whose engines they are.
        sampler: who draws.
        learner: who scores.
        told: changes the responses that the sampler reports.
        more: of the case.
    """
    rollouts = runner.folder / "rollouts"
    rollouts.mkdir(parents=True)
    responses = []
    for prompt in range(runner.prompts):
        for sample in range(SAMPLES):
            response = Response([7, 8], [0] * TOKENS, prompt=prompt, sample=sample)
            _draw(runner, sampler, response)
            told(response)
            responses.append(response)
    write_shard(rollouts / "shard-00000.npz", responses)
    processing = Processing()
    (scored,) = runner.run(learner, [ScoreJob(rollouts=rollouts, want=("entropy",))])
    runner.loaded.clear()
    given: dict[str, Any] = {
        "sampler": sampler,
        "learner": learner,
        "sampling": Sampling(samples=SAMPLES, max_tokens=TOKENS),
        "prompts": ({"text": "1+1="},) * PROMPTS,
        "rollouts": rollouts,
        "scored": scored,
        "processing": processing,
        "comparison": compare(rollouts, scored),
        "sampler_facts": runner.facts(sampler),
        "learner_facts": runner.facts(learner),
    }
    return Case(**given | more)


def _draw(runner: Scripted, sampler: EngineSpec, response: Response) -> None:
    logprobs_NV = log_softmax(runner.seen(sampler, response), axis=-1)
    generator = np.random.default_rng((runner.seed, 5, response.prompt, response.sample))
    ids = [int(generator.choice(VOCABULARY, p=np.exp(row))) for row in logprobs_NV]
    response.response_ids = ids
    response.logprobs = logprobs_NV[np.arange(len(ids)), ids].tolist()


def exact(_: EngineSpec, logits_NV: Any, __: Any) -> Any:
    """Logits of an engine that computes exactly."""
    return logits_NV


def rounding(engine: EngineSpec, logits_NV: Any, generator: Any) -> Any:
    """Logits with rounding errors of each engine; none for an engine in float32."""
    draws = np.random.default_rng((generator.integers(1 << 30), len(engine.engine)))
    rounds = engine.options.get("dtype", "bfloat16") == "bfloat16"
    return noisy(logits_NV, BFLOAT16 if rounds else 0.0, draws)


def names(runner: Scripted, case: Any) -> list[str]:
    """The causes that an attribution names, in its order."""
    return [each.cause for each in attribute(runner, case)]
