"""Surroundings of the bundled trainer in which a disease can appear: tools, and a fixed prompt set.

Each function changes a trainer before its first step, in every arm of a trial. What a tool returns
is put before the generated tokens of a response. The learner reads these tokens, but they are left
out of the loss and of the record of generated tokens.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from grpodoctor.trainer.loop import Trainer
from grpodoctor.trainer.model.forward import pack_left, pack_right
from grpodoctor.trainer.model.scoring import score_on_ranks
from grpodoctor.trainer.samples import Samples

_OPEN, _CLOSE, _FAILED = "<", ">", "!"
"""Characters that the built-in tasks do not use."""
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_RESULT_LENGTH = 4
_RESULT_RATE = 0.3
_FAILURE_RATE = 0.4
_PROMPTS = 192
"""Prompts of a fixed set: with sixteen a batch, each comes five times in sixty steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSamples(Samples):
    """Responses that begin with the text of a tool."""

    tool_BT: Tensor
    """True where a token was not generated."""

    @property
    def mask_BT(self) -> Tensor:
        """True where a token was generated."""
        return self.attention_BL[:, self.prompt_width :] & ~self.tool_BT


def noisy_tool(trainer: Trainer) -> None:
    """Three responses in ten begin with a tool's result that does not help to solve the task."""
    rng = random.Random(trainer.config.seed)  # noqa: S311 - noise, no secret

    def result() -> str:
        if rng.random() >= _RESULT_RATE:
            return ""
        return _OPEN + "".join(rng.choices(_LETTERS, k=_RESULT_LENGTH)) + _CLOSE

    _with_tool(trainer, result)


def failing_tool(trainer: Trainer) -> None:
    """Four responses in ten begin with the sign that a tool failed, and earn nothing."""
    rng = random.Random(trainer.config.seed)  # noqa: S311 - noise, no secret
    _with_tool(trainer, lambda: _FAILED if rng.random() < _FAILURE_RATE else "")
    task: Any = trainer.task
    score = task.score

    def scored(problems: Any, texts: Sequence[str]) -> Any:
        rewards = score(problems, texts)
        works = [not text.startswith(_FAILED) for text in texts]
        return replace(
            rewards,
            total=_where(works, rewards.total),
            components={name: _where(works, each) for name, each in rewards.components.items()},
            correct=[*map(bool, _where(works, rewards.correct))] if rewards.correct else None,
        )

    task.score = scored


def _where(works: Sequence[bool], values: Sequence[float]) -> list[float]:
    return [value if works else 0.0 for works, value in zip(works, values, strict=True)]


def _with_tool(trainer: Trainer, result: Callable[[], str]) -> None:
    """Put a tool's result before each response, outside the loss and the record."""
    own: Any = trainer
    generate, learn_batch, record = own.engine.generate, own._learn_batch, own.recording.step
    tokenizer = trainer.policy.tokenizer

    def with_results(prompts: Sequence[Sequence[int]], *arguments: Any, **options: Any) -> Any:
        results = [tokenizer.encode(text) if (text := result()) else [] for _ in prompts]
        pairs = zip(prompts, results, strict=True)
        samples = generate([[*prompt, *added] for prompt, added in pairs], *arguments, **options)
        return _scored(trainer, _moved(samples, prompts, results))

    def masked(rollouts: Any, scores: Any) -> Any:
        batch = learn_batch(rollouts, scores)
        return replace(
            batch, loss_mask_BT=batch.loss_mask_BT & ~tool_tokens(trainer, rollouts.samples)
        )

    def recorded(step: Any, *arguments: Any) -> None:
        samples = step.rollouts.samples
        fields = {name: getattr(samples, name) for name in Samples.__dataclass_fields__}
        generated = ToolSamples(**fields, tool_BT=tool_tokens(trainer, samples))
        record(replace(step, rollouts=replace(step.rollouts, samples=generated)), *arguments)

    own.engine.generate, own._learn_batch, own.recording.step = with_results, masked, recorded


def _moved(
    samples: Samples, prompts: Sequence[Sequence[int]], results: Sequence[Sequence[int]]
) -> Samples:
    """The samples with each tool's result in the response instead of the prompt."""
    ids = samples.response_ids()
    responses = [[*added, *own] for added, own in zip(results, ids, strict=True)]
    prompt_BP, prompt_mask_BP = pack_left(prompts, samples.pad_id)
    response_BT, mask_BT = pack_right(responses, samples.pad_id)
    logprobs_BT = torch.zeros(response_BT.shape)
    for row, (added, own) in enumerate(zip(results, ids, strict=True)):
        first, last = len(added), len(added) + len(own)
        logprobs_BT[row, first:last] = samples.logprobs_BT[row, : len(own)]
    return replace(
        samples,
        tokens_BL=torch.cat([prompt_BP, response_BT], dim=1),
        attention_BL=torch.cat([prompt_mask_BP, mask_BT], dim=1),
        prompt_width=prompt_BP.shape[1],
        logprobs_BT=logprobs_BT,
    )


def _scored(trainer: Trainer, samples: Samples) -> Samples:
    """Fill in the learner's log-probabilities of the tools' tokens: nothing sampled them.

    They then have no mismatch.
    """
    config, tool_BT = trainer.config, tool_tokens(trainer, samples)
    settings = (config.rollout.temperature, config.optimizer.micro_batch)
    scores = score_on_ranks(trainer.learner.model, samples, *settings, trainer.ranks)
    return replace(
        samples, logprobs_BT=torch.where(tool_BT, scores.logprobs_BT, samples.logprobs_BT)
    )


def tool_tokens(trainer: Trainer, samples: Samples) -> Tensor:
    """True at the tokens of tools, shape (B, T): the sign of a failure, or a result in brackets."""
    (opened,), (failed,) = map(trainer.policy.tokenizer.encode, (_OPEN, _FAILED))
    first_B1 = samples.response_BT[:, :1]
    columns_T = torch.arange(samples.response_BT.shape[1])
    is_result = (first_B1 == opened) & (columns_T < _RESULT_LENGTH + 2)
    return is_result | ((first_B1 == failed) & (columns_T < 1))


def repeated_prompts(trainer: Trainer) -> None:
    """The training prompts come from a fixed set, so that the same ones return."""
    task: Any = trainer.task
    while hasattr(task, "_task"):
        task = task._task
    rng = random.Random(trainer.config.seed)  # noqa: S311 - problems, no secret
    pool = task.problems(rng, _PROMPTS)
    task.problems = lambda rng, count: rng.choices(pool, k=count)
