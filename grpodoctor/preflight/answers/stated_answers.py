"""Answers that a text states: the final answer of a solution, and answers inside prompts."""

from __future__ import annotations

import re

from grpodoctor.preflight.texts.normal_form import words_of

_TAGGED = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
_FORMULA = re.compile(r"\$+\s*([^$]*[^$\s])\s*\$+")
_ANNOUNCED = re.compile(
    r"(?:answer|result|solution|correct option|ground truth)\b"
    r"[^\w\n]*(?:is|are|equals)?[^\w\n\\$-]*"
    r"(?P<answer>[^\n]+)",
    re.IGNORECASE,
)
"""What follows words such as "the answer is" on the same line."""
_MIN_SOLUTION_WORDS = 8
"""A shorter solution may be a part of its question by chance."""


def final_answer(solution: str) -> str:
    """The final answer of a solution: after ####, in answer tags, in the last box; else all of it.

    Dollar signs around a formula are removed.
    """
    answer = marked_answer(solution) or solution.strip()
    formula = _FORMULA.fullmatch(answer)
    return formula[1] if formula else answer


def marked_answer(text: str) -> str:
    """The answer that a text marks by ####, answer tags or a box; empty if it marks none."""
    marked = text.rpartition("####")[2].strip() if "####" in text else ""
    tagged = _TAGGED.findall(text)
    return marked or (tagged[-1].strip() if tagged else "") or _last_boxed(text)


def _last_boxed(solution: str) -> str:
    """Content of the last box; it may contain braces."""
    content, box, _ = solution.rpartition("\\boxed{")[::-1]
    depth = 1
    for index, letter in enumerate(content if box else ""):
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if not depth:
            return content[:index].strip()
    return ""


def states_answer(prompt: str, solution: str) -> bool:
    """Whether a prompt states the answer of a solution, or contains the solution."""
    solution_words = words_of(solution)
    if len(solution_words) >= _MIN_SOLUTION_WORDS and _contains(words_of(prompt), solution_words):
        return True
    answer = words_of(final_answer(solution))
    if not answer:
        return False
    last_line = prompt.rstrip().rpartition("\n")[2] if "\n" in prompt.strip() else ""
    if answer in (words_of(marked_answer(prompt)), words_of(last_line)):
        return True
    announced = (words_of(match["answer"]) for match in _ANNOUNCED.finditer(prompt))
    return any(words[: len(answer)] == answer for words in announced)


def _contains(words: tuple[str, ...], part: tuple[str, ...]) -> bool:
    size = len(part)
    return any(words[start : start + size] == part for start in range(len(words) - size + 1))
