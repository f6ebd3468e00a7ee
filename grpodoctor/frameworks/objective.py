"""What a log's run optimizes, judged by its keys: other kinds of training are not examined."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

from grpodoctor.errors import name_some
from grpodoctor.frameworks.framework import Framework

_REINFORCED = ("reward/mean", "accuracy/train", "groups/", "advantage/", "clip/", "ratio/",
               "length/", "kl/", "mismatch/", "staleness/", "pass_at_k/")  # fmt: skip
"""Metrics, or their families, that only reinforcement learning and distillation have."""

_PREFERENCES = re.compile(
    r"(?:.*/)?(?:eval_)?(?:rewards/(?:chosen|rejected|margins|accuracies)|logps/(?:chosen|rejected)"
    r"|logits/(?:chosen|rejected)|log_odds_(?:ratio|chosen))"
)
_REWARD_MODEL = re.compile(r"(?:.*/)?(?:margin|min_reward|max_reward)")
_SUPERVISED = re.compile(
    r"(?:.*/)?(?:mean_token_accuracy|token_acc(?:uracy)?|perplexity|ppl|train_mean_nll|nll|gpt_loss|"
    r"lm_loss|eval_loss|val_loss|validation_loss|val/loss|validation/loss|eval/loss|lr\(1e-3\))"
)
_TOKEN_ACCURACY = frozenset(
    prefix + name
    for prefix in ("", "train/", "eval_", "eval/")
    for name in ("mean_token_accuracy", "token_acc", "token_accuracy")
)
"""Keys of rows of supervised fine-tuning that no row of reinforcement learning has."""
_FINE_TUNING = "supervised fine-tuning"
_REWARD = re.compile(r"(?:^|[/_.])rewards?(?:$|[/_.])", re.IGNORECASE)
"""A part of a key that no log of supervised fine-tuning has."""
_OBJECTIVES: Mapping[str, tuple[re.Pattern[str], int]] = {
    "preference optimization such as DPO": (_PREFERENCES, 2),
    "reward modeling": (_REWARD_MODEL, 3),
    _FINE_TUNING: (_SUPERVISED, 1),
}
"""Objectives without reinforcement learning: their keys, and how many are enough evidence."""


def other_objective(framework: Framework, keys: Collection[str]) -> str:
    """The objective of a log that is not of reinforcement learning, with the keys that show it.

    Args:
        framework: the framework that the log's keys suggest.
        keys: the logged keys.

    Returns:
        An objective and its evidence, such as `supervised fine-tuning (eval_loss)`; empty if the
        run may be reinforcement learning.
    """
    metrics = logged_metrics(framework, keys)
    ruled_out = {name for name in metrics if name.startswith(_REINFORCED)}
    for objective, evidence in suggested_objectives(keys):
        is_reward_model = objective == "reward modeling"
        if not ruled_out - ({"reward/mean", "accuracy/train"} if is_reward_model else set()):
            return f"{objective} ({evidence})"
    return ""


def is_supervised_row(keys: Collection[str]) -> bool:
    """Whether a row belongs to supervised fine-tuning, which may precede the run in its log."""
    if _TOKEN_ACCURACY.isdisjoint(keys):
        return False
    return not any("reward" in key for key in keys)


def suggested_objectives(keys: Collection[str]) -> Iterator[tuple[str, str]]:
    """The objectives besides reinforcement learning that logged keys suggest, and these keys."""
    has_rewards = any(_REWARD.search(key) for key in keys)
    for objective, (pattern, least) in _OBJECTIVES.items():
        if has_rewards and objective == _FINE_TUNING:
            continue  # an `eval/loss` next to rewards is the loss of the policy
        evidence = sorted(key for key in keys if pattern.fullmatch(key))
        # A log may repeat a key under prefixes: each name counts once.
        if len({key.rpartition("/")[2] for key in evidence}) >= least:
            yield objective, name_some(evidence)


def logged_metrics(framework: Framework, keys: Collection[str]) -> set[str]:
    """The canonical metrics that a framework's table gives for logged keys, under any setting."""
    bare = [framework.bare_key(key) for key in keys]
    rows = {row.metric for key in bare for row, _ in framework.meanings_of(key)}
    return rows - {""}
