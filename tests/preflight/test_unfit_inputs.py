"""Answers, rewards, prompts and limits that do not fit together."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from grpodoctor.preflight.answers.completions.inverted_rewards import inverted_reward
from grpodoctor.preflight.answers.data_repairs import helpful_repair
from grpodoctor.preflight.answers.inferred_answers import infer_answers
from grpodoctor.preflight.answers.requested.asked_choices import asked_choices, outside_choices
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.inputs.prompt_rows import PromptRow
from grpodoctor.preflight.inputs.run_settings import RunSettings
from grpodoctor.preflight.results.check_results import CheckFinding
from grpodoctor.trainer.rewards.user_reward import UserReward

Findings = Callable[[str, PreflightContext], list[CheckFinding]]
Rewards = Callable[..., UserReward]

_LETTER = r"""
import re
def reward(completions, answer, **kwargs):
    found = [re.findall(r"\\boxed\{([A-D])\}", text) for text in completions]
    return [float(len(each) == 1 and each[0] == right) for each, right in zip(found, answer)]
"""
_NUMBER = r"""
def reward(completions, answer, **kwargs):
    return [float(text.strip() == str(right)) for text, right in zip(completions, answer)]
def errors(completions, target, **kwargs):
    return [float(text.strip() != str(right)) for text, right in zip(completions, target)]
"""
_OVERLAP = r"""
def reward(completions, answer, source, **kwargs):
    rewards = []
    for text, right, name in zip(completions, answer, source):
        given, wanted = set(text.split()), set(right.split())
        rewards.append(len(given & wanted) / max(len(given | wanted), 1) if name == "news" else 0.0)
    return rewards
"""


def _rows(texts: list[str], answers: list[str], **columns: list[object]) -> tuple[PromptRow, ...]:
    return tuple(
        PromptRow(
            f"line {at + 1}", text, answer=answer,
            columns={"answer": answer, **{name: each[at] for name, each in columns.items()}},
        )
        for at, (text, answer) in enumerate(zip(texts, answers, strict=True))
    )  # fmt: skip


def _context(rows: tuple[PromptRow, ...], **more: object) -> PreflightContext:
    given: dict[str, object] = {"files": None, "rows": rows, "settings": RunSettings(), **more}
    return PreflightContext(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("prompt", "choices"),
    [
        ("Which response is better? End with [[A]] or [[B]].", ("A", "B")),
        ("End with 'Grade: correct' or 'Grade: incorrect'.", ("correct", "incorrect")),
        ('Reply "yes", "no" or "maybe".', ("yes", "no", "maybe")),
        ("Give the answer as 'X' or 'N'.", ()),
        ("Call it 'a' and then 'b'.", ()),
        ("Sort the mail into billing, shipping or defect.", ("billing", "shipping", "defect")),
        ("Put apples, pears and plums into the basket.", ()),
    ],
)
def test_the_choices_of_prompts_are_read(prompt: str, choices: tuple[str, ...]) -> None:
    assert asked_choices([f"{prompt} Case {at}." for at in range(20)]) == choices


def test_scores_in_place_of_choices_are_named(findings_of: Findings, reward_of: Rewards) -> None:
    prompts = [f"Is {at} better? End with [[A]] or [[B]]." for at in range(24)]
    scores = _rows(prompts, [str(at % 9 + 1) for at in range(24)])
    assert outside_choices(prompts, ["A", "B"] * 12) == ()
    reward = reward_of(_LETTER)
    (finding,) = findings_of("DAT126", _context(scores, reward=reward))
    assert finding.summary == "24 of 24 answers are none of those that the prompts ask for: A, B."
    paid = findings_of("DAT126", _context(scores))
    assert [each.severity for each in paid] == ["info"]  # the run may translate them


def test_texts_of_options_for_a_reward_that_reads_letters(reward_of: Rewards) -> None:
    options = [[at + 3 * k for k in (1, 5, 9, 11)] for at in range(12)]
    prompts = [
        "What is it?\n" + "\n".join(f"{x}. {y}" for x, y in zip("ABCD", each, strict=True))
        for each in options
    ]
    rows = _rows(prompts, [str(each[at % 4]) for at, each in enumerate(options)])
    repair = helpful_repair(reward_of(_LETTER), rows, RunSettings())
    assert repair is not None
    assert repair.summary.startswith("The answers are the texts of options")


def test_whole_solutions_for_a_reward_that_reads_the_answer(reward_of: Rewards) -> None:
    solutions = [f"We add and get {at}. So it is \\boxed{{{at}}}." for at in range(3, 15)]
    rows = _rows([f"Case {at}" for at in range(12)], solutions)
    source = _NUMBER.replace("text.strip() == str(right)", "'{' + str(right) + '}' in text")
    repair = helpful_repair(reward_of(source), rows, RunSettings())
    assert repair is not None
    assert "whole solutions" in repair.summary


def test_answers_in_another_column_are_found(reward_of: Rewards) -> None:
    results = [str(at * 7 + 3) for at in range(12)]
    source = _NUMBER.replace("def reward(", "def unused(") + (
        "def reward(completions, answer, result, **kwargs):\n"
        "    return unused(completions, answer) if answer == result else [0.0] * len(answer)\n"
    )
    rows = _rows([f"Case {at}" for at in range(12)], ["kg", "m"] * 6, result=results)
    repair = helpful_repair(reward_of(source), rows, RunSettings())
    assert repair is not None
    assert "column 'result'" in repair.summary


def test_an_error_as_a_reward_is_named(findings_of: Findings, reward_of: Rewards) -> None:
    settings = RunSettings()
    table = [
        PromptRow(f"line {at}", f"What is {at} + 5?", columns={"target": str(at + 5)})
        for at in range(24)
    ]
    errors = reward_of(_NUMBER, "errors")
    inferred = infer_answers(errors, table, settings)
    assert inferred is not None
    assert inferred.column == "target"
    (finding,) = findings_of("REW101", _context(inferred.rows, reward=errors))
    assert finding.severity == "critical"
    assert finding.summary.startswith("Correct answers earn 0, less than wrong ones (1)")
    sound = reward_of(_NUMBER)
    rows = _rows([row.prompt for row in table], [str(at + 5) for at in range(24)])
    assert inverted_reward(sound, rows, settings) is None


def test_a_source_without_a_score_is_named_for_graded_rewards(
    findings_of: Findings, reward_of: Rewards
) -> None:
    words = ["river", "stone", "apple", "engine", "north"]
    words += ["tiger", "radio", "salt", "omen", "cedar"]
    chosen = [[words[(at * k + k) % 10] for k in (1, 3, 4, 6, 7)] for at in range(60)]
    texts = [f"{' '.join(each)} {at}" for at, each in enumerate(chosen)]
    for names, found in ((["news", "blog"], True), (["news"], False)):
        sources: list[object] = [names[at % len(names)] for at in range(60)]
        rows = _rows([f"Sum up report {at}." for at in range(60)], texts, source=sources)
        findings = findings_of("REW101", _context(rows, reward=reward_of(_OVERLAP)))
        assert any("source = 'blog'" in each.summary for each in findings) is found


def test_rewards_that_depend_on_the_batch_are_named(
    findings_of: Findings, reward_of: Rewards
) -> None:
    rows = _rows([f"What is {at} + 5?" for at in range(24)], [str(at + 5) for at in range(24)])
    one = _NUMBER.replace("def reward(", "def unused(")
    reverse = (
        "def reward(completions, answer, **k):\n    return unused(completions, answer[::-1])\n"
    )
    centred = (
        "def reward(completions, answer, **k):\n    each = unused(completions, answer)\n"
        "    return [one - sum(each) / len(each) for one in each]\n"
    )
    small = (
        "def reward(completions, answer, **k):\n"
        "    return [0.9 + 1e-4 * each for each in unused(completions, answer)]\n"
    )
    for rest, words in (
        (reverse, "only in a batch of one"),
        (centred, "only in a batch with wrong ones"),
        (small, "earn only 0.0001 more"),
    ):
        findings = findings_of("REW101", _context(rows, reward=reward_of(one + rest)))
        assert [words in each.summary for each in findings] == [True]
    assert findings_of("REW101", _context(rows, reward=reward_of(_NUMBER))) == []


def test_the_first_number_of_a_response_is_no_answer(
    findings_of: Findings, reward_of: Rewards
) -> None:
    rows = _rows(
        [f"Ann buys {at} pens for {at + 2} euros. What do they cost?" for at in range(3, 27)],
        [str(at * (at + 2)) for at in range(3, 27)],
    )
    source = (
        "import re\ndef reward(completions, answer, **k):\n"
        "    found = [re.findall('[0-9]+', each) for each in completions]\n"
        "    return [float(each[{}:][:1] == [a]) for each, a in zip(found, answer)]\n"
    )
    for place, lost in (("0", True), ("-1", False)):
        reward = reward_of(source.replace("{}", place))
        findings = findings_of("REW104", _context(rows, reward=reward))
        assert any("numbers of the prompt" in each.summary for each in findings) is lost


def test_answers_in_another_language_than_asked_are_named(findings_of: Findings) -> None:
    german = "Die Frau ist mit dem Kind auf der Brücke und sieht den Fluss."
    english = "The woman is with the child on the bridge and sees the river."
    for answer, text, found in ((english, german, True), (german, english, False)):
        rows = _rows([f"Translate into German: {text} {at}" for at in range(24)], [answer] * 24)
        findings = findings_of("DAT114", _context(rows))
        assert any("answers are in English" in each.summary for each in findings) is found


def test_prompts_cut_at_one_short_length_are_found(findings_of: Findings) -> None:
    whole = [
        f"With {at * 37 % 91}, {at * 53 % 870} make an equation for {at * 11}. Use each once."
        for at in range(60)
    ]
    cut = tuple(PromptRow(f"line {at}", text[:52]) for at, text in enumerate(whole))
    (finding,) = findings_of("DAT115", _context(cut))
    assert "at different places of one sentence" in finding.summary
    equal = tuple(
        PromptRow(f"line {at}", f"Sort the words: {words}") for at, words in
        enumerate(["amber cedar ember", "ember amber cedar", "cedar amber ember"] * 20)
    )  # fmt: skip
    assert findings_of("DAT115", _context(equal)) == []


def test_a_config_gives_the_sizes_that_the_user_does_not_give() -> None:
    config = {"max_length": 2048, "group_size": 16, "prompts_per_batch": 4}
    assert RunSettings().completed_by(config).max_tokens == 2048
    given = RunSettings(group_size=8, given=frozenset({"group_size"})).completed_by(config)
    assert (given.group_size, given.batch_prompts) == (8, 4)


def test_rewarded_answers_longer_than_the_limit_are_named(
    dense_model: Path, context_of: Callable[..., PreflightContext], findings_of: Findings,
    reward_of: Rewards,
) -> None:  # fmt: skip
    answers = [json.dumps({"total": at, "place": "x" * 60}) for at in range(20)]
    rows = list(_rows([f"Read letter {at}." for at in range(20)], answers))
    context = context_of(dense_model, rows, reward=reward_of(_NUMBER))
    limits = {"max_length": 8}, {"max_length": 4096}
    short, long = (
        replace(context, run_config=each, settings=RunSettings(max_tokens=4096)) for each in limits
    )
    (finding,) = findings_of("LEN101", short)
    assert finding.summary == "20 of 20 rewarded answers are longer than 8 tokens."
    asking = [replace(row, prompt="Think step by step.", answer=None) for row in rows]
    thinking = replace(long, rows=tuple(asking), reward=None, run_config={"max_length": 64})
    (finding,) = findings_of("LEN101", thinking)
    assert finding.summary == "20 of 20 prompts ask for reasoning; responses end at 64 tokens."
    with pytest.raises(AssertionError, match="no engine"):
        findings_of("LEN101", long)


def test_pictures_need_more_tokens_than_their_places(
    dense_model: Path, context_of: Callable[..., PreflightContext], findings_of: Findings
) -> None:
    rows = [
        PromptRow(f"line {at}", "How many are in the chart?", columns={"image": f"{at}.png"})
        for at in range(20)
    ]
    context = context_of(dense_model, rows, run_config={"max_prompt_length": 128})
    assert not [each for each in findings_of("DAT106", context) if "picture" in each.summary]
    reads = {**context.config, "vision_config": {"depth": 2}, "mm_tokens_per_image": 300}
    assert context.files is not None
    seeing = replace(context, files=replace(context.files, config=reads))
    findings = [each for each in findings_of("DAT106", seeing) if "picture" in each.summary]
    assert [each.severity for each in findings] == ["warning"]
    assert findings[0].figures["needed"] > 300
    roomy = replace(seeing, run_config={"max_prompt_length": 2048})
    assert not [each for each in findings_of("DAT106", roomy) if "picture" in each.summary]
