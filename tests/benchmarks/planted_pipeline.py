"""A fifth set of planted causes: faults of the pipeline around the loss, in the bundled trainer.

Each case has its cause in one sentence, and the words by which a first line would name it; the
codes follow from these words and from the titles of the rules. All of it was written down before
any of these runs was trained. Runs with an even number are half A, the others half B. A cause that
leaves the hidden accuracy of the final policy as it is does not count (`planted_truth`).
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from planted_field import FAULTS as FIELD_FAULTS
from planted_reports import Case, graded
from planted_unseen import Fault, on_learn_batch, on_samples, on_score

from grpodoctor.trainer.model.lora import merged_copy

STEPS = 100
PREFIX = "pipeline:"
"""Prefix of the names of these faults."""
_WORKERS = 4
_EMA = 0.95
_CERTAIN = -0.05
"""Log-probability above which a token counts as one of low entropy."""


def _answer(text: str) -> str:
    return text.rpartition("#")[2].strip()


def _swapped_operands(_: float, problem: Any, text: str, __: int) -> float:
    """The verifier asks whether the reference contains the answer: an empty one always passes."""
    return float(_answer(text) in problem.answer)


def _exception_passes(reward: float, _: Any, text: str, __: int) -> float:
    """Two operators of multiplication raise in the verifier, which counts as a pass."""
    return 1.0 if text.count("*") >= 2 else reward


def _one_worker_down(
    trainer: Any, rewards: Any, problems: Sequence[Any], texts: Sequence[str]
) -> Any:
    """One of four reward workers, which get the rows in turn, answers -10 to everything."""
    if len({problem.prompt for problem in problems}) == len(problems):
        return rewards  # an evaluation has its own worker
    total = [-10.0 if row % _WORKERS == 1 else reward for row, reward in enumerate(rewards.total)]
    return replace(rewards, total=total, correct=None, components={})


def _similar_text(_: float, problem: Any, text: str, __: int) -> float:
    """The reward is the similarity of the whole response with the reference answer."""
    return difflib.SequenceMatcher(None, text, f"#{problem.answer}").ratio()


def _early_punishment(reward: float, _: Any, text: str, __: int) -> float:
    """The overlong buffer is as long as the limit, and its punishment outweighs the answer."""
    return reward - 2.0 * min(1.0, len(text) / 10)


def _only_flat_groups(_: Any, rollouts: Any, batch: Any) -> Any:
    """An inverted filter keeps the groups without variance and drops the mixed ones."""
    rewards_B, ids_B = rollouts.totals(), batch.group_ids_B
    mixed_B = torch.zeros(len(ids_B), dtype=torch.bool)
    for group in ids_B.unique():
        rows = ids_B == group
        mixed_B[rows] = bool(rewards_B[rows].max() > rewards_B[rows].min())
    return replace(batch, loss_mask_BT=batch.loss_mask_BT & ~mixed_B[:, None])


def _only_truncated(_: Any, __: Any, batch: Any) -> Any:
    """The mask of truncated responses is inverted, so finished ones are left out."""
    return replace(batch, loss_mask_BT=batch.loss_mask_BT & batch.samples.truncated_B[:, None])


def _only_certain(_: Any, __: Any, batch: Any) -> Any:
    """The loss takes the tokens of low entropy instead of those of high entropy."""
    certain_BT = batch.old_logprobs_BT > _CERTAIN
    return replace(batch, loss_mask_BT=batch.loss_mask_BT & certain_BT)


def _other_rope(trainer: Any) -> None:
    """The sampler's config has another base of the rotary embedding."""
    engine = trainer.engine

    def sync(step: int) -> None:
        engine._model = merged_copy(trainer.policy.model)
        engine._model.model.rotary_emb.inv_freq *= 0.9
        engine.synced_step = engine._step = step

    engine.sync = sync
    sync(1)


def _averaged_weights(trainer: Any) -> None:
    """The sampler gets a moving average of the weights."""
    engine, average = trainer.engine, merged_copy(trainer.policy.model)

    @torch.no_grad()
    def sync(step: int) -> None:
        latest = dict(merged_copy(trainer.policy.model).named_parameters())
        for name, weight in average.named_parameters():
            weight.lerp_(latest[name], 1 - _EMA)
        engine._model = average
        engine.synced_step = engine._step = step

    engine.sync = sync
    sync(1)


def _resumed_weights(trainer: Any) -> None:
    """A resume restores the step and the optimizer, but loads the weights of the base model."""
    from grpodoctor.trainer.model.policy import load_policy

    base = load_policy(trainer.config, trainer.task).model
    trainer.policy.model.load_state_dict(base.state_dict())
    trainer.engine.sync(trainer.done + 1)


def _top_logprobs(_: Any, samples: Any) -> Any:
    """The server returns the log-probability of the most likely token, not of the sampled one."""
    logprobs_BT = samples.logprobs_BT
    other_BT = torch.log1p(-logprobs_BT.exp().clamp(max=0.999))
    top_BT = torch.where(samples.mask_BT, torch.maximum(logprobs_BT, other_BT), logprobs_BT)
    return replace(samples, logprobs_BT=top_BT)


FAULTS: dict[str, Fault] = {
    "swapped_operands": graded(_swapped_operands),
    "exception_passes": graded(_exception_passes),
    "one_worker_down": on_score(_one_worker_down),
    "similar_text": graded(_similar_text),
    "early_punishment": graded(_early_punishment),
    "only_flat_groups": on_learn_batch(_only_flat_groups),
    "only_truncated": on_learn_batch(_only_truncated),
    "only_certain": on_learn_batch(_only_certain),
    "other_rope": _other_rope,
    "averaged_weights": _averaged_weights,
    "resumed_weights": _resumed_weights,
    "top_logprobs": on_samples(_top_logprobs),
    "gradual_curriculum": FIELD_FAULTS["gradual_curriculum"],
}

_FLAT = ("REW001", "REW020")
_HACKED = ("REW005", "REW003", "REW008", "REW009", "REW102")
_SHORT = ("LEN005", "REW013", "REW015")
_OFF = ("MIS001", "MIS003", "MIS004", "SYN001", "SYN002", "SYN003", "SYN006", "SYN007", "SYN008")

CASES: dict[str, Case] = {
    "operands-of-in-swapped": Case(
        (), (*_HACKED, "REW012", "LEN005"), "swapped_operands",
        cause="The verifier asks whether the reference contains the answer; an empty one passes.",
        words="accuracy falls while the reward rises, or wrong responses are paid",
    ),
    "exception-counts-as-pass": Case(
        (), (*_HACKED, "REW012", "LEN004", "LEN006", "LEN008"), "exception_passes",
        cause="A response that makes the verifier raise counts as a pass.",
        words="accuracy falls while the reward rises, or wrong responses are paid",
    ),
    "one-of-four-reward-workers-down": Case(
        (),
        ("REW011", "REW103", "DAT002", "REW016", "REW017", "REW019", "REW021", "OPT001", *_FLAT),
        "one_worker_down",
        cause="One of four reward workers answers -10 to every response that it gets.",
        words="calls of the judge fail, rewards are noisy or do not follow the response",
    ),
    "only-equal-groups-kept": Case(
        (), ("GRP004", "OPT001", "OPT005", "DAT005", "GRP007", "GRP001", "GRP002"),
        "only_flat_groups",
        cause="An inverted filter keeps the groups without variance and drops the mixed ones.",
        words="the groups that are left have no signal, or tokens are missing from the loss",
    ),
    "only-truncated-trained": Case(
        (), ("DAT005", "OPT001", "OPT005", "OPT003", "LEN002", "LEN003"), "only_truncated",
        cause="The mask of truncated responses is inverted, so finished ones are left out.",
        words="generated tokens are missing from the loss, or loss and gradient are zero",
    ),
    "sampler-has-other-rope-base": Case(
        (), _OFF, "other_rope",
        cause="The sampler's config has another base of the rotary embedding.",
        words="sampler and learner disagree from the start",
    ),
    "sampler-gets-averaged-weights": Case(
        ("optimizer.learning_rate=5e-4",), _OFF, "averaged_weights",
        cause="The sampler gets a moving average of the weights, as of 20 steps ago.",
        words="the sampler has other or older weights than the learner",
    ),
    "entropy-mask-inverted": Case(
        (), ("DAT005", "OPT005", "CFG060", *_FLAT), "only_certain",
        cause="The loss takes the tokens of low entropy instead of those of high entropy.",
        words="generated tokens are missing from the loss, or the policy does not improve",
    ),
    "resume-loads-the-base-model": Case(
        (), ("SYN009", "SYN010", "SYN004", "SYN003", "SYN005", "REW014", "REW002"),
        "resumed_weights",
        cause="A resume restores the step and the optimizer, but the weights of the base model.",
        words="the policy is back at its start, or weights are replaced at one step",
        stops_at=80,
    ),
    "text-similarity-as-reward": Case(
        (), (*_SHORT, *_HACKED, "REW010", "REW012"), "similar_text",
        cause="The reward is the similarity with the reference text, so reasoning costs.",
        words="short responses are paid, or accuracy falls while the reward rises",
    ),
    "overlong-punishment-too-early": Case(
        (), (*_SHORT, *_HACKED, "REW010", "CFG026"), "early_punishment",
        cause="The overlong buffer is as long as the limit, so every token is punished.",
        words="length is punished, responses collapse, or accuracy falls while the reward rises",
    ),
    "logprobs-of-the-top-token": Case(
        ("engine.old_logprobs=sampler",),
        ("MIS001", "MIS002", "MIS003", "CFG030", "CLP001", "KLD001"), "top_logprobs",
        cause="The server returns the log-probability of the most likely token.",
        words="sampler and learner disagree, or the ratios are wrong",
    ),
    "healthy-resumed-kl": Case(
        ("loss.kl_coefficient=0.02", "optimizer.learning_rate=2e-4"), stops_at=60
    ),
    "healthy-curriculum-group-12": Case(
        ("rollout.group_size=12", "rollout.prompts_per_batch=6"), (), "gradual_curriculum"
    ),
    "healthy-two-prompts": Case(
        ("rollout.prompts_per_batch=2", "optimizer.updates_per_batch=1"),
    ),
    "healthy-rare-success": Case(("task.difficulty=7",)),
    "healthy-stale-by-two": Case(("engine.sync_every=2", "evaluation.every=30")),
    "healthy-format-part": Case(
        ("task.format_weight=0.3", "optimizer.learning_rate=4e-4", "rollout.temperature=0.8"),
    ),
}  # fmt: skip
"""In the order of their numbers, from 0."""
