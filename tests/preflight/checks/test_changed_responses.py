"""Responses that are wrong in one place, and right ones with a change that must not count."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from grpodoctor.preflight.answers.answer_variants import response_variants, variant_of
from grpodoctor.preflight.answers.completions.harmless_changes import harmless_changes
from grpodoctor.preflight.answers.near_misses import near_misses
from grpodoctor.preflight.answers.simpler_answers import SIMPLER
from grpodoctor.preflight.checks.reward.unanswered import free_findings
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.inputs.prompt_rows import PromptRow
from grpodoctor.preflight.inputs.run_settings import RunSettings
from grpodoctor.preflight.results.check_results import CheckFinding
from grpodoctor.trainer.rewards.user_reward import UserReward

Findings = Callable[[str, PreflightContext], list[CheckFinding]]
Rewards = Callable[..., UserReward]

HEAD = """
import json, re
def load(text):
    try:
        return json.loads(text)
    except ValueError:
        return None
def tagged(c):
    found = re.findall(r"(?s)<answer>(.*?)</answer>", c)
    return found[-1].strip() if found else None
def block(c, at):
    found = re.findall(r"(?s)```python\\n(.*?)```", c)
    return found[at].strip() if found else None
"""


def rows(prompt: str, answers: list[str], **columns: list[Any]) -> list[PromptRow]:
    return [
        PromptRow(
            f"line {at}",
            prompt.format(at),
            answer=answer,
            columns={"answer": answer, **{name: each[at] for name, each in columns.items()}},
        )
        for at, answer in enumerate(answers)
    ]


ORDERS = rows(
    "Extract the order {} as JSON with item and day.",
    [
        json.dumps({"item": f"chair {at}", "due": {"day": at % 28 + 1, "month": f"m{at}"}})
        for at in range(20)
    ],
)
WORDS = ("amber", "cedar", "ember", "fjord", "hollow")
SUMMARIES = rows(
    "Think in <think></think>, then summarize text {}.",
    [
        f"The {WORDS[at % 5]} mill near the {WORDS[at % 3]} river closed in {1900 + at}."
        for at in range(20)
    ],
)
PROGRAMS = rows(
    "Write a function f{} in Python. Explain it.",
    [f"def f{at}(x):\n    return x + {at}" for at in range(20)],
)
MARKED = rows(
    "What is 3 * {}? Think first, then use <answer> tags.", [str(3 * at) for at in range(11, 31)]
)


@pytest.fixture
def named(findings_of: Findings, reward_of: Rewards) -> Callable[..., str]:
    """The warnings of a check for a reward whose expression sees completion `c` and answer `a`."""

    def examine(code: str, body: str, data: list[PromptRow]) -> str:
        source = (
            f"{HEAD}\ndef reward(completions, answer, **kwargs):\n"
            f"    return [float({body}) for c, a in zip(completions, answer)]\n"
        )
        context = PreflightContext(
            files=None, rows=tuple(data), settings=RunSettings(), reward=reward_of(source)
        )
        found = findings_of(code, context)
        return "\n".join(each.summary for each in found if each.severity != "info")

    return examine


def test_a_mutant_differs_from_the_answer_in_one_place_and_names_it() -> None:
    answer = '{"item": "chair", "due": {"day": 3}}'
    mutants = dict(near_misses(answer, [answer], "", 0))
    assert mutants["another value of 'due.day'"] == '{"item": "chair", "due": {"day": 4}}'
    query = "SELECT name FROM shops WHERE size > 12"
    assert dict(near_misses(query, [query], "", 0)) == {
        "a query with another value": "SELECT name FROM shops WHERE size > 31",
        "a query without its condition": "SELECT name FROM shops",
        "a query with its comparison turned round": "SELECT name FROM shops WHERE size < 12",
    }
    program = "def f(x):\n    table = {1: 2, 3: 4}\n    return table[x]"
    ((kind, text),) = near_misses(program, [program], "", 0)
    assert kind == "a program that is wrong for the last test"
    assert "3: 'none of them'" in text
    call = '{"name": "pay", "arguments": {"sum": 3, "to": "x"}}'
    other = '{"name": "ask", "arguments": {"sum": 3, "to": "y"}}'
    calls = dict(near_misses(call, [call, other], "", 0))
    assert json.loads(calls["a call of another tool"])["name"] == "ask"
    assert "another value of 'name'" not in calls
    assert dict(near_misses("red, blue", ["red, blue", "red, green"], "Sort them.", 0)) == {
        "the right list and one element more": "red, blue, green",
        "the list in the opposite order": "blue, red",
    }
    assert dict(near_misses('{"a": 1, "b": 2}', [], "", 0))["an object without its last field"] == (
        '{"a": 1}'
    )


@pytest.mark.parametrize(
    ("answer", "other", "kind", "mutant"),
    [
        ("def f(x):\n    return x + 1", "", "a program whose functions return nothing",
         "def f(x):\n    return None"),
        ("5", "-3", "the number with the opposite sign", "-5"),
        ("about 40 apples", "", "another number in the text", "about 52 apples"),
    ],
)  # fmt: skip
def test_a_program_and_a_number_have_one_mutant(
    answer: str, other: str, kind: str, mutant: str
) -> None:
    assert list(near_misses(answer, [answer, other], "", 0)) == [(kind, mutant)]


@pytest.mark.parametrize(
    ("change", "text", "simpler"),
    [
        (change, *texts)
        for (change, _, _), texts in zip(
            SIMPLER,
            [
                ('{"a": {"b": 1}, "c": [2, 3]}', '{"a": 1, "c": 3}'),
                ("1,234,567 and 1,2", "1234567 and 1,2"),
                ("$5 or 7 %", "5 or 7"),
                ("12.5 km", "12.5"),
                ("5.00", "5"),
                ("Cold Water", "cold water"),
                ("b", "B"),
                ("caf\u00e9", "cafe"),
                ("It rains. ", "It rains"),
                ("one\n  two", "one two"),
                ("a (b); -1.5", "a b -1.5"),
            ],
            strict=True,
        )
    ],
)
def test_an_answer_is_made_simpler_in_one_way(
    change: Callable[[str], object], text: str, simpler: str
) -> None:
    assert change(text) == simpler


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ("(load(c) or {}).get('item') == load(a)['item']", "another value of 'due.day'"),
        ("(d := load(c)) is not None and set(d) == {*load(a)} and d['item'] == load(a)['item']",
         "another value of 'due.month'"),
        ("(d := load(c) or {}).get('due') == load(a)['due'] and d['item'] in a and len(d)",
         "further fields: earns more than the right answer"),
    ],
)  # fmt: skip
def test_a_field_that_does_not_count_is_named(
    named: Callable[..., str], body: str, place: str
) -> None:
    assert place in named("REW102", body, ORDERS)
    assert named("REW102", "load(c) is not None and load(c) == load(a)", ORDERS) == ""


def test_only_changes_that_the_prompt_allows_are_made() -> None:
    boxed, end = "\\boxed{{answer}}", "a sentence behind it"
    asked, free = (
        dict(harmless_changes(boxed, "5", "6", prompt, reasons=False))
        for prompt in ("End with the box.", "What is 2 + 3?")
    )
    assert (end in asked, end in free) == (False, True)
    changes = dict(harmless_changes("{answer}", '{"a": 1}', "{}", "", reasons=True))
    assert changes["JSON on several lines"] == '{\n  "a": 1\n}'
    spaced = response_variants("[[{answer}]]")["white space"]
    assert variant_of(spaced, "[[{answer}]]", "A", "") == "[[A]]\n"


def test_an_answer_that_counts_within_the_thought_is_named(named: Callable[..., str]) -> None:
    place = "the right answer in the thought, and a wrong one behind it"
    assert place in named("REW102", "a in c", SUMMARIES)
    assert place not in named("REW102", "a in c.split('</think>')[-1]", SUMMARIES)


def test_a_nested_answer_that_is_cut_at_its_first_brace_is_named(
    named: Callable[..., str],
) -> None:
    short = r"(m := re.search(r'\{.*?\}', c)) is not None and load(m[0]) == load(a)"
    assert "holds nested JSON" in named("REW101", short, ORDERS)
    whole = r"(m := re.search(r'\{.*\}', c, re.S)) is not None and load(m[0]) == load(a)"
    assert named("REW101", whole, ORDERS) == ""


@pytest.mark.parametrize(
    ("data", "bad", "sound", "what"),
    [
        (SUMMARIES, "len(set(c.split('</think>')[0].split()) & set(a.split())) / len(a.split())",
         "len(set(c.split('</think>')[-1].split()) & set(a.split())) / len(a.split())",
         "behind a thought in <think>"),
        (PROGRAMS, r"re.findall(r'```python\n(.*?)\n```$', c, re.S) == [a]",
         "block(c, -1) == a", "a sentence behind it"),
        (PROGRAMS, "block(c, 0) == a", "block(c, -1) == a", "a draft in a code block"),
        (ORDERS, "load(c) == load(a)",
         r"(m := re.search(r'\{.*\}', c, re.S)) is not None and load(m[0]) == load(a)",
         "a code fence around the JSON"),
        (MARKED, "(m := re.search('<answer>(.*)</answer>', c)) and c.endswith('>') and m[1] == a",
         "tagged(c) == a", "a line break behind it"),
        (MARKED, r"tagged(c) == a and set(re.findall(r'\d+', c)) == {a}",
         "tagged(c) == a", "another answer that it tries and rejects"),
    ],
)  # fmt: skip
def test_a_change_that_must_not_count_is_named(
    named: Callable[..., str], data: list[PromptRow], bad: str, sound: str, what: str
) -> None:
    assert what in named("REW104", bad, data)
    assert what not in named("REW104", sound, data)


def test_tags_that_the_prompts_show_and_the_reward_does_not_read_are_named(
    named: Callable[..., str],
) -> None:
    data = rows("Sort note {}. Put it between <kind> and </kind>.", ["new card", "lost card"] * 10)
    body = "(m := re.search('<answer>(.*?)</answer>', c)) is not None and m[1].strip() == a"
    assert "Prompts ask for <kind>" in named("REW104", body, data)
    assert "Prompts ask for" not in named("REW104", body.replace("answer>", "kind>"), data)


def test_programs_that_count_only_within_tags_are_named(named: Callable[..., str]) -> None:
    within = r"(m := re.fullmatch(r'(?s)<think>\n.*?</think>\n<answer>\n(.*?)\n</answer>', c)) is not None and block(m[1], -1) == a"  # noqa: E501
    assert "only within <think> and <answer>" in named("REW106", within, PROGRAMS)
    assert named("REW106", "block(c, -1) == a", PROGRAMS) == ""


FREE = tuple(
    PromptRow(f"line {at}", f"Write about {at} and use the word {word} twice.",
              columns={"keyword": word, "prompt": ""}, prompt_column="prompt")
    for at, word in enumerate(WORDS * 4)
)  # fmt: skip


@pytest.mark.parametrize(
    ("bad", "sound", "what"),
    [
        ("c.lower().split().count(k) >= 2", r"len(re.findall(rf'\b{k}\b', c.lower())) >= 2",
         "next to a comma or full stop"),
        ("min(len(c), 200) / 200 * (not c.endswith(chr(10)))", "min(len(c), 200) / 200",
         "change with a line break behind it"),
    ],
)  # fmt: skip
def test_a_change_that_must_not_count_is_named_without_answers(
    reward_of: Rewards, bad: str, sound: str, what: str
) -> None:
    found = []
    for body in (bad, sound):
        source = (
            f"{HEAD}\ndef reward(completions, keyword, **kwargs):\n"
            f"    return [float({body}) for c, k in zip(completions, keyword)]\n"
        )
        found.append([each.summary for each in free_findings(reward_of(source), FREE, "")])
    assert any(what in summary for summary in found[0])
    assert not any(what in summary for summary in found[1])
