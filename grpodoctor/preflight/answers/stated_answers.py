"""Answers that a text states: the final answer of a solution, and answers inside prompts."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence

from grpodoctor.preflight.answers.labelled_answers import answers_behind_labels
from grpodoctor.preflight.answers.multiple_choice import (
    Classes,
    closed_set,
    count_options,
    named_classes,
)
from grpodoctor.preflight.answers.revealed_answers import (
    is_in_file_name,
    marked_option,
    marks_its_option,
    solves_itself,
)
from grpodoctor.preflight.inputs.columns import text_of
from grpodoctor.preflight.inputs.prompt_rows import PromptRow
from grpodoctor.preflight.texts.normal_form import words_of

_TAGGED = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
_FORMULA = re.compile(r"\$+\s*([^$]*[^$\s])\s*\$+")
_ANNOUNCED = re.compile(
    r"(?:answer|result|solution|correct option|ground truth)\b"
    r"[^\w\n]*(?:is|are|equals)?[^\w\n\\$-]*"
    r"(?=(?P<answer>[^\n]+))",
    re.IGNORECASE,
)
"""What follows words such as "the answer is" on the same line; one line may have several of them,
as in "Solution: the result is 42"."""
_MIN_NAMED = 0.2
"""Share of prompts, above chance, whose files are named after the answer."""
_CHANCE_ROWS = 2000
"""Rows on which the chance level of a closed set is measured: each is compared with all answers."""
_MIN_MARKED = 0.9
"""Share of the marked options that must be right; another mark is right only by chance."""
_CONDENSES = re.compile(
    r"\bsummar(?:y|ies|i[sz]e)\b|\btl;?dr\b|\bheadline\b|\bextract\b|\bquote\b|\bcite\b|"
    r"\bcopy\b|\bverbatim\b",
    re.IGNORECASE,
)
"""Tasks whose answers are taken from the prompt."""
_MIN_SHORT, _MOST_QUOTED = 20, 0.5
"""Short answers, and the share of them in their own prompts, that show spans of passages."""
_MOST_NAME_WORDS = 3
"""Words of a name, which a translation leaves as it is."""
_NO_WORD = re.compile(r"https?://\S+|www\.\S+|[@#]\w+|[^\w\s]+")
"""An address, a handle, a tag or a sign."""
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


def states_answer(
    prompt: str, solution: str, classes: Classes = frozenset(), *, is_quoted: bool = False
) -> bool:
    """Whether a prompt states the answer of a solution, or contains the solution.

    Args:
        prompt: the text.
        solution: the answer, or a solution with it.
        classes: the answers of a closed set. A line with several of them lists the options, as in
            "Answer yes or no."
        is_quoted: whether answers are parts of a passage, so that a prompt contains them anyway.
    """
    solution_words = words_of(solution)
    # Numbers alone are data: a grid may be a part of another grid.
    is_text = any(not word[0].isdigit() for word in solution_words)
    is_solution = is_text and len(solution_words) >= _MIN_SOLUTION_WORDS
    may_be_quoted = is_quoted and not (_is_json(solution) or _ends_with(prompt, solution_words))
    if is_solution and not may_be_quoted and contains_words(words_of(prompt), solution_words):
        return True
    answer = words_of(final_answer(solution))
    if not answer:
        return False
    last_line = prompt.rstrip().rpartition("\n")[2] if "\n" in prompt.strip() else ""
    if answer in (words_of(marked_answer(prompt)), words_of(last_line)):
        return True
    return _announces(prompt, answer, classes) or solves_itself(words_of(prompt), answer)


def _is_json(text: str) -> bool:
    """Whether a text is an object or a list, which no passage has."""
    return text.lstrip().startswith(("{", "["))


def _ends_with(prompt: str, words: tuple[str, ...]) -> bool:
    """Whether the last line of a prompt is a label and the words, as in "German: Guten Tag"."""
    last_line = prompt.rstrip().rpartition("\n")[2]
    return words_of(last_line.partition(":")[2]) == words


def _announces(text: str, answer: tuple[str, ...], classes: Classes) -> bool:
    """Whether the answer follows words such as "the answer is"."""
    return any(
        words_of(match["answer"])[: len(answer)] == answer
        for match in _ANNOUNCED.finditer(text)
        if len(named_classes(match["answer"], classes)) < 2
    )


def _row_states(
    row: PromptRow, solution: str, classes: Classes = frozenset(), *, is_quoted: bool = False
) -> bool:
    """Whether a row's prompt states the answer, or a system message of it announces the answer."""
    if states_answer(row.prompt, solution, classes, is_quoted=is_quoted):
        return True
    answer = words_of(final_answer(solution))
    return bool(answer) and any(
        _announces(text_of(each.get("content")), answer, classes)
        for each in row.messages
        if each["role"] == "system"
    )


def rows_stating_answer(rows: Sequence[PromptRow]) -> tuple[list[bool], float]:
    """Whether each prompt states its answer, and the share of prompts that do so by chance.

    The share is that of prompts that state the answer of a row at random. Rows without an answer
    state none. Letters of multiple-choice questions are read only behind labels: the prompt lists
    them.
    """
    answers = [final_answer(row.answer or "") for row in rows]
    labelled = answers_behind_labels(["\n".join(row.texts()) for row in rows], answers)
    classes = closed_set(answers)
    by_mark = [marks_its_option(row.prompt, each) for row, each in zip(rows, answers, strict=True)]
    asked = [
        index
        for index, (row, answer) in enumerate(zip(rows, answers, strict=True))
        if answer and not count_options(row, answer)
    ]
    stating = [False] * len(rows)
    quoted = _are_quotations([rows[index] for index in asked])
    instruction = _shared_instruction([rows[index].prompt for index in asked])
    for index in asked:
        row = rows[index]
        if len(words_of(answers[index])) <= _MOST_NAME_WORDS and (
            instruction and words_of(row.prompt) == words_of(f"{instruction}\n{answers[index]}")
        ):
            continue  # there is no question besides: a translation leaves a name as it is
        if row.prompt.strip() == answers[index].strip() and _has_no_words(row.prompt):
            continue
        stating[index] = _row_states(row, row.answer or "", classes, is_quoted=quoted)
    chance = _share_by_chance([rows[index] for index in asked], classes)
    if sum(by_mark) < _MIN_MARKED * sum(bool(marked_option(row.prompt)) for row in rows):
        by_mark = [False] * len(rows)  # the mark means something else
    by_name = _named_in_files(rows, answers)
    found = [any(each) for each in zip(stating, labelled, by_mark, by_name, strict=True)]
    return found, chance * len(asked) / max(len(rows), 1)


def _has_no_words(text: str) -> bool:
    """Whether a text is addresses, handles or signs, which a translation leaves as they are."""
    return all(_NO_WORD.fullmatch(word) for word in text.split())


def _shared_instruction(prompts: Sequence[str]) -> str:
    """What stands before the last line of most prompts; empty if it differs."""
    heads = Counter(prompt.rstrip().rpartition("\n")[0] for prompt in prompts)
    head, count = heads.most_common(1)[0] if heads else ("", 0)
    return head if count > len(prompts) / 2 else ""


def _are_quotations(rows: Sequence[PromptRow]) -> bool:
    """Whether answers are parts of the prompts by the task: spans of a passage, or summaries.

    Spans of two to seven words, too short for a solution, then occur in most of their own prompts,
    and in few of others. A summary may repeat a sentence of its text.
    """
    if sum(bool(_CONDENSES.search(row.prompt)) for row in rows) > _MOST_QUOTED * len(rows):
        return True
    short = [
        (words, words_of(row.prompt))
        for row in rows[:_CHANCE_ROWS]
        if 1 < len(words := words_of(row.answer or "")) < _MIN_SOLUTION_WORDS
    ]
    if len(short) < _MIN_SHORT:
        return False
    own = sum(contains_words(prompt, words) for words, prompt in short)
    others = [prompt for _, prompt in short]
    random.Random(0).shuffle(others)  # noqa: S311 - neighbors may share a passage
    foreign = sum(
        contains_words(prompt, words) for (words, _), prompt in zip(short, others, strict=True)
    )
    return own - foreign > _MOST_QUOTED * len(short)


def _named_in_files(rows: Sequence[PromptRow], answers: Sequence[str]) -> list[bool]:
    """Whether the name of a file in each prompt gives the answer away.

    Names that contain the answers of other rows as often say nothing about their own.
    """
    wanted = [words_of(answer) for answer in answers]
    others = list(wanted)
    random.Random(0).shuffle(others)  # noqa: S311 - a comparison, no secret
    own, other = (
        [
            bool(answer) and is_in_file_name(row.prompt, answer)
            for row, answer in zip(rows, each, strict=True)
        ]
        for each in (wanted, others)
    )
    is_leak = sum(own) - sum(other) > _MIN_NAMED * len(rows)
    return own if is_leak else [False] * len(rows)


def _share_by_chance(rows: Sequence[PromptRow], classes: Classes) -> float:
    """Share of prompts that state the answer of a row at random."""
    if not rows:
        return 0.0
    if classes:
        rows = rows[:: max(len(rows) // _CHANCE_ROWS, 1)]
        counts = Counter(words_of(final_answer(row.answer or "")) for row in rows)
        examples = {words_of(final_answer(row.answer or "")): row.answer or "" for row in rows}
        hits = sum(
            count * _row_states(row, examples[words], classes)
            for row in rows
            for words, count in counts.items()
        )
        return hits / len(rows) ** 2
    others = list(rows)
    random.Random(0).shuffle(others)  # noqa: S311 - a comparison, no secret
    pairs = zip(rows, others, strict=True)
    return sum(_row_states(row, other.answer or "") for row, other in pairs) / len(rows)


def contains_words(words: tuple[str, ...], part: tuple[str, ...]) -> bool:
    """Whether words contain a part of them, in its order and without a gap."""
    size = len(part)
    return any(words[start : start + size] == part for start in range(len(words) - size + 1))
