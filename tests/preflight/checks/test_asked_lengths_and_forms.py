"""Lengths, numbers and letters that the prompts ask for, and functions that fail without them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from grpodoctor.preflight.answers.answer_variants import response_variants, variant_of
from grpodoctor.preflight.answers.inferred_answers import infer_answers
from grpodoctor.preflight.answers.reference_answers import score_reference_answers
from grpodoctor.preflight.answers.written_forms import prompt_spelling, unfit_forms
from grpodoctor.preflight.checks.data.prompt_lengths import asked_words
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.inputs.prompt_rows import PromptRow
from grpodoctor.preflight.inputs.run_settings import RunSettings
from grpodoctor.preflight.results.check_results import CheckFinding
from grpodoctor.preflight.texts.lost_numbers import lost_numbers
from grpodoctor.trainer.rewards.user_reward import UserReward

Findings = Callable[[str, PreflightContext], list[CheckFinding]]
Rewards = Callable[..., UserReward]


def test_more_words_than_a_response_may_have_tokens_are_named(findings_of: Findings) -> None:
    assert asked_words("Write an essay of at least 400 words.") == 400
    assert asked_words("Write a 1,200-word essay, about 90 words per part.") == 1200
    assert asked_words("Use at least 3 words of the list.") == 0
    rows = tuple(PromptRow(f"line {at}", f"Write at least 400 words on {at}.") for at in range(20))
    context = PreflightContext(
        files=None, rows=rows, settings=RunSettings(), run_config={"max_length": 256}
    )
    (finding,) = findings_of("DAT106", context)
    assert finding.summary == (
        "20 of 20 prompts ask for up to 400 words; responses end at 256 tokens."
    )


def test_numbers_that_were_removed_from_some_prompts_are_found(findings_of: Findings) -> None:
    whole = [f"A wire of {at} ohm carries {at + 2} A for {at} s." for at in range(20)]
    holes = ["A wire of  ohm carries  A for  s."] * 6
    assert lost_numbers([*whole, *holes]) == list(range(20, 26))
    rows = tuple(PromptRow(f"line {at}", text) for at, text in enumerate([*whole, *holes]))
    context = PreflightContext(files=None, rows=rows, settings=RunSettings())
    (finding,) = findings_of("DAT117", context)
    assert finding.summary.startswith("6 of 26 prompts lack numbers")
    lists = [f"Sort these numbers: {' '.join('123456789'[: at % 5 + 2])}." for at in range(20)]
    assert lost_numbers(lists) == []


def test_units_in_the_place_of_numbers_are_named() -> None:
    prompts = ["How far is it? Write only the number, without the unit."] * 20
    ((name, found),) = unfit_forms(prompts, ["m/s", "J"] * 10)
    assert (name, len(found)) == ("a number", 20)
    assert unfit_forms(prompts, ["12.5", "three", r"\pi", "-4 m"] * 5) == []


def test_the_case_counts_where_it_is_the_task() -> None:
    task = "Write these words in capitals: amber cedar"
    case = response_variants("{answer}")["case"]
    assert variant_of(case, "{answer}", "AMBER CEDAR", task) is None
    assert variant_of(case, "{answer}", "amber cedar", "Which words?") == "AMBER CEDAR"
    assert prompt_spelling(task, "AMBER CEDAR") == ""
    assert prompt_spelling("Which of amber cedar?", "AMBER CEDAR") == "amber cedar"


def test_a_sentence_that_the_prompts_quote_is_a_rule_and_no_answer(reward_of: Rewards) -> None:
    endings = ("That is all for now.", "Thank you for reading.")
    rows = [
        PromptRow(f"line {at}", f'Write about {at}. End with "{endings[at // 2 % 2]}"',
                  columns={"ending": endings[at // 2 % 2], "prompt": "p"}, prompt_column="prompt")
        for at in range(24)
    ]  # fmt: skip
    reward = reward_of(
        "def reward(completions, ending, **kwargs):\n"
        "    return [float(c.endswith(e)) for c, e in zip(completions, ending)]\n"
    )
    assert infer_answers(reward, rows, RunSettings()) is None
    unquoted = [replace(row, prompt=f"Write about {row.location}.") for row in rows]
    found = infer_answers(reward, unquoted, RunSettings())
    assert found is not None
    assert found.column == "ending"


def test_a_function_that_fails_without_its_format_is_scored_in_it(
    findings_of: Findings, reward_of: Rewards
) -> None:
    rows = tuple(
        PromptRow(f"line {at}", f"What is {at} + 1? End with 'Total: N'.", answer=str(at + 1),
                  columns={"answer": str(at + 1)})
        for at in range(20)
    )  # fmt: skip
    reward = reward_of(
        "import re\ndef reward(completions, answer, **kwargs):\n"
        "    return [float(re.search(r'Total: (\\d+)', c)[1] == a)\n"
        "            for c, a in zip(completions, answer)]\n"
    )
    answers = score_reference_answers(reward, rows, RunSettings())
    assert answers is not None
    assert answers.answer_format.endswith("Total: {answer}")
    assert set(answers.rewards) == {1.0}
    context = PreflightContext(files=None, rows=rows, settings=RunSettings(), reward=reward)
    (finding,) = findings_of("REW103", context)
    assert "every response that lacks its format" in finding.summary
