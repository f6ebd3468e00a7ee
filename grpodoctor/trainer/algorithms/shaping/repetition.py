"""A repetition penalty: subtracts a response's repeated n-grams from its reward.

Formula
    -penalty (1 - distinct n-grams / all n-grams) of the response's token IDs, including the end
    token; 0 for a response shorter than n tokens.

Denominator
    The n-grams of the response. It is part of the reward, recorded without its weight as the
    component `repetition`.

Settings
    repetition.penalty, 0 by default and 1 where it is used; repetition.ngram 3.

Effect on metrics
    text/unique_ngram_rate rises and text/repetition_rate falls.

Other implementations
    TRL's get_repetition_penalty_reward with max_penalty = -penalty. Some sources state that DAPO
    has a penalty named No Repeat; neither its paper nor its repository has one, and neither rejects
    responses that repeat each other.

Do not combine with
    No conflict. If correct answers of a task contain repetitions, the penalty punishes them too.

Source
    Demystifying Long Chain-of-Thought Reasoning, arXiv 2502.03373.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from grpodoctor.trainer.config_section import ConfigSection


class RepetitionConfig(ConfigSection):
    """Penalty for repetition within a response."""

    penalty: float = Field(0.0, ge=0, le=10)
    """Weight of the fraction of repeated n-grams; 0 is off."""
    ngram: int = Field(3, ge=1, le=64)
    """Tokens per n-gram."""


def repetition(ids: Sequence[int], ngram: int) -> float:
    """Minus the fraction of repeated n-grams in `ids`, in [-1, 0]."""
    grams = list(zip(*(ids[start:] for start in range(ngram)), strict=False))
    return len(set(grams)) / len(grams) - 1 if grams else 0.0
