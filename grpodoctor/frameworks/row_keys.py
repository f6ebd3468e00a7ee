"""The keys under which the rows of a log name their step and time."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

MOST_KEYS = 4096
"""Limit on the keys read from one log. A training log has fewer."""


@dataclass(frozen=True)
class RowKeys:
    """Keys that hold a row's step and time, the preferred ones first."""

    step: tuple[str, ...] = (
        "step",
        "training_step",
        "global_step",
        "train/global_step",
        "training/global_step",
        "trainer/global_step",
        "global_step/max_steps",
        "rollout/step",
        "train/step",
        "iteration",
        "train_global_step",
        "training_global_step",
        "Step",
        "steps",
        "train_step",
        "trainer_step",
        "update_step",
        "optimizer_step",
        "optim_step",
        "opt_step",
        "policy_step",
        "rollout_step",
        "grpo_step",
        "rl_step",
        "ppo_step",
        "outer_step",
        "gradient_step",
        "current_step",
        "current_steps",
        "step_idx",
        "step_id",
        "step_num",
        "iter",
        "iter_num",
        "train_iter",
        "train_iteration",
        "update",
        "update_idx",
        "round",
        "batch_idx",
        "batch_index",
        "eval/step",
        "system/step",
        "system/global_step",
        "_step",
        "episode",
    )
    """The default lists the names that frameworks and loggers use. `training_step` precedes
    `global_step`, which open-instruct counts in episodes. The logger's own counter comes last
    because it counts calls, not training steps. An episode is a step only where nothing else is."""
    scalars: tuple[str, ...] = ("training_step",)
    """Scalars of an event file that hold the training step if the events count something else."""
    time: tuple[str, ...] = ("time", "timestamp", "_timestamp", "wall_time")

    @cached_property
    def all(self) -> frozenset[str]:
        """All these keys: none of them holds a metric."""
        return frozenset((*self.step, *self.time))


_EVALUATION_WORDS = frozenset(
    {"eval", "evaluate", "evaluation", "val", "valid", "validate", "validation", "test", "testing",
     "heldout", "held", "dev"}
)  # fmt: skip
_WORD = re.compile(r"[a-z]+|\d+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def words_of(text: str) -> frozenset[str]:
    """The words and numbers of a key in lower case, also of `gradNormL2`."""
    return frozenset(_WORD.findall(_CAMEL.sub("_", text).lower()))


def is_evaluation(text: str) -> bool:
    """Whether a key or a name belongs to an evaluation: `eval`, `val/reward`, `test_accuracy`."""
    return not _EVALUATION_WORDS.isdisjoint(words_of(text))
