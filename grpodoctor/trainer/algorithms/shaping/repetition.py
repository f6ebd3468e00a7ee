"""A repetition penalty: what a response says again is taken off its reward.

Formula
    -penalty (1 - distinct n-grams / all n-grams) of the response's token ids, the end token among
    them; nothing for a response shorter than n tokens.

Denominator
    The n-grams of the response. It is a part of the reward, recorded without its weight as the
    component `repetition`.

Settings
    repetition.penalty, 0 by default and 1 where it is used; repetition.ngram 3.

Effect on metrics
    text/unique_ngram_rate rises and text/repetition_rate falls.

Other implementations
    TRL's get_repetition_penalty_reward with max_penalty = -penalty. DAPO is said to have a penalty
    named No Repeat: neither its paper nor its repository has one, nor does either reject responses
    that repeat each other.

Do not combine with
    Nothing. Tasks whose right answers repeat themselves are punished for it.

Source
    Demystifying Long Chain-of-Thought Reasoning, arXiv 2502.03373.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from grpodoctor.trainer.section import Section


class RepetitionConfig(Section):
    """What is taken off the reward for repeating oneself within a response."""

    penalty: float = Field(0.0, ge=0, le=10)
    """Times the share of a response's n-grams that come again; 0 takes nothing off."""
    ngram: int = Field(3, ge=1, le=64)
    """Tokens of an n-gram."""


def repetition(ids: Sequence[int], ngram: int) -> float:
    """Minus the share of the n-grams of `ids` that came before, in [-1, 0]."""
    grams = list(zip(*(ids[start:] for start in range(ngram)), strict=False))
    return len(set(grams)) / len(grams) - 1 if grams else 0.0
