"""Recognizes logs of other kinds of training, which are not judged as reinforcement learning."""

from __future__ import annotations

import re
from collections.abc import Collection

_KINDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("preference training", (r"logps/chosen", r"logps/rejected")),
    ("reward-model training", (r"min_reward", r"max_reward", r"margin")),
    ("supervised training", (r"mean_token_accuracy|perplexity|ppl",)),
)
"""Kind of training, and patterns for keys that TRL's trainers and others log for it, without the
logger's prefix; each pattern must match a key."""

_PREFIX = re.compile(r"(train|eval|val)[/_]")


def other_training(keys: Collection[str]) -> str:
    """Why a log without a reward is not judged; empty if its kind is not recognized.

    Args:
        keys: the keys of the log that hold no metric of reinforcement learning.
    """
    bare = [_PREFIX.sub("", key, count=1) for key in keys]
    for kind, patterns in _KINDS:
        found = [next((key for key in bare if re.fullmatch(each, key)), "") for each in patterns]
        if all(found):
            return f"this is a log of {kind} ({', '.join(found)}), not of reinforcement learning."
    return ""
