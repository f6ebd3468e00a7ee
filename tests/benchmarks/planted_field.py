"""A third set of planted causes: faults that users of GRPO report, in runs of the bundled trainer.

The causes and their accepted codes were written down before `check` saw any of these runs. Runs
with an even number are half A, on which rules may be changed; half B is examined once, at the end.
Each run is judged by the accuracy of its final policy on held-out prompts with the right verifier
(`planted_truth`): a cause that does no measurable harm is not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from planted_unseen import Fault, at_step, graded, on_learn_batch, on_samples, on_score, share

from grpodoctor.trainer.model.lora import merged_copy
from grpodoctor.trainer.model.scoring import score_on_ranks
from grpodoctor.trainer.model.tokenizer import ALPHABET

STEPS = 100
PREFIX = "field:"
"""Prefix of the names of these faults."""
_BEGINS = 30
"""Step from which a fault that begins during the run is in force."""


def _token(character: str) -> int:
    return 2 + ALPHABET.index(character)


def _judged(grade: Callable[[float, Any, str], float]) -> Fault:
    """Replace each reward; the accuracy comes from another verifier, which stays right."""

    def change(_: Any, rewards: Any, problems: Sequence[Any], texts: Sequence[str]) -> Any:
        rows = zip(rewards.total, problems, texts, strict=True)
        return replace(rewards, total=[grade(*row) for row in rows], components={})

    return on_score(change)


def _first_digit(_: float, problem: Any, text: str) -> float:
    """The parser takes the first digit of the response for the answer."""
    return float(next((c for c in text if c.isdigit()), "") == problem.answer)


def _close_enough(_: float, problem: Any, text: str) -> float:
    """The tolerance of the comparison is absolute, and far too wide."""
    answer = text.rpartition("#")[2].strip()
    return float(answer.isdigit() and abs(int(answer) - int(problem.answer)) <= 3)


def _counted_steps(reward: float, _: Any, text: str) -> float:
    """Each operator in the response counts as a step of reasoning."""
    return reward + 1.0 * sum(character in "+-*" for character in text)


def _by_length(reward: float, _: Any, text: str) -> float:
    """The reward is divided by the number of characters twice, in the judge and around it."""
    return 16 * reward / max(1, len(text)) ** 2


def _slow_judge(reward: float, problem: Any, text: str, row: int) -> float:
    """The judge needs longer for long responses, and a timeout counts as 0."""
    return reward * (share(f"{problem.prompt}{text}{row}") > len(text) / 14)


def _next_answers(_: Any, rewards: Any, problems: Sequence[Any], texts: Sequence[str]) -> Any:
    """Prompts were shuffled without their answers: each row has the answer of the next one."""
    rows = list({problem.prompt: problem.answer for problem in problems}.items())
    answers = {prompt: rows[(at + 1) % len(rows)][1] for at, (prompt, _answer) in enumerate(rows)}
    total = [
        float(text.rpartition("#")[2].strip() == answers[problem.prompt])
        for problem, text in zip(problems, texts, strict=True)
    ]
    return replace(rewards, total=total, correct=None, components={})


def _cached(_: Any, rewards: Any, problems: Sequence[Any], __: Sequence[str]) -> Any:
    """The cache of the judge has the prompt alone as its key."""
    cache: dict[str, float] = {}
    total = [
        cache.setdefault(problem.prompt, reward)
        for problem, reward in zip(problems, rewards.total, strict=True)
    ]
    return replace(rewards, total=total, correct=None, components={})


def _on_last_token(_: Any, __: Any, batch: Any) -> Any:
    """The reward is at the last token, and the advantages are not broadcast to the others."""
    mask_BT = batch.samples.mask_BT
    last_BT = mask_BT & ~torch.nn.functional.pad(mask_BT[:, 1:], (0, 1))
    return replace(batch, advantages_BT=torch.where(last_BT, batch.advantages_BT, 0.0))


def _only_negative(_: Any, __: Any, batch: Any) -> Any:
    """A wrong comparison leaves only the responses below the average in the loss."""
    return replace(batch, advantages_BT=batch.advantages_BT.clamp(max=0))


def _shifted_reference(_: Any, __: Any, batch: Any) -> Any:
    """The reference's log-probabilities belong to the next token."""
    return replace(batch, reference_logprobs_BT=batch.reference_logprobs_BT.roll(-1, 1))


def _old_copy(trainer: Any) -> None:
    """The old log-probabilities come from a copy of the policy that is never refreshed."""
    copy = merged_copy(trainer.learner.model)

    def change(trainer: Any, rollouts: Any, batch: Any) -> Any:
        settings = trainer.config
        scores = score_on_ranks(
            copy, rollouts.samples, settings.rollout.temperature,
            settings.optimizer.micro_batch, trainer.ranks,
        )  # fmt: skip
        return replace(batch, old_logprobs_BT=scores.logprobs_BT)

    on_learn_batch(change)(trainer)


def _overflow(trainer: Any) -> None:
    """Gradients overflow in float16, so the scaler skips every update."""

    def begin(trainer: Any) -> None:
        for weight in trainer.learner.parameters:
            weight.register_hook(lambda gradient: gradient * float("inf"))

    at_step(begin, start=_BEGINS)(trainer)


def _growing_rate(trainer: Any) -> None:
    """The scheduler multiplies the learning rate at each step by more than one."""
    rate = trainer._learning_rate
    trainer._learning_rate = lambda step: rate(step) * 1.06**step


def _delivered(change: Callable[[Any], None]) -> Fault:
    """The sampler gets a changed copy of the learner's weights."""

    def fault(trainer: Any) -> None:
        engine = trainer.engine

        def sync(step: int) -> None:
            engine._model = merged_copy(trainer.policy.model)
            with torch.no_grad():
                change(engine._model)
            engine.synced_step = engine._step = step

        engine.sync = sync
        sync(1)

    return fault


def _biased(model: Any) -> None:
    """The server has a logit bias for one token."""
    head = model.get_output_embeddings()
    head.bias = torch.nn.Parameter(torch.zeros(head.weight.shape[0]), requires_grad=False)
    head.bias[_token("#")] = 5.0


def _adapter_twice(trainer: Any) -> None:
    """The adapter is merged into the sampler's weights and applied on top again."""
    start = {name: w.clone() for name, w in merged_copy(trainer.policy.model).named_parameters()}

    def change(model: Any) -> None:
        for name, weight in model.named_parameters():
            weight.add_(weight - start[name])

    _delivered(change)(trainer)


def _template_in_learner(_: Any, samples: Any) -> Any:
    """The learner's prompts have a template that the sampler's do not."""
    words = [_token(character) for character in "=3=3"]
    words_BP = torch.tensor(words).expand(len(samples), -1)
    return replace(
        samples,
        tokens_BL=torch.cat([words_BP, samples.tokens_BL], 1),
        attention_BL=torch.cat([torch.ones_like(words_BP, dtype=torch.bool),
                                samples.attention_BL], 1),
        prompt_width=samples.prompt_width + len(words),
    )  # fmt: skip


def _retokenized(_: Any, samples: Any) -> Any:
    """Text is normalized before it is tokenized again: another token takes the place of one."""
    tokens_BL = samples.tokens_BL.clone()
    response_BT = tokens_BL[:, samples.prompt_width :]
    response_BT[response_BT == _token("*")] = _token("+")
    return replace(samples, tokens_BL=tokens_BL)


def _gradual_curriculum(trainer: Any) -> None:
    """Prompts grow from two to four operations; the held-out prompts stay."""
    inner = getattr(trainer.task, "task", trainer.task)
    heldout, problems = inner.heldout(64), inner.problems
    inner.heldout = lambda count: heldout[:count]

    def changed(rng: Any, count: int) -> Any:
        inner.size = 2 if rng.random() > trainer.done / STEPS else 4
        return problems(rng, count)

    inner.problems = changed


FAULTS: dict[str, Fault] = {
    "first_digit": _judged(_first_digit),
    "close_enough": _judged(_close_enough),
    "counted_steps": _judged(_counted_steps),
    "by_length": _judged(_by_length),
    "constant_label": _judged(lambda _, __, text: float(text.rpartition("#")[2] == "7")),
    "slow_judge": graded(_slow_judge),
    "next_answers": on_score(_next_answers),
    "cached": on_score(_cached),
    "on_last_token": on_learn_batch(_on_last_token),
    "only_negative": on_learn_batch(_only_negative),
    "shifted_reference": on_learn_batch(_shifted_reference),
    "old_copy": _old_copy,
    "overflow": _overflow,
    "growing_rate": _growing_rate,
    "biased": _delivered(_biased),
    "adapter_twice": _adapter_twice,
    "template_in_learner": on_samples(_template_in_learner),
    "retokenized": on_samples(_retokenized),
    "gradual_curriculum": _gradual_curriculum,
    "negative_rewards": graded(lambda reward, *_: reward - 1.0),
}

_HACKED = ("REW005", "REW003", "REW008", "REW009")
_TOO_FAR = ("OPT006", "CLP001", "KLD001", "CFG050", "OPT002", "OPT004")
_FALL = ("REW014", "REW002")
_FLAT = ("REW001", "REW020")
_OFF = ("MIS001", "MIS003", "MIS004", "SYN002", "SYN003", "SYN007", "SYN008")

Row = tuple[tuple[str, ...], tuple[str, ...], str | None]

RUNS: dict[str, Row] = {
    "first-digit-parsed": ((), _HACKED, "first_digit"),
    "tolerance-too-wide": ((), (*_HACKED, "REW021", "REW102"), "close_enough"),
    "answers-of-next-row": (
        (), ("REW018", "REW021", "REW011", "REW012", "DAT113", *_FLAT), "next_answers"
    ),
    "reward-cached-by-prompt": ((), ("GRP004", "OPT001"), "cached"),
    "judge-slow-for-long": (
        (), ("REW013", "LEN005", "REW015", "DAT002", "REW011", "REW021"), "slow_judge"
    ),
    "steps-counted": (
        (), (*_HACKED, "REW010", "REW013", "LEN004", "LEN006", "LEN008", "LEN002"), "counted_steps"
    ),
    "reward-per-character": (
        (), ("REW013", "LEN005", "REW015", "REW010", *_HACKED), "by_length"
    ),
    "constant-label": ((), _HACKED, "constant_label"),
    "advantage-on-last-token": ((), ("DAT005", "OPT005", "GRP005", *_FLAT), "on_last_token"),
    "only-negatives-trained": (
        ("optimizer.learning_rate=5e-4",), ("GRP010", "GRP008", "ENT002", *_FALL, *_FLAT),
        "only_negative",
    ),
    "reference-shifted": (
        ("loss.kl_coefficient=0.2",), ("KLD003", "KLD002", "KLD101"), "shifted_reference"
    ),
    "old-logprobs-of-old-copy": (
        (), ("MIS002", "CLP001", "KLD001", "SYN001", "OPT006"), "old_copy"
    ),
    "updates-overflow": ((), ("OPT003", "OPT005", "OPT007", "OPT001", *_FLAT), "overflow"),
    "learning-rate-grows": ((), (*_TOO_FAR, *_FALL), "growing_rate"),
    "logit-bias-in-sampler": ((), (*_OFF, "CFG021", "CFG023"), "biased"),
    "adapter-applied-twice": (
        ("model.lora_rank=8", "optimizer.learning_rate=2e-3"), (*_OFF, *_TOO_FAR), "adapter_twice"
    ),
    "template-in-learner-only": (
        (), (*_OFF, "MIS002", "DAT101", "DAT102"), "template_in_learner"
    ),
    "retokenized-differently": ((), (*_OFF, "MIS002", "DAT102"), "retokenized"),
    "warm-up-of-5000": (
        ("optimizer.warmup_steps=5000",), ("CFG057", "OPT005", "CFG051"), None
    ),
    "adam-epsilon-1": (("optimizer.epsilon=1.0",), ("OPT005", "CFG058", "CFG060", *_FLAT), None),
    "healthy-gradual-curriculum": ((), (), "gradual_curriculum"),
    "healthy-group-of-4": (("rollout.group_size=4", "rollout.prompts_per_batch=16"), (), None),
    "healthy-solved-early": (("task.difficulty=1", "optimizer.learning_rate=2e-4"), (), None),
    "healthy-negative-rewards": ((), (), "negative_rewards"),
    "healthy-filtered-groups": (("rollout.filter_groups=true",), (), None),
    "healthy-cosine-kl": (
        ("loss.kl_coefficient=0.02", "optimizer.schedule=cosine", "optimizer.warmup_steps=5"),
        (), None,
    ),
}  # fmt: skip
"""Settings, codes that name the cause (none for a healthy run), fault."""
