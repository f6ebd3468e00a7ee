"""Reward functions that are wrong in a known way.

Use one by `task.reward=grpodoctor.trials.rewards:NAME`.
"""

from __future__ import annotations

import hashlib
import itertools

Texts = list[str]


def _is_correct(completions: Texts, answers: Texts) -> list[bool]:
    """Whether the last answer of each completion equals the reference."""
    return [
        "#" in text and text.rsplit("#", 1)[1].strip() == answer
        for text, answer in zip(completions, answers, strict=True)
    ]


def good(prompts: Texts, completions: Texts, answers: Texts) -> list[float]:
    """1 for a correct answer and 0 otherwise, without an accuracy: the usual reward function."""
    return [float(correct) for correct in _is_correct(completions, answers)]


def one(prompts: Texts, completions: Texts, answers: Texts) -> list[float]:
    """Reward every response."""
    return [1.0] * len(completions)


def zero(prompts: Texts, completions: Texts, answers: Texts) -> list[float]:
    """Reward no response: the parser expects another format."""
    return [float("\\boxed{" in text) for text in completions]


def flipped(prompts: Texts, completions: Texts, answers: Texts) -> list[float]:
    """Reward with the wrong sign."""
    return [-float(correct) for correct in _is_correct(completions, answers)]


def outweighed(prompts: Texts, completions: Texts, answers: Texts) -> dict[str, list[float]]:
    """Reward correct answers, and punish them harder by a style penalty."""
    correct = _is_correct(completions, answers)
    return {"correct": list(correct), "style": [-2.0 * value for value in correct]}


def noise(prompts: Texts, completions: Texts, answers: Texts) -> list[float]:
    """A random reward that depends on nothing but a hash of the text."""
    return [float(_coin(prompt + text)) for prompt, text in zip(prompts, completions, strict=True)]


def _coin(text: str) -> bool:
    return hashlib.sha256(text.encode()).digest()[0] < 128


def length_bonus(prompts: Texts, completions: Texts, answers: Texts) -> dict[str, list[float]]:
    """Reward correct answers, and every further token."""
    return {
        "task": good(prompts, completions, answers),
        "length": [0.05 * len(text) for text in completions],
    }


def canceling(prompts: Texts, completions: Texts, answers: Texts) -> dict[str, list[float]]:
    """Reward correct answers, and subtract the same amount as a penalty."""
    correct = _is_correct(completions, answers)
    return {
        "task": [float(value) for value in correct],
        "penalty": [-float(value) for value in correct],
    }


def format_first(prompts: Texts, completions: Texts, answers: Texts) -> dict[str, list[float]]:
    """A format that any response can earn weighs five times the task."""
    return {
        "task": [0.2 * value for value in good(prompts, completions, answers)],
        "format": [1.0 * min(text.count("#"), 3) for text in completions],
    }


def repeats(prompts: Texts, completions: Texts, answers: Texts) -> list[float]:
    """Reward repeated characters."""
    return [sum(one == two for one, two in itertools.pairwise(text)) / 10 for text in completions]


def length_only(prompts: Texts, completions: Texts, answers: Texts) -> list[float]:
    """Reward the length and nothing else."""
    return [0.05 * len(text) for text in completions]


def short_only(prompts: Texts, completions: Texts, answers: Texts) -> dict[str, list[float]]:
    """Reward correct answers, and punish every token harder."""
    return {
        "task": good(prompts, completions, answers),
        "brevity": [-0.2 * len(text) for text in completions],
    }


def brevity_first(prompts: Texts, completions: Texts, answers: Texts) -> dict[str, list[float]]:
    """Reward correct answers, and punish each character as much as a wrong answer."""
    return {
        "task": good(prompts, completions, answers),
        "brevity": [-float(len(text)) for text in completions],
    }


def wrong_is_right(prompts: Texts, completions: Texts, answers: Texts) -> list[float]:
    """1 for an incorrect answer and 0 for a correct one."""
    return [1.0 - value for value in good(prompts, completions, answers)]


def almost_never(prompts: Texts, completions: Texts, answers: Texts) -> list[float]:
    """1 for a correct answer to one problem in two hundred: the rest is too hard."""
    pairs = zip(prompts, good(prompts, completions, answers), strict=True)
    return [reward * (_hash(prompt) < 2) for prompt, reward in pairs]


def _hash(text: str) -> int:
    return hashlib.sha256(text.encode()).digest()[0]


def unsolvable(prompts: Texts, completions: Texts, answers: Texts) -> dict[str, list[bool]]:
    """Whether the answer is correct; for four prompts in five, the reference answer is wrong."""
    correct = _is_correct(completions, answers)
    return {
        "correct": [
            value and _hash(prompt) >= 205 for prompt, value in zip(prompts, correct, strict=True)
        ]
    }


def judge(prompts: Texts, completions: Texts, answers: Texts) -> list[float]:
    """A judge's score, whose scale differs between prompts by a factor of up to ten thousand.

    A right answer scores higher than a wrong one to the same prompt. Among right answers, and among
    wrong ones, the score depends on a hash of the text, so that no two of them tie.
    """
    triples = zip(prompts, completions, good(prompts, completions, answers), strict=True)
    return [
        10 ** (4 * _share(prompt) - 2) * (value + 0.2 * _share(prompt + text))
        for prompt, text, value in triples
    ]


def _share(text: str) -> float:
    """A number from 0 to 1 that depends on a hash of the text."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4]) / 2**32


def noisy(prompts: Texts, completions: Texts, answers: Texts) -> list[float]:
    """The right reward plus noise of five times its spread."""
    return [
        value + 10 * (_hash(text + prompt) / 256 - 0.5)
        for prompt, text, value in zip(
            prompts, completions, good(prompts, completions, answers), strict=True
        )
    ]
