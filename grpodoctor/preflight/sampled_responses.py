"""Responses of an engine to a choice of the prompts, drawn once and judged once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from grpodoctor.errors import EngineError
from grpodoctor.preflight.context import Judge, Plan, Row, Verdict
from grpodoctor.probe.comparison.compare import compare
from grpodoctor.probe.contract import Processing, Sampling
from grpodoctor.probe.engines.engine_runner import EngineRunner
from grpodoctor.probe.engines.jobs import SampleJob, ScoreJob
from grpodoctor.probe.engines.shards import read_shards
from grpodoctor.probe.inputs.engine_spec import EngineSpec
from grpodoctor.probe.results.results import Comparison

if TYPE_CHECKING:
    from pathlib import Path

    from transformers import PreTrainedTokenizerBase


_SEEDS_APART = 1_000_003
"""Between two rounds: shards have seeds next to each other."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """One response of the engine."""

    row: int
    """Which of the bench's rows."""
    ids: tuple[int, ...]
    text: str
    ended: bool
    """By an end token, not by the limit."""
    reward: float | None = None
    correct: bool | None = None


class Bench:
    """An engine that answers.

    Args:
        lab: runs it.
        sampler: the engine.
        rows: the prompts to ask.
        tokenizer: turns ids into texts.
        judge: the reward function, where there is one.
        threshold: reward from which on a response is right, where the judge does not say so; None
            for any reward above zero.
        plan: how the run is going to be trained.
    """

    def __init__(
        self,
        lab: EngineRunner,
        sampler: EngineSpec,
        rows: Sequence[Row],
        tokenizer: PreTrainedTokenizerBase,
        judge: Judge | None,
        threshold: float | None,
        plan: Plan,
    ) -> None:
        self.lab, self.sampler, self.plan = lab, sampler, plan
        self._tokenizer, self._judge, self._threshold = tokenizer, judge, threshold
        self.rows = tuple(rows)
        self._drawn: dict[tuple[float, str], list[Drawn]] = {}

    def sampling(self, temperature: float) -> Sampling:
        """How responses are drawn."""
        plan = self.plan
        return Sampling(
            samples=plan.samples,
            max_tokens=plan.max_tokens,
            temperature=temperature,
            seed=plan.seed,
        )

    def rollouts(self, temperature: float, template: str = "") -> Path:
        """The folder of the engine's shards.

        Args:
            temperature: to sample at.
            template: with `{prompt}` in it, instead of the tokenizer's own; empty for that one.

        Raises:
            EngineError: if the engine cannot.
            BudgetSpentError: if there is no time left.
        """
        self.lab.use_prompts([self._prompt(row, template) for row in self.rows])
        return self.lab.run(self.sampler, [SampleJob(sampling=self.sampling(temperature))])[0]

    def prepare(self, learner: EngineSpec | None, rounds: int) -> None:
        """Do what the checks are going to ask for, with each engine loaded once.

        What fails here fails again where it is asked for, and is told there.

        Args:
            learner: scores what the sampler draws, where there is one.
            rounds: of fresh responses that are going to be compared.

        Raises:
            BudgetSpentError: if there is no time left.
        """
        self.lab.use_prompts([self._prompt(row, "") for row in self.rows])
        wanted = [self.sampling(heat) for heat in self.plan.temperatures]
        if learner is not None:
            wanted += [self._of_round(number) for number in range(1, rounds)]
        drawn = self.lab.attempt(self.sampler, [SampleJob(sampling=each) for each in wanted])
        if learner is None or isinstance(drawn[0], EngineError):
            return
        heats = len(self.plan.temperatures)
        processing = Processing(temperature=self.plan.temperatures[0])
        jobs = [
            ScoreJob(rollouts=each, processing=processing)
            for each in (drawn[0], *drawn[heats:])
            if not isinstance(each, EngineError)
        ]
        jobs.append(ScoreJob(rollouts=drawn[0], processing=processing, backwards=True))
        self.lab.attempt(learner, jobs)

    def _of_round(self, number: int) -> Sampling:
        sampling = self.sampling(self.plan.temperatures[0])
        return replace(sampling, seed=sampling.seed + number * _SEEDS_APART)

    def mismatch(self, learner: EngineSpec, *, round_: int = 0) -> Comparison:
        """How far the learner is from the sampler on what the sampler has drawn.

        Args:
            learner: scores the responses.
            round_: draws other responses with each number.

        Raises:
            EngineError: if an engine cannot.
            BudgetSpentError: if there is no time left.
        """
        sampling = self._of_round(round_)
        self.lab.use_prompts([self._prompt(row, "") for row in self.rows])
        sampled = self.lab.run(self.sampler, [SampleJob(sampling=sampling)])[0]
        processing = Processing(temperature=sampling.temperature)
        scored = self.lab.run(learner, [ScoreJob(rollouts=sampled, processing=processing)])[0]
        return compare(sampled, scored, seed=self.plan.seed)

    def _prompt(self, row: Row, template: str) -> Mapping[str, Any]:
        if template:
            return {"text": template.replace("{prompt}", row.prompt)}
        if self._tokenizer.chat_template:
            return {"messages": row.conversation()}
        return {"text": row.prompt}

    def responses(self, temperature: float | None = None, template: str = "") -> list[Drawn]:
        """All responses at a temperature, those of a prompt together; judged, if there is a judge.

        Raises:
            EngineError: if the engine cannot.
            DataError: if the reward function fails.
            BudgetSpentError: if there is no time left.
        """
        heat = self.plan.temperatures[0] if temperature is None else temperature
        if (heat, template) not in self._drawn:
            self._drawn[heat, template] = self._judged(self._read(self.rollouts(heat, template)))
        return self._drawn[heat, template]

    def _read(self, folder: Path) -> list[Drawn]:
        drawn = []
        for shard in read_shards(folder):
            bounds = shard.response_offsets
            for index, (start, end) in enumerate(pairwise(bounds)):
                ids = tuple(int(each) for each in shard.response_ids_N[start:end])
                text = self._tokenizer.decode(list(ids), skip_special_tokens=True)
                row, ended = int(shard.prompt_B[index]), bool(shard.ended_B[index])
                drawn.append(Drawn(row, ids, str(text), ended))
        return sorted(drawn, key=lambda each: each.row)

    def _judged(self, drawn: list[Drawn]) -> list[Drawn]:
        if self._judge is None or not drawn:
            return drawn
        rows = [self.rows[each.row] for each in drawn]
        verdicts = self._judge(rows, [each.text for each in drawn])
        return [
            Drawn(
                each.row,
                each.ids,
                each.text,
                each.ended,
                verdict.reward,
                self._is_right(verdict),
            )
            for each, verdict in zip(drawn, verdicts, strict=True)
        ]

    def _is_right(self, verdict: Verdict) -> bool:
        if verdict.correct is not None:
            return verdict.correct
        least = self._threshold
        return verdict.reward > 0 if least is None else verdict.reward >= least

    @property
    def right(self) -> str:
        """What counts as a right response, in words."""
        least = self._threshold
        told = "a reward above 0" if least is None else f"a reward of {least:.3g} or more"
        return f"right is {told}, unless the function says itself which are"

    def solved(
        self, temperature: float | None = None, template: str = ""
    ) -> NDArray[np.bool_] | None:
        """Which responses are right, shape (prompts, samples); None where nobody can tell."""
        drawn = self.responses(temperature, template)
        if not drawn or any(each.correct is None for each in drawn):
            return None
        by_row: dict[int, list[bool]] = {}
        for each in drawn:
            by_row.setdefault(each.row, []).append(bool(each.correct))
        fewest = min(len(each) for each in by_row.values())
        return np.array([each[:fewest] for each in by_row.values()])

    def pass_rate(self) -> float | None:
        """Share of right responses at the run's temperature; None where nobody can tell."""
        solved = self.solved()
        return None if solved is None else float(solved.mean())
