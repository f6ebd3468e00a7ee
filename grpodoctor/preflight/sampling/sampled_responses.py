"""Responses of an engine to some of the prompts, each sampled once and scored once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from grpodoctor.errors import EngineError
from grpodoctor.preflight.inputs.chat_template import render_ids
from grpodoctor.preflight.inputs.prompt_rows import PromptRow
from grpodoctor.preflight.inputs.run_settings import RunSettings
from grpodoctor.probe.comparison.compare import compare
from grpodoctor.probe.contract import Processing, Sampling
from grpodoctor.probe.engines.engine_runner import EngineRunner
from grpodoctor.probe.engines.jobs import SampleJob, ScoreJob
from grpodoctor.probe.engines.shards import read_shards
from grpodoctor.probe.inputs.engine_spec import EngineSpec
from grpodoctor.probe.results.results import Comparison
from grpodoctor.trainer.rewards.user_reward import UserReward

if TYPE_CHECKING:
    from pathlib import Path

    from transformers import PreTrainedTokenizerBase


_SEED_STRIDE = 1_000_003
"""Distance between the seeds of two rounds: the shards of a round use consecutive seeds."""


@dataclass(frozen=True, slots=True)
class SampledResponse:
    """One response of the engine."""

    row: int
    """Index into the sampler's rows."""
    ids: tuple[int, ...]
    text: str
    ended: bool
    """Whether an end token ended it, not the limit."""
    reward: float | None = None
    correct: bool | None = None


class ResponseSampler:
    """Samples responses with an engine, and scores them with the reward function.

    Args:
        runner: runs engines and keeps their output.
        engine: the sampling engine.
        rows: the prompts.
        tokenizer: decodes token ids.
        reward: the reward function, if there is one.
        threshold: reward from which a response counts as correct, if the function does not say so
            itself; None for any reward above zero.
        settings: the planned run.
    """

    def __init__(
        self,
        runner: EngineRunner,
        engine: EngineSpec,
        rows: Sequence[PromptRow],
        *,
        tokenizer: PreTrainedTokenizerBase,
        reward: UserReward | None,
        threshold: float | None,
        settings: RunSettings,
    ) -> None:
        self.runner, self.engine, self.settings = runner, engine, settings
        self._tokenizer, self._reward, self._threshold = tokenizer, reward, threshold
        self.rows = tuple(rows)
        self._responses: dict[tuple[float, str], list[SampledResponse]] = {}

    def _sampling(self, temperature: float, *, round_index: int = 0) -> Sampling:
        return Sampling(
            samples=self.settings.samples,
            max_tokens=self.settings.max_tokens,
            temperature=temperature,
            seed=self.settings.seed + round_index * _SEED_STRIDE,
        )

    def sample(self, temperature: float, template: str = "") -> Path:
        """Sample all prompts; returns the folder of the engine's shards.

        Args:
            temperature: sampling temperature.
            template: prompt template with `{prompt}` in it; empty for the tokenizer's template.

        Raises:
            EngineError: if the engine fails.
            BudgetSpentError: if no time is left.
        """
        self._use_prompts(template)
        return self.runner.run(self.engine, [SampleJob(sampling=self._sampling(temperature))])[0]

    def prepare(self, learner: EngineSpec | None, rounds: int) -> None:
        """Run the engine jobs of all checks, with each engine loaded once.

        Failures are ignored here: the check that needs the job fails again and reports them.

        Args:
            learner: scores the sampler's responses, if there is one.
            rounds: rounds of fresh responses to compare.

        Raises:
            BudgetSpentError: if no time is left.
        """
        self._use_prompts("")
        temperatures = self.settings.temperatures
        samplings = [self._sampling(temperature) for temperature in temperatures]
        if learner is not None:
            samplings += [
                self._sampling(temperatures[0], round_index=index) for index in range(1, rounds)
            ]
        sampled = self.runner.attempt(
            self.engine, [SampleJob(sampling=sampling) for sampling in samplings]
        )
        if learner is None or isinstance(sampled[0], EngineError):
            return
        processing = Processing(temperature=temperatures[0])
        jobs = [
            ScoreJob(rollouts=folder, processing=processing)
            for folder in (sampled[0], *sampled[len(temperatures) :])
            if not isinstance(folder, EngineError)
        ]
        jobs.append(ScoreJob(rollouts=sampled[0], processing=processing, backwards=True))
        self.runner.attempt(learner, jobs)

    def mismatch(self, learner: EngineSpec, *, round_index: int = 0) -> Comparison:
        """Compare the learner's log-probabilities with the sampler's on sampled responses.

        Args:
            learner: scores the responses.
            round_index: each round samples fresh responses.

        Raises:
            EngineError: if an engine fails.
            BudgetSpentError: if no time is left.
        """
        sampling = self._sampling(self.settings.temperatures[0], round_index=round_index)
        self._use_prompts("")
        sampled = self.runner.run(self.engine, [SampleJob(sampling=sampling)])[0]
        processing = Processing(temperature=sampling.temperature)
        scored = self.runner.run(learner, [ScoreJob(rollouts=sampled, processing=processing)])[0]
        return compare(sampled, scored, seed=self.settings.seed)

    def _use_prompts(self, template: str) -> None:
        self.runner.use_prompts([self._prompt(row, template) for row in self.rows])

    def _prompt(self, row: PromptRow, template: str) -> Mapping[str, Any]:
        if template:
            return {"text": template.replace("{prompt}", row.prompt)}
        if self._tokenizer.chat_template:
            messages = row.conversation()
            if all(message.keys() == {"role", "content"} for message in messages):
                return {"messages": messages}
            # Engines take role and content alone, but the template also writes tool calls.
            return {"ids": render_ids(self._tokenizer, messages, generation=True)}
        return {"text": row.prompt}

    def responses(
        self, temperature: float | None = None, template: str = ""
    ) -> list[SampledResponse]:
        """All responses at a temperature, sorted by prompt, scored if there is a reward function.

        Args:
            temperature: sampling temperature; the run's by default.
            template: as in `sample`.

        Raises:
            EngineError: if the engine fails.
            DataError: if the reward function fails.
            BudgetSpentError: if no time is left.
        """
        if temperature is None:
            temperature = self.settings.temperatures[0]
        key = temperature, template
        if key not in self._responses:
            self._responses[key] = self._scored(self._read(self.sample(temperature, template)))
        return self._responses[key]

    def _read(self, folder: Path) -> list[SampledResponse]:
        responses = []
        for shard in read_shards(folder):
            for index, (start, end) in enumerate(pairwise(shard.response_offsets)):
                ids = tuple(int(token) for token in shard.response_ids_N[start:end])
                text = self._tokenizer.decode(list(ids), skip_special_tokens=True)
                row, ended = int(shard.prompt_B[index]), bool(shard.ended_B[index])
                responses.append(SampledResponse(row, ids, str(text), ended))
        return sorted(responses, key=lambda response: response.row)

    def _scored(self, responses: list[SampledResponse]) -> list[SampledResponse]:
        if self._reward is None or not responses:
            return responses
        rows = [self.rows[response.row] for response in responses]
        values = self._reward(rows, [response.text for response in responses])
        return [
            replace(response, reward=reward, correct=self._is_right(reward, correct))
            for response, reward, correct in zip(
                responses, values.total, values.correct, strict=True
            )
        ]

    def _is_right(self, reward: float, correct: bool | None) -> bool:
        if correct is not None:
            return correct
        return reward > 0 if self._threshold is None else reward >= self._threshold

    @property
    def criterion(self) -> str:
        """When a response counts as correct, in words."""
        least = self._threshold
        bound = "a reward above 0" if least is None else f"a reward of at least {least:.3g}"
        return (
            f"a response with {bound} counts as correct, unless the reward function reports "
            "correctness"
        )

    def solved(
        self, temperature: float | None = None, template: str = ""
    ) -> NDArray[np.bool_] | None:
        """Whether each response is correct, shape (prompts, samples); None without rewards."""
        responses = self.responses(temperature, template)
        if not responses or any(response.correct is None for response in responses):
            return None
        by_row: dict[int, list[bool]] = {}
        for response in responses:
            by_row.setdefault(response.row, []).append(bool(response.correct))
        samples = min(len(correct) for correct in by_row.values())
        return np.array([correct[:samples] for correct in by_row.values()])

    def pass_rate(self) -> float | None:
        """Share of correct responses at the run's temperature; None without rewards."""
        solved = self.solved()
        return None if solved is None else float(solved.mean())
