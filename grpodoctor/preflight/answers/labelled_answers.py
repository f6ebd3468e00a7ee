"""Prompts that carry their answer behind a label: `Key: 1231`, `<gold>7</gold>`, `[target] B`."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from grpodoctor.preflight.answers.revealed_answers import values_in_marks
from grpodoctor.preflight.texts.normal_form import number_of

_NAME = r"[^\W\d_][\w-]{0,20}(?:[ _][\w-]{1,20}){0,2}"
_SIGN = r"[ ]?(?:[:\uff1a=]|->|=>|\u2192)"
_LABELLED = re.compile(
    rf"(?:^[^\w\n<\[({{]{{0,8}}|(?<=[.?!\u3002\uff1f\uff01])[^\w\n{{]{{0,8}})[\"'*_`(\[]{{0,4}}"
    rf"(?P<label>{_NAME})[\"'*_`]{{0,4}}{_SIGN}(?P<value>[^\n]+)$"
    rf"|^[^\w\n]{{0,8}}<(?P<tag>{_NAME})>(?P<tagged>[^<\n]+)</(?P=tag)>[^\w\n]{{0,8}}$"
    rf"|^[^\w\n]{{0,8}}\[(?P<bracket>{_NAME})\](?P<bracketed>[^\n]+)$",
    re.MULTILINE,
)
"""A label and its value: on a line of their own, or behind the last sentence of a line."""
_FIELD = re.compile(
    r"[\"'](\w{1,40})[\"']\s*:\s*(\"[^\"\n]{0,200}\"|'[^'\n]{0,200}'|-?[\w.]{1,60})"
)
"""A field of a JSON object."""
_PAIR = re.compile(
    rf"(?:^|(?<=[|;\[({{]))[ ]?(?P<label>{_NAME}){_SIGN}[ ]?(?P<value>[^|;\n\])}}]{{1,60}})"
    r"(?=[|;\])}])",
    re.MULTILINE,
)
"""A label and its value among several on one line: `[level: 3 | gold: 42]`."""
_SOLUTION_LABEL = re.compile(
    r"\b(?:answers?|gold|ground[ _-]?truth|solution|expected|correct|reference|target)\b",
    re.IGNORECASE,
)
"""Labels that name the answer, and that count among several fields too."""
_DECORATION = " \t\r\"'`*_.,;)]}\u3002$"
_MAX_LETTERS = 200
_MAX_WORDS = 6
"""Words of a value that is a field of a record; a longer one is a text."""
_MIN_ROWS = 5
_MIN_AGREEMENT = 0.9
"""Part of the rows above chance in which a label has the answer: a leak has it in all of them."""


def answers_behind_labels(prompts: Sequence[str], answers: Sequence[str]) -> list[bool]:
    """Whether each prompt has a label whose values are the answers of the rows with this label.

    A label that the rest of the prompt mentions is a part of the question, and not counted. Neither
    are the fields of a record, such as an invoice: prompts with several labels whose values differ
    from row to row, unless the label names an answer (`gold: 42`). Texts between two equal marks
    (`#42#`) count as well. A label that has the right value by chance, such as a constant
    among answers that are mostly equal, is compared with the answers of all its rows.

    Args:
        prompts: the texts.
        answers: the final answer of each.
    """
    wanted = [_value(answer) for answer in answers]
    labels = [_labels(prompt) for prompt in prompts]
    values_by_label: defaultdict[str, set[frozenset[str]]] = defaultdict(set)
    for each in labels:
        for label, values in each.items():
            values_by_label[label].add(values)
    by_label: defaultdict[str, dict[int, frozenset[str]]] = defaultdict(dict)
    for index, each in enumerate(labels):
        fields = [label for label in each if len(values_by_label[label]) > 1]
        for label in fields if len(fields) == 1 else filter(_SOLUTION_LABEL.search, fields):
            if _is_unmentioned(label, each[label], prompts[index]):
                by_label[label][index] = each[label]
        for mark, values in values_in_marks(prompts[index]).items():
            by_label[f"{mark} mark"][index] = frozenset(_value(value) for value in values)
    stating = [False] * len(prompts)
    for values_of in by_label.values():
        if _has_answers(values_of, wanted):
            for index, values in values_of.items():
                stating[index] |= wanted[index] in values
    return stating


def _labels(prompt: str) -> dict[str, frozenset[str]]:
    """The labels of a prompt and their short values."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    pairs = [match.groups() for match in _FIELD.finditer(prompt)]
    pairs += [(match["label"], match["value"]) for match in _PAIR.finditer(prompt)]
    for match in _LABELLED.finditer(prompt):
        label = match["label"] or match["tag"] or match["bracket"]
        pairs.append((label, match["value"] or match["tagged"] or match["bracketed"]))
    for label, text in pairs:
        value = text[:_MAX_LETTERS]
        if len(value.split()) <= _MAX_WORDS:
            found[label.casefold()].add(_value(value))
    return {label: frozenset(values) for label, values in found.items()}


def _is_unmentioned(label: str, values: frozenset[str], prompt: str) -> bool:
    """Whether a prompt has a label only in front of its values."""
    mentions = len(re.findall(rf"\b{re.escape(label)}\b", prompt.casefold()))
    tags = prompt.casefold().count(f"</{label}>")
    return mentions - tags <= len(values)


def _value(text: str) -> str:
    """A value without what surrounds it; numbers in one spelling."""
    text = " ".join(text.strip(_DECORATION + ":").split())
    number = number_of(text)
    return text if number is None else f"{number:g}"


def _has_answers(values_of: Mapping[int, frozenset[str]], wanted: Sequence[str]) -> bool:
    """Whether a label has the answer of its row, more often than that of any row."""
    rows = len(values_of)
    if rows < _MIN_ROWS:
        return False
    share = sum(wanted[index] in values for index, values in values_of.items()) / rows
    frequency = Counter(wanted[index] for index in values_of)
    chance = sum(frequency[value] for values in values_of.values() for value in values) / rows**2
    return chance < 1 and (share - chance) / (1 - chance) >= _MIN_AGREEMENT
