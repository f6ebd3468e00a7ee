"""Reward functions that are wrong in a known way, for `task.reward=sick_rewards:NAME`."""

from __future__ import annotations

import hashlib

Texts = list[str]


def _right(completions: Texts, answers: Texts) -> list[bool]:
    """Whether the last answer of each completion is the reference."""
    return [
        "#" in text and text.rsplit("#", 1)[1].strip() == answer
        for text, answer in zip(completions, answers, strict=True)
    ]


def good(prompts: Texts, completions: Texts, answers: Texts) -> list[float]:
    """Right or wrong, without saying which: what most reward functions are."""
    return [float(right) for right in _right(completions, answers)]


def one(prompts: Texts, completions: Texts, answers: Texts) -> list[float]:
    """Everything is rewarded."""
    return [1.0] * len(completions)


def zero(prompts: Texts, completions: Texts, answers: Texts) -> list[float]:
    """Nothing is: a parser that looks for another format."""
    return [float("\\boxed{" in text) for text in completions]


def flipped(prompts: Texts, completions: Texts, answers: Texts) -> list[float]:
    """The sign is wrong."""
    return [-float(right) for right in _right(completions, answers)]


def outweighed(prompts: Texts, completions: Texts, answers: Texts) -> dict[str, list[float]]:
    """Being right is rewarded, and what comes with it punished harder."""
    right = _right(completions, answers)
    return {"correct": list(right), "style": [-2.0 * each for each in right]}


def noise(prompts: Texts, completions: Texts, answers: Texts) -> list[float]:
    """A coin, thrown anew for each text: no information at all."""
    return [float(_coin(prompt + text)) for prompt, text in zip(prompts, completions, strict=True)]


def _coin(text: str) -> bool:
    return hashlib.sha256(text.encode()).digest()[0] < 128


def length_bonus(prompts: Texts, completions: Texts, answers: Texts) -> dict[str, list[float]]:
    """Right answers count, and so does each further token."""
    return {
        "task": good(prompts, completions, answers),
        "length": [0.05 * len(text) for text in completions],
    }


def cancelling(prompts: Texts, completions: Texts, answers: Texts) -> dict[str, list[float]]:
    """A bonus for being right that a penalty takes back."""
    right = _right(completions, answers)
    return {"task": [float(each) for each in right], "penalty": [-float(each) for each in right]}
