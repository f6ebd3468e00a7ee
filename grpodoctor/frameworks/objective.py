"""What a log's run optimizes, judged by its keys: other kinds of training are not examined."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from grpodoctor.errors import name_some
from grpodoctor.frameworks.framework import Framework
from grpodoctor.vocabulary.knobs import Setting

_REINFORCED = ("reward/mean", "accuracy/train", "groups/", "advantage/", "clip/", "ratio/",
               "length/", "kl/", "mismatch/", "staleness/", "pass_at_k/")  # fmt: skip
"""Metrics, or their families, that only reinforcement learning and distillation have."""

_PREFERENCES = re.compile(
    r"(?:.*/)?(?:eval_|train_)?(?:rewards/(?:chosen|rejected|margins|accuracies)"
    r"|logps/(?:chosen|rejected)|logits/(?:chosen|rejected)|log_odds_(?:ratio|chosen)"
    r"|(?:chosen|rejected)_(?:rewards?|logps?|logits)|(?:rewards?|logps?|logits)_(?:chosen|rejected)"
    r"|rewards?_(?:margins?|accuracies))",
    re.IGNORECASE,  # the table of a notebook begins names with a capital letter
)
_LLAMA_FACTORY = frozenset({"total_steps", "percentage"})
"""Keys of every row of `trainer_log.jsonl`. Its `accuracy` is `rewards/accuracies` of the trainer,
the share of pairs whose chosen response has the higher reward; PPO logs `reward`."""
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
_OF_OPTIMIZER = ("optimizer/", "time/")
_BOOKKEEPING = re.compile(
    r"(?:.*/)?(?:epochs?|num_tokens|num_input_tokens_seen|tokens_seen|total_tokens|total_flos|"
    r"total_steps|current_steps|percentage|throughput|memory.*|vram_.*|"
    r"(?:train_)?(?:loss|runtime|samples_per_second|steps_per_second)|"
    r"elapsed(?:_time)?|remaining(?:_time)?)"
)
"""Keys of any training, about its progress and cost."""
_REWARD = re.compile(r"(?:^|[/_.])rewards?(?:$|[/_.])", re.IGNORECASE)
"""A part of a key that no log of supervised fine-tuning has."""
_ENVIRONMENT = re.compile(
    r"(?!.*(?:clip|adam|optim))(?:.*/)?(?:ep_rew_mean|ep_len_mean"  # Stable-Baselines3
    r"|episodic_return|episodic_length|charts/SPS"  # CleanRL
    r"|episode_reward_mean|episode_return_mean|episode_len_mean|num_env_steps_sampled"  # RLlib
    r"|time/(?:fps|total_timesteps)"
    r"|(?:start_|end_)?(?:eps|epsilon)|exploration_(?:rate|epsilon)"  # scripts of value learning
    r"|(?:avg_|average_|mean_|max_)?q(?:_loss|_values?)?|td_(?:loss|error)"
    r"|(?:replay_)?(?:buffer|memory)_size|lives|actions?|high_score|average_time_steps)"
)
"""Keys of agents that learn in an environment, as the libraries for it and scripts log them. The
epsilon of a clip or an optimizer is none of them."""
_LANGUAGE = re.compile(
    r"(?:^|[/_.])(?:tokens?|responses?|completions?|prompts?|logprobs?|logps?|generations?|pass@\d+"
    r"|(?:kl_)?ref(?:erence)?(?:_kl)?)(?:$|[/_.])",
    re.IGNORECASE,
)
"""A part of a key that only a run with a language model has."""
_OF_LANGUAGE = ("groups/", "length/", "kl/reference", "kl/teacher", "mismatch/", "staleness/",
                "pass_at_k/", "tools/", "text/", "correction/")  # fmt: skip
"""Metrics, or their families, that an agent without a language model does not have."""


@dataclass(frozen=True, slots=True)
class Objective:
    """A kind of training that is not examined, and how its keys show it."""

    name: str
    pattern: re.Pattern[str]
    """Its keys."""
    least: int
    """How many of them, with different names, are enough evidence."""
    excluded_by: tuple[str, ...] = _REINFORCED
    """Metrics, or their families, that such a run does not have."""
    allowed: frozenset[str] = frozenset()
    """Metrics among these that it has all the same."""
    foreign: re.Pattern[str] | None = None
    """Parts of keys that no such log has."""
    writer: frozenset[str] = frozenset()
    """Keys that are all there if the program wrote the log whose keys these are."""
    wanted: str = "reinforcement learning"
    """What it is not."""

    def described(self, evidence: str) -> str:
        """The objective, with the keys that show it."""
        return f"a log of {self.name} ({evidence}), not of {self.wanted}"


_OBJECTIVES = (
    # The accuracy is the share of pairs whose chosen response has the higher reward.
    Objective(
        "preference optimization such as DPO",
        _PREFERENCES,
        2,
        allowed=frozenset({"accuracy/train"}),
    ),
    Objective(
        "preference optimization such as DPO",
        re.compile("accuracy"),
        1,
        allowed=frozenset({"accuracy/train"}),
        foreign=_REWARD,
        writer=_LLAMA_FACTORY,
    ),
    Objective(
        "supervised fine-tuning or preference optimization such as KTO",
        re.compile("loss"),
        1,
        foreign=_REWARD,
        writer=_LLAMA_FACTORY,
    ),
    Objective(
        "reward modeling", _REWARD_MODEL, 3, allowed=frozenset({"reward/mean", "accuracy/train"})
    ),
    # An `eval/loss` next to rewards is the loss of the policy.
    Objective("supervised fine-tuning", _SUPERVISED, 1, foreign=_REWARD),
    Objective(
        "reinforcement learning in an environment",
        _ENVIRONMENT,
        2,
        excluded_by=_OF_LANGUAGE,
        foreign=_LANGUAGE,
        wanted="a language model",
    ),
)


def other_objective(framework: Framework, keys: Collection[str]) -> str:
    """The objective of a log that is not of reinforcement learning of a language model.

    Args:
        framework: the framework that the log's keys suggest.
        keys: the logged keys.

    Returns:
        The log's description with the keys that show it, such as `a log of supervised fine-tuning
        (eval_loss), not of reinforcement learning`; empty if the run may be one to examine.
    """
    metrics = logged_metrics(framework, keys)
    for objective, evidence in _suggested(keys):
        excluded = {name for name in metrics if name.startswith(objective.excluded_by)}
        if not excluded - objective.allowed:
            return objective.described(evidence)
    return ""


def has_only_losses(metrics: Collection[str], unmapped: Collection[str]) -> bool:
    """Whether a log has the loss and the optimizer's state and nothing else.

    So has the log of a supervised training by transformers. Every trainer of GRPO logs a reward,
    but the table of a notebook may show nothing but the loss: the learning rate must be logged too.

    Args:
        metrics: the metrics of the run.
        unmapped: keys of the log that map to no metric.
    """
    return (
        {"optimizer/loss", "optimizer/learning_rate"} <= set(metrics)
        and all(name.startswith(_OF_OPTIMIZER) for name in metrics)
        and all(map(_BOOKKEEPING.fullmatch, unmapped))
    )


def is_supervised_row(keys: Collection[str]) -> bool:
    """Whether a row belongs to supervised fine-tuning, which may precede the run in its log."""
    if _TOKEN_ACCURACY.isdisjoint(keys):
        return False
    return not any("reward" in key for key in keys)


def suggested_objectives(keys: Collection[str]) -> Iterator[str]:
    """What else than reinforcement learning of a language model logged keys suggest."""
    return (objective.described(evidence) for objective, evidence in _suggested(keys))


def _suggested(keys: Collection[str]) -> Iterator[tuple[Objective, str]]:
    for objective in _OBJECTIVES:
        if not objective.writer.issubset(keys):
            continue
        if objective.foreign and any(map(objective.foreign.search, keys)):
            continue
        evidence = sorted(key for key in keys if objective.pattern.fullmatch(key))
        # A log may repeat a key under prefixes: each name counts once.
        if len({key.rpartition("/")[2] for key in evidence}) >= objective.least:
            yield objective, name_some(evidence)


def logged_metrics(
    framework: Framework, keys: Collection[str], settings: Mapping[str, Setting] | None = None
) -> set[str]:
    """The canonical metrics that a framework's table gives for logged keys.

    Args:
        framework: the framework.
        keys: the logged keys.
        settings: known settings, which exclude rows of the table; by default none is known.
    """
    known = settings or {}
    rows = (row for key in keys for row, _ in framework.meanings_of(framework.bare_key(key)))
    return {
        row.metric
        for row in rows
        if all(known.get(name, allowed[0]) in allowed for name, allowed in row.when.items())
    } - {""}
