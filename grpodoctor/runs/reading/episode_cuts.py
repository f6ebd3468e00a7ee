"""Episodes that end at their turn limit, in logs of environments that count turns and no tokens."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from grpodoctor.frameworks.row_keys import words_of
from grpodoctor.frameworks.translation import Translator

_TRUNCATED = frozenset({"trunc", "truncated", "truncation", "truncations"})
_OF_TOKENS = frozenset(
    {"token", "tokens", "len", "length", "lengths", "response", "responses", "completion",
     "completions", "generation", "output", "context", "eos"}
)  # fmt: skip
"""Words of keys whose limit is one of tokens."""


def set_episode_cuts_aside(
    translator: Translator, keys: Iterable[str], mapping: Collection[str]
) -> None:
    """Do not read the truncated share of episodes as that of responses.

    In the terms of Gym, an episode is truncated if it ends at its limit of turns. A log that counts
    turns and no tokens does not say that its truncation is another one.

    Args:
        translator: translates the rows of the log.
        keys: keys of the log.
        mapping: keys that the user has named.
    """
    metrics = translator.metrics_of(tuple(keys))
    logged = set(metrics.values())
    if "environment/turns_mean" not in logged or "length/mean" in logged:
        return
    for key, metric in metrics.items():
        words = words_of(key)
        is_cut = metric == "length/truncated_rate" and words & _TRUNCATED
        if is_cut and words.isdisjoint(_OF_TOKENS) and key not in mapping:
            translator.set_aside(key, "it may count episodes at their limit of turns")
