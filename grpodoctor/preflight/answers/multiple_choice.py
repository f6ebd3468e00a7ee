"""Detection of multiple-choice questions in prompts and answers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from grpodoctor.preflight.inputs.columns import OPTION_COLUMNS
from grpodoctor.preflight.inputs.prompt_rows import PromptRow
from grpodoctor.preflight.texts.normal_form import words_of

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_LABEL = re.compile(r"(?:^|[\s(])([A-Za-z])[).:]\s*(?=\S)", re.MULTILINE)
_OPTION_LINE = re.compile(r"\s*\(?([A-Za-z])[).:]\s*(\S.*)")
_NUMBERED_LINE = re.compile(r"\s*[(\[]?(\d{1,2})[).:\]]\s*(\S.*)")
_LETTER = re.compile(r"\(?([A-Za-z])\)?(?:[.):]\s.*)?", re.DOTALL)

_MAX_CLASSES = 10
"""Distinct answers of a task that is a choice."""
_MIN_ROWS_PER_CLASS = 5
_MIN_LETTERED = 3
_MIN_OUTSIDE, _MIN_OUTSIDE_SHARE = 3, 0.01
_MIN_NUMBERED = 60
_COUNTS = re.compile(r"\bhow (?:many|much)\b", re.IGNORECASE)
"""Questions whose answer is no option's number."""

_MIN_LOST = 5
_PICTURES = ("images", "image", "videos", "video")
"""Columns of media that may show the options."""
_ASKS_FOR_OPTION = re.compile(
    r"\bletter (?:of|for) (?:the |an? |your )?(?:\w+ )?(?:option|choice|answer)\b|"
    r"\b(?:options|choices)\b.{0,40}\bletter\b",
    re.IGNORECASE,
)
_SHOWS_OPTIONS = re.compile(
    r"(?:^|[\s(\[*<{\uff08\u3010\u3002\uff1f\uff1a])[A-Ea-e]\s?"
    r"[).:\]|\-\u2013*=>}\u3001\uff0e\uff1a\uff09\u3011]|\n\s*[A-E]\s+\S|[\u2460-\u2469]"
)

Classes = frozenset[tuple[str, ...]]
"""Answers of a closed set, as their words."""


def closed_set(answers: Sequence[str]) -> Classes:
    """The answers if they are a small closed set, such as yes and no; empty if they are not."""
    counts = Counter(words_of(answer) for answer in answers)
    few = len(counts) <= _MAX_CLASSES and len(counts) * _MIN_ROWS_PER_CLASS <= len(answers)
    return frozenset(counts) - {()} if few and len(counts) > 1 else frozenset()


def named_classes(text: str, classes: Classes) -> Classes:
    """The answers of a closed set that a text names."""
    words = words_of(text) if classes else ()
    return frozenset(
        each
        for each in classes
        if any(words[at : at + len(each)] == each for at in range(len(words) - len(each) + 1))
    )


def count_options(row: PromptRow, answer: str) -> int:
    """Number of options of a multiple-choice question; 0 for any other question.

    The options are a column of the data, or follow the letters A, B, … in the prompt. The answer
    must be the letter, the number or the text of an option.
    """
    options = options_of(row)
    if options:
        is_option = answer.strip().casefold() in {each.strip().casefold() for each in options}
        is_number = answer.isdigit() and int(answer) <= len(options)
        if is_option or is_number or option_letter(answer, len(options)):
            return len(options)
        return 0
    labels = _LABEL.findall(row.prompt)
    count = _longest_run([label.upper() for label in labels])
    if count > 1 and option_letter(answer, count):
        return count
    count = _longest_run(labels)
    first = _LABEL.search(row.prompt)
    options_text = row.prompt[first.start() :] if first and count > 1 else ""
    is_quoted = len(answer) > 1 and answer.strip().casefold() in options_text.casefold()
    return count if is_quoted else 0


def option_letter(answer: str, options: int = len(LETTERS)) -> str:
    """The option letter that an answer is or starts with; empty if it has none of that many."""
    match = _LETTER.fullmatch(answer.strip())
    letter = match[1].upper() if match else ""
    return letter if letter and letter in LETTERS[:options] else ""


def letter_of_number(row: PromptRow) -> str:
    """The letter of the option whose number, from 0, is the answer; empty for any other row.

    The prompt must letter three options or more, on lines of their own.
    """
    answer = (row.answer or "").strip()
    count = _longest_run([letter for letter, _ in _lettered_lines(row.prompt)])
    is_number = answer.isdigit() and len(answer) == 1 and int(answer) < count
    return LETTERS[int(answer)] if count >= _MIN_LETTERED and is_number else ""


def letter_of_place(row: PromptRow) -> str:
    """The letter of the option whose number, from 1, is the answer; empty for any other row."""
    answer, options = (row.answer or "").strip(), lettered_options(row)
    is_number = answer.isdigit() and 1 <= int(answer) <= len(options)
    return LETTERS[int(answer) - 1] if options and is_number else ""


def lettered_options(row: PromptRow) -> dict[str, str]:
    """The texts of a question's options by letter, from its column or the lines of its prompt."""
    texts = options_of(row)
    if texts:
        return dict(zip(LETTERS, texts, strict=False))
    lines = [(letter.upper(), text) for letter, text in _lettered_lines(row.prompt)]
    letters = "".join(letter for letter, _ in lines)
    is_list = len(letters) >= _MIN_LETTERED and letters == LETTERS[: len(letters)]
    return dict(lines) if is_list else {}


def option_of_text(row: PromptRow) -> str:
    """The letter of the option whose text is the answer; empty for any other row."""
    answer = (row.answer or "").strip().casefold()
    matches = [letter for letter, text in lettered_options(row).items()
               if text.strip().casefold() == answer]  # fmt: skip
    return matches[0] if len(matches) == 1 else ""


def option_of_letter(row: PromptRow) -> str:
    """The text of the option whose letter is the answer; empty for any other row."""
    options = lettered_options(row)
    letter = option_letter(row.answer or "", len(options)) if options else ""
    return options.get(letter, "").strip()


def listed_options(row: PromptRow) -> list[str]:
    """The texts of a question's options: lettered, numbered or in a column; empty without any."""
    lettered = list(lettered_options(row).values())
    if lettered:
        return lettered
    lines = [match for line in row.prompt.split("\n") if (match := _NUMBERED_LINE.match(line))]
    numbers = [int(match[1]) for match in lines]
    is_list = len(lines) >= _MIN_LETTERED and numbers == list(range(1, len(lines) + 1))
    return [match[2].strip() for match in lines] if is_list else []


def outside_options(rows: Sequence[PromptRow]) -> tuple[list[PromptRow], bool]:
    """Rows whose answer is a letter or number that none of the listed options has.

    A number counts only if all numbers are one less than the options': from 0, never the last one.

    Returns:
        The rows, and whether their options are counted from 0.
    """
    lettered, numbered = [], []
    for row in rows:
        answer = (row.answer or "").strip().strip("().:")
        letters = lettered_options(row)
        if letters and len(answer) == 1 and answer.isalpha():
            lettered.append((row, answer.upper() not in letters))
        count = 0 if letters else len(listed_options(row))
        if count and answer.isdigit() and not _COUNTS.search(row.prompt):
            numbered.append((row, int(answer), count))
    outside = [row for row, is_outside in lettered if is_outside]
    if len(outside) >= max(_MIN_OUTSIDE, _MIN_OUTSIDE_SHARE * len(lettered)):
        return outside, False
    zeros = [row for row, answer, _ in numbered if answer == 0]
    is_shifted = all(answer < count for _, answer, count in numbered)
    # By chance no answer is the last option with (1 - 1/n)**rows.
    if len(numbered) < _MIN_NUMBERED or not is_shifted:
        return [], False
    return (zeros, True) if len(zeros) >= max(_MIN_OUTSIDE, len(numbered) / 20) else ([], False)


def _has_media(row: PromptRow) -> bool:
    """Whether a message has parts that are no text, such as an image."""
    contents = (message.get("content") for message in row.messages)
    return any(
        not isinstance(part, Mapping) or part.get("type", "text") != "text"
        for content in contents
        if isinstance(content, list)
        for part in content
    )


def without_options(rows: Sequence[PromptRow]) -> list[PromptRow]:
    """Rows that ask for the letter of an option, have one as answer, and show no options."""
    found = [
        row
        for row in rows
        if len(answer := (row.answer or "").strip(" ().:")) == 1
        and answer.upper() in LETTERS
        and _ASKS_FOR_OPTION.search("\n".join(row.texts()))
        and not options_of(row)
        and not any(row.columns.get(name) for name in _PICTURES)
        and not _has_media(row)
        and not any(_SHOWS_OPTIONS.search(text) for text in row.user_texts() or [row.prompt])
    ]
    return found if len(found) >= max(_MIN_LOST, _MIN_OUTSIDE_SHARE * len(rows)) else []


def _lettered_lines(prompt: str) -> list[tuple[str, str]]:
    """The letters, as written, and the texts of the lines that begin with a letter."""
    lines = (_OPTION_LINE.match(line) for line in prompt.split("\n"))
    return [(match[1], match[2].strip()) for match in lines if match]


def options_of(row: PromptRow) -> list[str]:
    """The options of a multiple-choice question that are a column of the data."""
    for name in OPTION_COLUMNS:
        value = row.columns.get(name)
        texts = value.get("text") if isinstance(value, dict) else value
        if isinstance(texts, list) and len(texts) > 1:
            return [str(text) for text in texts]
    return []


def without_option_order(text: str) -> str:
    """A text with the lines of its lettered options sorted, and without their letters."""
    lines = text.split("\n")
    found = [(at, match) for at, line in enumerate(lines) if (match := _OPTION_LINE.match(line))]
    letters = [match[1].upper() for _, match in found]
    if len(found) < 2 or "".join(letters) != LETTERS[: len(letters)]:
        return text
    options = sorted(match[2].strip().casefold() for _, match in found)
    for (at, _), option in zip(found, options, strict=True):
        lines[at] = option
    return "\n".join(lines)


def _longest_run(labels: Sequence[str]) -> int:
    """Length of the longest run of consecutive letters that starts with A."""
    longest = current = 0
    for label in labels:
        current = current + 1 if LETTERS[current : current + 1] == label else int(label == "A")
        longest = max(longest, current)
    return longest
