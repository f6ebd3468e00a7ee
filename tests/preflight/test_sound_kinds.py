"""Kinds of sound data without an alarm, each next to the fault that must still have one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from grpodoctor.preflight.answers.answer_variants import response_variants
from grpodoctor.preflight.answers.completions.harmless_changes import FENCED, harmless_changes
from grpodoctor.preflight.answers.completions.unasked_spellings import unasked_kinds
from grpodoctor.preflight.answers.inferred_answers import infer_answers
from grpodoctor.preflight.answers.other_tasks import rows_of_one_format, rows_with_rewards
from grpodoctor.preflight.answers.reference_answers import around_each, score_reference_answers
from grpodoctor.preflight.answers.requested.requested_formats import requested_formats, shown_tag
from grpodoctor.preflight.answers.written_forms import mixed_forms
from grpodoctor.preflight.checks.reward.long_responses import must_be_equal
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.inputs.prompt_rows import PromptRow
from grpodoctor.preflight.inputs.run_settings import RunSettings
from grpodoctor.preflight.results.check_results import CheckFinding
from grpodoctor.preflight.texts.normal_form import loose_words_of
from grpodoctor.trainer.rewards.user_reward import UserReward

RewardOf = Callable[..., UserReward]
FindingsOf = Callable[[str, PreflightContext], list[CheckFinding]]
SETTINGS = RunSettings()


def _row(at: int, prompt: str, answer: str | None = None, **columns: Any) -> PromptRow:
    message = {"role": "user", "content": prompt}
    return PromptRow(f"line {at}", prompt, (message,), answer, {"answer": answer, **columns})


def _context(rows: list[PromptRow], reward: UserReward | None = None) -> PreflightContext:
    return PreflightContext(files=None, rows=tuple(rows), settings=SETTINGS, reward=reward)


def test_boards_differ_by_their_empty_cells() -> None:
    boards = ("Move for X:\nX O .\n. X O\n. . .", "Move for X:\n. X O\nX . O\n. . .")
    assert loose_words_of(boards[0]) != loose_words_of(boards[1])
    tables = ("Move:\n|X|O| |\n+-+-+-+\n| |X|O|", "Move:\n|X| |O|\n+-+-+-+\n| |X|O|")
    assert loose_words_of(tables[0]) != loose_words_of(tables[1])
    rules = ("Sum up.\n\n~~~\nIt rains.\n~~~", "Sum up.\nIt rains.")
    assert loose_words_of(rules[0]) == loose_words_of(rules[1])
    mazes = ("Walk:\n\nS.#\n..G", "Walk:\n\nS#.\n..G")
    assert loose_words_of(mazes[0]) != loose_words_of(mazes[1])
    assert loose_words_of("How many eggs?\nSay it.") == loose_words_of("How many eggs\nsay it")


@pytest.mark.parametrize(
    ("switches", "severities"), [(("/think", "/no_think"), []), (("now", "now!"), ["warning"])]
)
def test_prompts_with_another_switch_are_no_duplicates(
    findings_of: FindingsOf, switches: tuple[str, str], severities: list[str]
) -> None:
    rows = [
        _row(2 * at + turn, f"Add {at}, {at + 7} and {3 * at} packs of rice. {switch}", str(at))
        for at in range(20) for turn, switch in enumerate(switches)
    ]  # fmt: skip
    found = findings_of("DAT107", _context(rows))
    assert [each.severity for each in found] == severities


_WEIGHTED = """
def reward(completions, answer, **kwargs):
    weights = {"routine": 1.0, "urgent": RARE}
    return [weights[a] if c[0]["content"] == a else 0.0 for c, a in zip(completions, answer)]
"""


@pytest.mark.parametrize(("rare", "severity"), [("6.0", "info"), ("1.0", "warning")])
def test_rare_classes_may_earn_more(
    reward_of: RewardOf, findings_of: FindingsOf, rare: str, severity: str
) -> None:
    rows = [
        _row(at, f"Mail {at}: routine or urgent?", "urgent" if at % 6 == 0 else "routine")
        for at in range(120)
    ]
    reward = reward_of(_WEIGHTED.replace("RARE", rare))
    (found,) = findings_of("DAT108", _context(rows, reward))
    assert found.severity == severity


def test_letters_of_codes_are_no_units() -> None:
    codes = [
        "12b",
        "3a4",
        "f03",
        "9c1d",
        "77e",
        "a1b2",
        "40d",
        "b7c9",
        "1f2e",
        "5ab",
        "d4f1",
        "0c3",
    ]
    decimal = [str(number) for number in range(100, 112)]
    assert [form.name for form in mixed_forms([*codes * 2, *decimal])] == []
    units = [f"{number}kg" for number in range(8)]
    assert [form.name for form in mixed_forms([*units, *decimal])] == ["a unit"]


def test_the_order_of_a_list_in_json_is_changed_by_its_elements() -> None:
    changed = response_variants("{answer}")["another order"]
    prompt = "List the pairs in any order."
    assert changed("{answer}", '[["a", "b"], ["c", "d"]]', prompt) == '[["c", "d"], ["a", "b"]]'
    assert changed("{answer}", '{"a": 1, "b": 2}', prompt) is None
    assert changed("{answer}", "red, blue", prompt) == "blue, red"


@pytest.mark.parametrize(
    ("prompt", "answer", "found"),
    [
        ("Correct it:\nIn {at} towns the new mayors has asked for many more trams and buses.",
         "In {at} towns the new mayors have asked for many more trams and buses.", 0),
        ("Summarize it:\nThe {at} mayors spoke for hours on trams, and buses were wanted by all.",
         "After long debates, the mayors of {at} towns agreed that they need better transport.", 1),
    ],
)  # fmt: skip
def test_edits_of_the_prompt_have_one_wording(
    reward_of: RewardOf, prompt: str, answer: str, found: int
) -> None:
    reward = reward_of(
        "def reward(completions, answer, **kwargs):\n"
        "    return [float(c[0]['content'] == a) for c, a in zip(completions, answer)]\n"
    )
    rows = [
        _row(at, f"Explain. {prompt.format(at=at)}", answer.format(at=at)) for at in range(3, 20)
    ]
    answers = score_reference_answers(reward, rows, SETTINGS)
    assert answers is not None
    assert len([*must_be_equal(reward, answers, range(len(answers.rows)))]) == found


@pytest.mark.parametrize(("place", "fenced"), [("", True), (" on the last line", False)])
def test_json_on_one_line_has_no_fence(place: str, fenced: bool) -> None:
    prompt = f"Write the call as JSON{place}."
    kinds = dict(harmless_changes("{answer}", '{"a": 1}', '{"a": 2}', prompt, reasons=True))
    assert (FENCED in kinds) is fenced


_CALLS = r"""
import json, re
def reward(completions, answer, **kwargs):
    rewards = []
    for c, a in zip(completions, answer):
        found = re.findall(r"<call>\s*(.*?)\s*</call>", c[0]["content"])
        rewards.append(float(bool(found) and list(map(json.loads, found)) == json.loads(a)))
    return rewards
"""


def test_each_call_has_its_tags(reward_of: RewardOf) -> None:
    assert around_each("<c>{answer}</c>", '[{"a": 1}, {"b": 2}]') == '{"a": 1}</c>\n<c>{"b": 2}'
    assert around_each("<c>{answer}</c>", '["a"]') == around_each("{answer}", '[{"a": 1}]') == ""
    rows = [
        _row(at, f"Book {at}. Write each call as <call>...</call>.", f'[{{"a": {at}}}, {{"b": 2}}]')
        for at in range(12)
    ]
    answers = score_reference_answers(reward_of(_CALLS), rows, SETTINGS)
    assert answers is not None
    assert set(answers.rewards) == {1.0}


_OF_ONE_TASK = """
def reward(completions, task, answer, **kwargs):
    texts = [c[0]["content"] for c in completions]
    return [OTHER if t != "math" else float(x == a) for x, t, a in zip(texts, task, answer)]
"""


def _tasks(count: int = 40) -> tuple[PromptRow, ...]:
    return tuple(
        _row(at, f"Question {at}?", str(at), task="math" if at % 4 else "law")
        for at in range(count)
    )


@pytest.mark.parametrize(
    ("other", "kept"),
    [("None", 30), ("0.0", 40), ("(None if x else 0.0)", 40)],  # the last depends on the response
)
def test_rows_without_a_reward_are_left_out(reward_of: RewardOf, other: str, kept: int) -> None:
    reward = reward_of(_OF_ONE_TASK.replace("OTHER", other))
    assert len(rows_with_rewards(reward, _tasks())) == kept


_TWO_FORMATS = r"""
import re
def reward(completions, answer, task, **kwargs):
    rewards = []
    for c, a, t in zip(completions, answer, task):
        form = r"\\boxed\{(.*?)\}" if t == "math" else r"PLACE: (\w+)"
        found = re.findall(form, c[0]["content"])
        rewards.append(float(bool(found) and found[-1] == a))
    return rewards
"""


def _two_formats() -> tuple[PromptRow, ...]:
    ask = {"math": "Write it into \\boxed{}.", "law": "Finish with 'Town: ' and its name."}
    return tuple(
        _row(at, f"Question {at}? {ask[task]}", f"town{at}", task=task)
        for at in range(40) for task in ["math" if at % 4 else "law"]
    )  # fmt: skip


@pytest.mark.parametrize(("place", "kept"), [("Town", 30), ("City", 40)])
def test_a_task_with_another_format_is_left_out_if_it_is_paid(
    reward_of: RewardOf, place: str, kept: int
) -> None:
    rows = _two_formats()
    reward = reward_of(_TWO_FORMATS.replace("PLACE", place))
    answers = score_reference_answers(reward, rows, SETTINGS)
    assert answers is not None
    assert len(rows_of_one_format(reward, answers, rows)) == kept


@pytest.mark.parametrize(("place", "read"), [("Town", ["30 of 40"]), ("City", [])])
def test_rows_of_another_task_that_nothing_reads_are_noted(
    reward_of: RewardOf, findings_of: FindingsOf, place: str, read: list[str]
) -> None:
    rows = _two_formats()
    reward = reward_of(_TWO_FORMATS.replace("PLACE", place))
    found = findings_of("REW101", _context(list(rows), reward))
    notes = [each.summary for each in found if each.severity == "info"]
    assert [text.partition("read ")[2].partition(" rows")[0] for text in notes] == read


_JUDGED = """
import urllib.request
def ask_judge(text):
    return ERROR
def reward(completions, **kwargs):
    return [float("1" in ask_judge(c[0]["content"])) for c in completions]
"""


@pytest.mark.parametrize(
    ("error", "severity"),
    [('urllib.request.urlopen("http://127.0.0.1:9/").read()', "info"), ("text[7000]", "critical")],
)
def test_a_judge_without_its_server_is_a_note(
    reward_of: RewardOf, findings_of: FindingsOf, error: str, severity: str
) -> None:
    rows = [_row(at, f"Write poem {at}.") for at in range(4)]
    reward = reward_of(_JUDGED.replace("ERROR", error))
    assert findings_of("REW103", _context(rows, reward))[0].severity == severity


_VERIFIER = r"""
import re
def reward(completions, good, **kwargs):
    rewards = []
    for c, words in zip(completions, good):
        found = re.findall(r"<regex>(.*?)</regex>", c[0]["content"])
        try:
            fits = bool(found) and all(re.fullmatch(found[-1], word) for word in words)
            rewards.append(float(fits and not re.fullmatch(found[-1], words[0] + "x")))
        except re.error:
            rewards.append(0.0)
    return rewards
"""


def test_answers_of_a_verifier_are_in_a_column_that_it_does_not_read(reward_of: RewardOf) -> None:
    rows = [
        _row(at, f"Match {at}a{at}. Write <regex>...</regex>.", good=[f"{at}a{at}", f"{at}b{at}"],
             pattern=f"{at}[a-b]{at}")
        for at in range(10, 34)
    ]  # fmt: skip
    found = infer_answers(reward_of(_VERIFIER), rows, SETTINGS)
    assert found is not None
    assert found.column == "pattern"


_MOVES = """
def reward(completions, moves, **kwargs):
    return [float(c[0]["content"].strip() in map(str, m)) for c, m in zip(completions, moves)]
"""


@pytest.mark.parametrize(("ask", "answer"), [("any such move counts", "4"), ("", "4, 12")])
def test_one_of_several_moves_is_the_answer(reward_of: RewardOf, ask: str, answer: str) -> None:
    source = _MOVES if ask else _MOVES.replace("in map(str, m)", "== ', '.join(map(str, m))")
    rows = [_row(at, f"Board {at}; {ask}.", moves=[at, 3 * at]) for at in range(4, 28)]
    found = infer_answers(reward_of(source), rows, SETTINGS)
    assert found is not None
    assert found.rows[0].answer == answer


_BOXED = r"""
def reward(completions, answer, **kwargs):
    boxes = ["\\boxed{" + a + "}" for a in answer]
    return [float(c[0]["content"] == box) for c, box in zip(completions, boxes)]
"""


@pytest.mark.parametrize(
    ("ask", "asked"), [("Put the number into \\boxed{}.", False), ("Use \\boxed{}.", True)]
)
def test_the_number_in_a_box_has_no_unit(reward_of: RewardOf, ask: str, asked: bool) -> None:
    reward = reward_of(_BOXED)
    rows = [_row(at, f"How many of {at} km are left? {ask}", str(at)) for at in range(20)]
    answers = score_reference_answers(reward, rows, SETTINGS)
    assert answers is not None
    assert ("a unit" not in unasked_kinds(rows, answers)) is asked


def test_a_rating_is_on_the_scale_of_the_prompt() -> None:
    ask = "Write <answer> </answer> and your certainty in <confidence> </confidence>"
    for scale, rating in ((" from 0 to 1.", "0.9"), (" in percent.", "50")):
        forms = requested_formats([f"{ask}{scale}"])
        form = f"<answer>{{answer}}</answer>\n<confidence>{rating}</confidence>"
        assert form in forms


def test_cells_of_a_table_are_no_place_for_the_answer() -> None:
    table = "<td>3</td><td>4</td>" * 3
    assert shown_tag([f"Sum the cells: {table}"]) == {}
    assert "<sum>" in shown_tag([f"Sum the cells: {table}. Write <sum>...</sum>."])


def test_a_dollar_sign_before_a_name_is_no_currency(reward_of: RewardOf) -> None:
    rows = [_row(at, f"Find {at}. End with Answer: $Answer.", str(at)) for at in range(20)]
    reward = reward_of(_BOXED)
    answers = score_reference_answers(reward, rows, SETTINGS)
    assert answers is not None
    assert "a unit" in unasked_kinds(rows, answers)


def test_texts_that_begin_alike_did_not_lose_their_beginning(findings_of: FindingsOf) -> None:
    words = ("blue", "old", "large", "red", "small")
    rows = [
        _row(at, f"Query: what does it cost to repair {words[at % 5]} number {at}?\n"
                 f"The {words[at % 3]} one was sold. {words[at % 4].title()} was bought by us at "
                 f"noon. Which one is it? It is number {at} of the list that we made together")
        for at in range(100, 400)
    ]  # fmt: skip
    lengths = {len(row.prompt.split()) for row in rows}
    assert len(lengths) == 1
    summaries = [each.summary for each in findings_of("DAT115", _context(rows))]
    assert not any("begin" in each for each in summaries)
