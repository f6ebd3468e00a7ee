"""Answers that only the reward function knows, repairs of the data, and rewards without answers."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from grpodoctor.preflight.answers.answer_variants import _prompt_layout, response_variants
from grpodoctor.preflight.answers.completions.unasked_spellings import ANSWER_ONLY
from grpodoctor.preflight.answers.constructed_answers import several_inside
from grpodoctor.preflight.answers.data_repairs import helpful_repair
from grpodoctor.preflight.answers.free_responses import (
    changed_rewards,
    is_most,
    score_free_responses,
)
from grpodoctor.preflight.answers.inferred_answers import infer_answers, program_of_assertions
from grpodoctor.preflight.answers.reference_answers import score_reference_answers
from grpodoctor.preflight.answers.requested.requested_formats import requested_formats
from grpodoctor.preflight.checks.data.truncated_prompts import _is_cut_at_end
from grpodoctor.preflight.inputs.prompt_rows import PromptRow
from grpodoctor.preflight.inputs.run_settings import RunSettings
from grpodoctor.preflight.texts.alignment import partial_shift_of_words, shift_of_words
from grpodoctor.preflight.texts.template_slots import END, empty_slots
from grpodoctor.trainer.rewards.columns_read import columns_read
from grpodoctor.trainer.rewards.user_reward import UserReward

RewardOf = Callable[..., UserReward]
SETTINGS = RunSettings()
LABELS = ["lost_card", "new_pin", "closed_account"]


def _rows(chat: bool = False, **columns: Callable[[int], Any]) -> list[PromptRow]:
    rows = []
    for at in range(24):
        prompt = f"Message {at}. Reply with the label only."
        messages = ({"role": "user", "content": prompt},) if chat else ()
        values = {name: make(at) for name, make in columns.items()}
        rows.append(PromptRow(f"line {at}", prompt, messages, columns=values))
    return rows


def _label(at: int) -> str:
    return LABELS[at % 3]


def test_the_columns_that_a_function_reads() -> None:
    def reward(prompts: Any, completions: Any, intent: Any, **kwargs: Any) -> list[float]:
        return [kwargs["gold"][0], kwargs.get("weight", 1.0)]

    read = columns_read(reward)
    assert read.parameters == ("intent",)
    assert set(read.keywords) == {"gold", "weight"}
    assert columns_read(print).keywords == ()


def test_answers_in_a_column_that_only_the_function_names(reward_of: RewardOf) -> None:
    source = (
        "def reward(completions, source, intent, **kwargs):\n"
        "    return [float(c.strip() == i) for c, i in zip(completions, intent)]\n"
    )
    rows = _rows(source=lambda at: f"file {at}", intent=_label)
    inferred = infer_answers(reward_of(source), rows, SETTINGS)
    assert inferred is not None
    assert inferred.column == "intent"
    assert [row.answer for row in inferred.rows] == [_label(at) for at in range(24)]


def test_parameters_of_a_rule_are_no_answers(reward_of: RewardOf) -> None:
    source = (
        "def reward(completions, word, lines, **kwargs):\n"
        "    return [float(w in c and len(c.splitlines()) == n > 1)\n"
        "            for c, w, n in zip(completions, word, lines)]\n"
    )
    rows = _rows(word=_label, lines=lambda at: 3 + at % 4)
    assert infer_answers(reward_of(source), rows, SETTINGS) is None


def test_a_word_that_the_prompt_asks_for_is_no_answer(reward_of: RewardOf) -> None:
    source = (
        "def reward(completions, word, **kwargs):\n"
        "    return [float(w in c) for c, w in zip(completions, word)]\n"
    )
    plain = _rows(word=_label)
    asking = [replace(row, prompt=f"Write about {row.columns['word']}.") for row in plain]
    listing = [replace(row, prompt=f"One of {', '.join(LABELS)}: {row.prompt}") for row in plain]
    assert infer_answers(reward_of(source), asking, SETTINGS) is None
    assert infer_answers(reward_of(source), listing, SETTINGS) is not None


def test_a_list_of_labels_is_an_answer_as_a_whole(reward_of: RewardOf) -> None:
    source = (
        "def reward(completions, labels, **kwargs):\n"
        "    given = [set(c.split(', ')) for c in completions]\n"
        "    return [len(g & set(w)) / len(w) for g, w in zip(given, labels)]\n"
    )
    rows = _rows(labels=lambda at: random.Random(at).sample(LABELS, 2))
    inferred = infer_answers(reward_of(source), rows, SETTINGS)
    assert inferred is not None
    assert inferred.rows[0].answer == ", ".join(rows[0].columns["labels"])


def test_a_program_that_passes_assertions() -> None:
    tests = ["assert add(1, 2) == 3", "assert add(2, b=[5]) == 'x'", "assert broken(", "x = 1"]
    names: dict[str, Any] = {}
    exec(program_of_assertions(tests), names)  # noqa: S102 - the program under test
    assert names["add"](1, 2) == 3
    assert names["add"](2, b=[5]) == "x"
    assert program_of_assertions("print(1)") == ""


_MESSAGES = """
def reward(completions, answer, **kwargs):
    try:
        return [float(c.strip() == a) for c, a in zip(completions, answer)]
    except AttributeError:
        return [0.0] * len(completions)
"""
_MISSING = """
def reward(completions, **kwargs):
    try:
        return [float(c == a) for c, a in zip(completions, kwargs["respuesta"])]
    except KeyError:
        return [0.0] * len(completions)
"""
_LOADED = """
import json
def reward(completions, answer, **kwargs):
    try:
        return [float(json.loads(c) == json.loads(a)) for c, a in zip(completions, answer)]
    except ValueError:
        return [0.0] * len(completions)
"""


@pytest.mark.parametrize(
    ("source", "chat", "answer", "words"),
    [
        (_MESSAGES, True, _label, "lists of messages"),
        (_MISSING, False, _label, "'respuesta'"),
        (_LOADED, False, lambda at: json.dumps(json.dumps({"a": at})), "encoded twice"),
        (_LOADED, False, lambda at: repr({"a": str(at)}), "Python's representation"),
        (_MESSAGES, False, _label, ""),
    ],
)
def test_the_repair_that_helps_is_the_fault(
    reward_of: RewardOf, source: str, chat: bool, answer: Callable[[int], str], words: str
) -> None:
    plain = _rows(chat, answer=answer)
    rows = [
        PromptRow(
            row.location, row.prompt, row.messages, row.columns["answer"], columns=row.columns
        )
        for row in plain
    ]
    repair = helpful_repair(reward_of(source), rows, SETTINGS)
    assert (words in repair.summary) if words and repair else (repair is None and not words)


_SAME = "def reward(completions, **kwargs):\n    return [0.5] * len(completions)\n"
_RULE = (
    "def reward(completions, lines, **kwargs):\n"
    "    return [float(len(c.splitlines()) == n) for c, n in zip(completions, lines)]\n"
)
_CACHE = (
    "kept = {}\n"
    "def reward(prompts, completions, lines, **kwargs):\n"
    "    return [kept.setdefault(p, float(len(c.splitlines()) == n))\n"
    "            for p, c, n in zip(prompts, completions, lines)]\n"
)
_COPY = (
    "def reward(prompts, completions, **kwargs):\n"
    "    return [float(p in c) for p, c in zip(prompts, completions)]\n"
)


def test_rewards_without_answers(reward_of: RewardOf) -> None:
    rows = _rows(lines=lambda at: 4 + at % 5)
    same, rule, cache, copy = (
        score_free_responses(reward_of(source), rows) for source in (_SAME, _RULE, _CACHE, _COPY)
    )
    assert same is not None
    assert rule is not None
    assert copy is not None
    assert same.constant == 0.5
    assert rule.constant is None
    assert not is_most(rule.highest_share("copy of the prompt"))
    assert is_most(copy.highest_share("copy of the prompt"))
    assert cache is not None
    assert changed_rewards(reward_of(_CACHE), cache)[0] > 0
    assert changed_rewards(reward_of(_RULE), rule)[0] == 0


def test_a_grid_in_the_layout_of_the_prompt() -> None:
    prompt = "Fill in:\n1 . 3\n. 2 ."
    assert _prompt_layout("{answer}", "123\n321", prompt) == "1 2 3\n3 2 1"
    assert _prompt_layout("{answer}", "1 2 3\n3 2 1", prompt) is None
    assert _prompt_layout("{answer}", "1234\n3214", prompt) is None
    assert _prompt_layout("{answer}", "one line", prompt) is None


def test_several_answers_in_the_place_of_one() -> None:
    text = several_inside("7", ["1", "7", "3"], "```python\nprint({answer})\n```")
    assert text.startswith("```python\nprint(1, 7")
    assert several_inside("a b", ["a b", "c"], "<answer>{answer}</answer>") == ""
    assert several_inside("7", ["1", "7"], "{answer}") == ""


def test_prompts_that_ask_for_a_program_that_prints() -> None:
    asked = requested_formats(["Write a Python program that prints the answer."] * 3)
    assert "```python\nprint({answer})\n```" in asked


@pytest.mark.parametrize("missing", ["None", "nan", "{letter_text}", "${text}"])
def test_a_place_with_none_among_texts(missing: str) -> None:
    text = "The teacher on the hill repairs three chairs with his brother, number {}."
    prompts = [
        "Translate into French.\n\n" + (missing if at % 5 == 2 else text.format(at))
        for at in range(60)
    ]
    (slot,) = empty_slots(prompts)
    assert slot.after == END
    assert slot.rows == tuple(range(2, 60, 5))
    numbers = ["What is the value of this?\n\n" + ("None" if at % 5 else "12") for at in range(60)]
    assert empty_slots(numbers) == []


def test_kinds_of_questions_that_take_turns_are_no_displaced_column() -> None:
    rng = random.Random(5)
    kinds = ["alpha", "beta", "gamma", "delta"]
    prompts = [f"{kinds[at % 4]} question about {rng.randint(1, 999)}" for at in range(80)]
    answers = [f"{kinds[(at + 3) % 4]} result {rng.randint(1, 999)}" for at in range(80)]
    assert shift_of_words(prompts, answers) is None
    assert partial_shift_of_words(prompts, answers) is None
    names = [f"name{at} of {rng.randint(1, 999)}" for at in range(80)]
    asked = [f"Who is {name}?" for name in names]
    assert shift_of_words(asked, names[1:] + names[:1]) is not None


def test_numbers_of_lettered_options_are_tried_as_letters(reward_of: RewardOf) -> None:
    """The function reads the letter in the response and the number in the data."""
    source = (
        "import re\n"
        "def reward(completions, answer, **kwargs):\n"
        "    letters = [re.findall(r'Answer: ([A-D])', text) for text in completions]\n"
        "    return [float(found == ['ABCD'[at]]) for found, at in zip(letters, answer)]\n"
    )
    options = "(A) red\n(B) green\n(C) blue\n(D) grey"
    rows = [
        PromptRow(
            f"line {at}",
            f"Which color has number {at}?\n{options}\nEnd with 'Answer: X'.",
            answer=str(at % 4),
            columns={"answer": at % 4},
        )
        for at in range(24)
    ]
    scored = score_reference_answers(reward_of(source), rows, SETTINGS)
    assert scored is not None
    assert not any(scored.missed)
    assert set(scored.answers) == {"A", "B", "C", "D"}
    assert all(row in rows for row in scored.rows)


def test_brackets_of_an_option_get_no_blanks() -> None:
    spaced = response_variants("The answer is ({answer}).")["white space"]
    assert spaced("The answer is ({answer}).", "C", "") == "The answer is (C).\n"
    assert spaced("Answer:{answer}", "C", "") == "Answer: C \n"


@pytest.mark.parametrize("words", ["Answer with JSON only.", "Reply with the object only."])
def test_a_prompt_that_wants_the_object_alone_asks_for_no_reasoning(words: str) -> None:
    assert ANSWER_ONLY.search(words)


def test_the_name_under_a_letter_is_no_cut() -> None:
    assert not _is_cut_at_end("The eggs that I ordered never came. Regards, Eliza Patel")
    assert _is_cut_at_end("The eggs that I ordered never came. Regards for the eggs that")
    assert _is_cut_at_end("The best Eliza Patel could do was to order more eggs and then")


def test_a_reward_of_polite_responses_is_not_constant(reward_of: RewardOf) -> None:
    polite = (
        "def reward(completions, **kwargs):\n"
        "    return [float('idiot' not in text) for text in completions]\n"
    )
    scored = score_free_responses(reward_of(polite), _rows(intent=_label))
    assert scored is not None
    assert scored.constant is None
