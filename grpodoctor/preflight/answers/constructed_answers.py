"""Completions whose correct reward is known: right, wrong, empty, format only."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from grpodoctor.preflight.answers.kinds.undeserving_answers import (
    ENDLESS,
    all_labels,
    many_words,
    negated,
    off_by_one,
    one_part,
    one_right_line,
    other_formula,
    score_for_judge,
    scrambled,
    values_alone,
)
from grpodoctor.preflight.inputs.run_settings import RunSettings

FORMATS: Mapping[str, str] = {
    "plain": "{answer}",
    "boxed": "The answer is \\boxed{{answer}}.",
    "hashes": "#### {answer}",
    "tags": "<think>\nI think.\n</think>\n<answer>{answer}</answer>",
    "tags on lines": "<think>\nI think.\n</think>\n<answer>\n{answer}\n</answer>",
    "boxed after thoughts": "<think>\nI think.\n</think>\nThe answer is \\boxed{{answer}}.",
    "sentence": "The final answer is: {answer}",
    "answer line": "Answer: {answer}",
    "code": "```python\n{answer}\n```",
    "tags on one line": "<think>I think.</think><answer>{answer}</answer>",
}
"""Answer formats from the trainers' own examples."""

LAYOUTS = (
    "<think>\nI think.\n</think>\n<answer>\n{answer}\n</answer>",
    "<think>\nI think.\n</think>\n{answer}",
    "<think>I think.</think><answer>{answer}</answer>",
)
"""Layouts of tags around an answer in a format of its own, such as a code block."""

_NUMBER = re.compile(r"-?\d+")
_WHOLE_NUMBER = re.compile(r"-?\d{1,15}")
_FRACTION = re.compile(r"(-?\d{1,15})/([1-9]\d{0,14})")
_DECIMAL = re.compile(r"\d{1,12}\.\d{1,12}")
_NEAR_SHARE = 0.1
"""How far a wrong number is from the right one: further than tolerances of measured values."""
THOUGHT = "I think."
_REASONING = "First, I write down what is given.\n\nThen I work it out step by step."
UNRELATED = "I have nothing to say about this."
"""An answer that has nothing in common with any reference."""
WRONG = "wrong answer"
EMPTY = "empty response"
NO_ANSWER = "format without an answer"
COPIED_PROMPT = "copy of the prompt"
REPEATED_TAGS = "repeated tags"
EARLY_EXIT = "program that exits at once"
NEARLY_RIGHT = "nearly right number"
"""Digits that are missing, digits too many, or another number close by."""
ONE_PART, EVERY_LABEL = "a part of the answer", "every label at once"
MANY_WORDS = "the words of several references"
OTHER_FORMULA = "another number, sign or bracket"
OFF_BY_ONE = "a count that is off by one"
JUDGED = "a score for the judge"
NEVER_ENDING = "program that never ends"
SCRAMBLED, NEGATED = "letters in another order", "a negated answer"
THOUGHT_ONLY = "the right answer in the thought alone"
VALUES_ALONE = "the values of the JSON without keys and brackets"
SEVERAL, SEVERAL_LINES = "several answers at once", "several answers on lines of their own"
SEVERAL_INSIDE = "several answers in the place of one"
_MANY = 40
_MIN_NAMED_LETTERS = 3
"""Letters of an answer that no other text contains by accident."""
_PROGRAM = re.compile(r"^\s*(?:async )?def \w+\(", re.MULTILINE)
_EXIT = "import sys\nsys.exit(0)"
_LONG_THOUGHT = "Let me think about this once more, step by step. " * 100


@dataclass(frozen=True, slots=True)
class BadCompletion:
    """A completion that deserves no reward."""

    kind: str
    text: str


def answer_formats(settings: RunSettings) -> dict[str, str]:
    """The user's answer format, or all known formats."""
    return {"yours": settings.gold_format} if settings.gold_format else dict(FORMATS)


def format_answer(answer_format: str, answer: str) -> str:
    """An answer in a format."""
    return answer_format.replace("{answer}", answer)


def with_reasoning(answer_format: str) -> str:
    """A format with thoughts of several lines, in the place of its own thought or before it."""
    if THOUGHT in answer_format:
        return answer_format.replace(THOUGHT, _REASONING)
    return f"{_REASONING}\n{answer_format}"


def matches_format(answer_format: str, text: str) -> bool:
    r"""Whether a response contains an answer in a format, right or wrong.

    Only the text directly around the answer counts (`\boxed{…}`, `<answer>…</answer>`). If there is
    none, the words before it on its line count; if there are none either, any text matches.
    """
    before, _, after = answer_format.partition("{answer}")
    line = before.rpartition("\n")[2]
    left, right = line.rpartition(" ")[2] or line, re.split(r"\s", after)[0].rstrip(".")
    return re.search(f"{re.escape(left)}.*?\\S.*?{re.escape(right)}", text, re.DOTALL) is not None


def wrong_answer(answer: str, answers: Sequence[str]) -> str:
    """A wrong answer of the same kind: that of another row, or another number."""
    for other in answers:
        is_other = other.casefold() != answer.casefold() and not _same_fraction(other, answer)
        if other and is_other and _same_kind(other, answer):
            return other
    numbers = list(_NUMBER.finditer(answer))
    if numbers:
        last = numbers[-1]
        return answer[: last.start()] + str(int(last.group()) + 1) + answer[last.end() :]
    return "B" if answer == "A" else f"not {answer}"


def _same_fraction(left: str, right: str) -> bool:
    """Whether two texts are fractions of the same value, such as 1/3 and 3/9."""
    pairs = [_FRACTION.fullmatch(each.strip()) for each in (left, right)]
    if not all(pairs):
        return False
    values = [int(pair[1]) / int(pair[2]) for pair in pairs if pair]
    return math.isclose(*values)


def _same_kind(left: str, right: str) -> bool:
    return bool(_NUMBER.fullmatch(left)) == bool(_NUMBER.fullmatch(right))


def nearly_right(answer: str, turn: int) -> str:
    """A wrong number that resembles the right one; empty if the answer is no number.

    A decimal number gets a digit in front.

    Args:
        answer: the right answer.
        turn: number of the row, which chooses in turn: the number without the last half of its
            digits, with a zero behind it, or larger by a tenth and by at least 1. The last of them
            takes the place of the others for a number of one digit and for zero.
    """
    if _DECIMAL.fullmatch(answer):
        return f"9{answer}"
    if not _WHOLE_NUMBER.fullmatch(answer):
        return ""
    value = int(answer)
    digits = len(answer.lstrip("-"))
    if turn % 3 == 0 and digits > 1 and value:
        return answer[: -(digits // 2)]
    if turn % 3 == 1 and value:
        return f"{answer}0"
    return str(value + max(1, math.ceil(_NEAR_SHARE * abs(value))))


def several_answers(
    answer: str, answers: Sequence[str], answer_format: str, most: int = 8, between: str = " "
) -> str:
    """Several answers in one response, with the right one in the middle.

    A parser that takes the first or the last answer gets a wrong one.
    """
    others = list(dict.fromkeys(each for each in answers if each and each != answer))[: most - 1]
    others = others if len(others) > 1 else [wrong_answer(answer, answers)] * 2
    half = len(others) // 2
    listed = [*others[:half], answer, *others[half:]]
    return between.join(format_answer(answer_format, each) for each in listed)


def several_inside(answer: str, answers: Sequence[str], answer_format: str) -> str:
    """A format with several answers in the place of one; empty if the format only begins with it.

    Lists and texts have commas of their own.
    """
    is_marked = not answer_format.strip().startswith("{answer}")
    if not is_marked or any("," in each or len(each.split()) > 1 for each in answers):
        return ""
    return format_answer(answer_format, several_answers(answer, answers, "{answer}", between=", "))


def bad_completions(
    prompt: str,
    answer: str,
    answers: Sequence[str],
    answer_format: str,
    tags: Sequence[str] = (),
    row: int = 0,
) -> list[BadCompletion]:
    """Completions that must not earn as much as the correct answer.

    Args:
        prompt: the row's prompt.
        answer: the correct answer.
        answers: the answers of all rows.
        answer_format: how an answer is written.
        tags: names of tags that the prompts ask for.
        row: number of the row.
    """
    wrong = wrong_answer(answer, answers)
    if THOUGHT in answer_format:
        long_format = answer_format.replace(THOUGHT, _LONG_THOUGHT)
    else:
        long_format = _LONG_THOUGHT + answer_format
    several = several_answers(answer, answers, answer_format)
    on_lines = several_answers(answer, answers, answer_format, between="\n")
    if _PROGRAM.search(answer) or "\n" in answer:  # a program may define more than its tests call
        on_lines = ""
    near = nearly_right(answer, row)
    return [
        BadCompletion(WRONG, format_answer(answer_format, wrong)),
        BadCompletion("long wrong answer", format_answer(long_format, wrong)),
        BadCompletion(EMPTY, ""),
        BadCompletion(NO_ANSWER, format_answer(answer_format, "")),
        BadCompletion(COPIED_PROMPT, prompt),
        BadCompletion(SEVERAL, several),
        BadCompletion(SEVERAL_LINES, on_lines),
        BadCompletion(SEVERAL_INSIDE, several_inside(answer, answers, answer_format)),
        BadCompletion(NEARLY_RIGHT, format_answer(answer_format, near) if near else ""),
        BadCompletion(OTHER_FORMULA, _formatted(answer_format, other_formula(answer, row))),
        BadCompletion(OFF_BY_ONE, _formatted(answer_format, off_by_one(answer, answers))),
        BadCompletion(
            ONE_PART,
            _formatted(
                answer_format, one_part(answer, row) or one_right_line(answer, answers, row)
            ),
        ),
        BadCompletion(EVERY_LABEL, _formatted(answer_format, all_labels(answers))),
        BadCompletion(MANY_WORDS, _formatted(answer_format, many_words(answer, answers))),
        BadCompletion(JUDGED, score_for_judge(answer)),
        BadCompletion(SCRAMBLED, _formatted(answer_format, scrambled(answer, answers))),
        BadCompletion(NEGATED, _formatted(answer_format, negated(answer, answers))),
        BadCompletion(THOUGHT_ONLY, _thought_only(answer, wrong, answer_format)),
        BadCompletion(VALUES_ALONE, values_alone(answer)),
        *_more_tags(tags, format_answer(answer_format, wrong)),
        *_programs(answers, answer_format, row),
    ]


def _thought_only(answer: str, wrong: str, answer_format: str) -> str:
    """A wrong answer whose thought names the right one; empty without a place for a thought."""
    if THOUGHT not in answer_format or len(answer) < _MIN_NAMED_LETTERS:
        return ""
    thought = f"I think of {answer}, but that is not right."
    return format_answer(answer_format, wrong).replace(THOUGHT, thought)


def _more_tags(tags: Sequence[str], wrong: str) -> list[BadCompletion]:
    """A wrong answer behind many repetitions of the tags."""
    repeated = "".join(f"<{tag}>\n{THOUGHT}\n</{tag}>\n" for tag in tags) * _MANY
    return [BadCompletion(REPEATED_TAGS, repeated + wrong)] if tags else []


def are_programs(answers: Sequence[str]) -> bool:
    """Whether most answers define functions in Python."""
    return sum(bool(_PROGRAM.search(answer)) for answer in answers) > len(answers) / 2


def _formatted(answer_format: str, answer: str) -> str:
    """An answer in a format; empty if there is no answer."""
    return format_answer(answer_format, answer) if answer else ""


def _programs(answers: Sequence[str], answer_format: str, row: int) -> list[BadCompletion]:
    """Programs that end before the tests run, and that never end, if answers are in Python.

    The program that never ends is tried in one row: it costs the whole time limit of the reward.
    """
    if not are_programs(answers):
        return []
    is_fenced = "```" in answer_format or sum("```" in each for each in answers) > len(answers) / 2
    form = "{answer}" if "```" in answer_format else answer_format
    form = form.replace("{answer}", "```python\n{answer}\n```") if is_fenced else form
    return [
        BadCompletion(EARLY_EXIT, format_answer(form, _EXIT)),
        BadCompletion(NEVER_ENDING, "" if row else format_answer(form, ENDLESS)),
    ]
