"""Answers that a prompt reveals without a label: marks around it, and solved examples."""

from __future__ import annotations

import re
from collections import defaultdict
from functools import lru_cache

from grpodoctor.preflight.answers.multiple_choice import option_letter
from grpodoctor.preflight.texts.normal_form import words_of

_MARKED = re.compile(
    r"(?<![#\w])#{1,3} ?(?P<hash>[^#\n]{1,60}?) ?#{1,3}(?![#\w])|@(?P<at>[^@\n]{1,60}?)@|"
    r"\[\[(?P<square>[^\[\]\n]{1,60})\]\]|\{\{(?P<brace>[^{}\n]{1,60})\}\}|"
    r"<<(?P<angle>[^<>\n]{1,60})>>|==(?P<equal>[^=\n]{1,60})==|\*\*(?P<star>[^*\n]{1,60})\*\*"
)
"""A short text between two equal marks."""
_OPTION = re.compile(
    r"^[ \t]*(?P<before>[^\w\n]{0,8}?)[ \t]*\(?(?P<letter>[A-Z])[).:](?P<text>[^\n]*)$",
    re.MULTILINE,
)
_VERDICT = re.compile(
    r"[(\[]\s*(?:correct|right|true|answer|x|\u2713|\u2714)(?: \w+)?\s*[)\]]\s*$|"
    r"(?:<-+|\u2190|\*+|\u2713|\u2714|\u2705)\s*$",
    re.IGNORECASE,
)
"""What a mark behind an option looks like."""
_FILE_NAME = re.compile(
    r"(?<![\w/.-])((?:[\w.-]+/){0,9}[\w.-]{1,99})\."
    r"(?:jpe?g|png|gif|webp|bmp|tiff?|mp4|avi|mov|wav|mp3|flac|pdf|txt)\b",
    re.IGNORECASE,
)
_MIN_OPTIONS = 3
"""Fewer options do not show which of them is the odd one."""
_QUESTION_WORDS = 16
"""Words of a question that must occur again behind its answer: templated questions share fewer."""
_MAX_LABEL_WORDS = 4
"""Words between a question and its answer, such as "The answer is"."""
_PATTERN_WORDS = 3
"""Words that follow the answer in both sentences of one pattern."""
_MOST_ANSWER_WORDS = 8
"""Words of an answer in a sentence of a pattern."""


def values_in_marks(text: str) -> dict[str, frozenset[str]]:
    """The short texts between two equal marks, such as `#42#` or `[[B]]`, by the mark's name."""
    values: dict[str, set[str]] = {}
    for match in _MARKED.finditer(text):
        name = str(match.lastgroup)
        values.setdefault(name, set()).add(match[name])
    return {name: frozenset(found) for name, found in values.items()}


def marked_option(prompt: str) -> str:
    """The letter of the only option that is marked, as in `*C) iron`; empty if there is none."""
    marks: dict[str, tuple[str, bool]] = {}
    for match in _OPTION.finditer(prompt):
        before = match["before"].strip()
        marks[match["letter"]] = before, bool(_VERDICT.search(match["text"]))
    if len(marks) < _MIN_OPTIONS:
        return ""
    seen = list(marks.values())
    odd = [letter for letter, mark in marks.items() if seen.count(mark) == 1]
    is_odd = len(odd) == 1 and len(set(seen)) == 2
    return odd[0] if is_odd and (marks[odd[0]][0] or marks[odd[0]][1]) else ""


def marks_its_option(prompt: str, answer: str) -> bool:
    """Whether the only marked option of a prompt is its answer."""
    letter = option_letter(answer)
    return bool(letter) and marked_option(prompt) == letter


def is_in_file_name(prompt: str, answer: tuple[str, ...]) -> bool:
    """Whether the name of a picture or another file contains the answer among other signs.

    Args:
        prompt: the text.
        answer: the words of the answer.
    """
    for match in _FILE_NAME.finditer(prompt):
        name = words_of(match[1].replace("_", " "))
        size = len(answer)
        if len(name) > size and any(name[at : at + size] == answer for at in range(len(name))):
            return True
    return False


def solves_itself(words: tuple[str, ...], answer: tuple[str, ...]) -> bool:
    """Whether a solved example of a prompt is the prompt's own question.

    Args:
        words: those of the prompt.
        answer: those of the answer.
    """
    repeated = _repeated_questions(words)
    if not repeated:
        return False
    size = len(answer)
    for at, word in enumerate(words):
        if word != answer[0] or words[at : at + size] != answer:
            continue
        for end in range(max(at - _MAX_LABEL_WORDS, _QUESTION_WORDS), at + 1):
            again = repeated.get(words[end - _QUESTION_WORDS : end], 0)
            if again >= at + size and not _is_filled(words, at + size, again + _QUESTION_WORDS):
                return True
    return False


def _is_filled(words: tuple[str, ...], behind: int, question_end: int) -> bool:
    """Whether another answer follows the repeated words, as in two sentences of one pattern.

    Args:
        words: those of the prompt.
        behind: the place behind the answer.
        question_end: the place behind the repeated words.
    """
    goes_on = words[behind : behind + _PATTERN_WORDS]
    last = question_end + _MAX_LABEL_WORDS + _MOST_ANSWER_WORDS
    return len(goes_on) == _PATTERN_WORDS and any(
        words[at : at + _PATTERN_WORDS] == goes_on for at in range(question_end + 1, last)
    )


@lru_cache(maxsize=4)
def _repeated_questions(words: tuple[str, ...]) -> dict[tuple[str, ...], int]:
    """Where the parts of a text that occur exactly twice begin for the second time.

    A part that occurs more often is a refrain of the text and no question.
    """
    places: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    for at in range(len(words) - _QUESTION_WORDS + 1):
        places[words[at : at + _QUESTION_WORDS]].append(at)
    return {part: found[1] for part, found in places.items() if len(found) == 2}
