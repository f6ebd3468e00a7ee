"""Damaged answers, respelled prompts, marks of other templates, options and file names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.inputs.prompt_rows import PromptRow
from grpodoctor.preflight.inputs.run_settings import RunSettings
from grpodoctor.preflight.results.check_results import CheckFinding
from tests.preflight.planted.models import BASE, CHATML, LLAMA, Model

Make = Callable[..., PreflightContext]
Findings = Callable[[str, PreflightContext], list[CheckFinding]]


def row(at: int, prompt: str, answer: str, **columns: object) -> PromptRow:
    messages = ({"role": "user", "content": prompt},)
    return PromptRow(
        f"line {at}", prompt, messages, answer, {"answer": answer, **columns}, number=at
    )


def context(rows: list[PromptRow]) -> PreflightContext:
    """A context without a model."""
    return PreflightContext(files=None, rows=tuple(rows), settings=RunSettings())


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ("Q.E.D.", "are notes"),
        ("04-Jun", "are dates or errors of a spreadsheet"),
        ("['42']", "are lists of one text"),
        ("42", ""),
    ],
)
def test_answers_that_cannot_be_compared(answer: str, found: str, findings_of: Findings) -> None:
    rows = [row(at, f"Solve case {at}.", answer if at % 4 == 0 else str(at)) for at in range(40)]
    findings = findings_of("DAT112", context(rows))
    assert [each.severity for each in findings] == ["warning"] * bool(found)
    assert all(f"10 of 40 answers {found}" in each.summary for each in findings)


def test_cut_answers_are_reported_with_their_length(findings_of: Findings) -> None:
    names = ["The Lighthouse Keeper", "A Winter in Bergen", "The Glass Orchard",
             "Notes on old Clay", "Letters to a Cartographer", "Seven Small Harbours",
             "The Copper Beech"]  # fmt: skip
    rows = [row(at, f"What is book {at}?", names[at % 7][:14]) for at in range(40)]
    (finding,) = findings_of("DAT112", context(rows))
    assert "answers end at 14 characters" in finding.summary
    assert findings_of("DAT112", context([row(at, "?", names[at % 7]) for at in range(40)])) == []


def test_misread_answers(findings_of: Findings) -> None:
    town = "M\u00fcnchen"
    misread = town.encode().decode("latin-1")
    rows = [row(at, f"Town {at}?", misread if at % 2 else town) for at in range(40)]
    (finding,) = findings_of("DAT117", context(rows))
    assert "20 of 40 answers have wrongly decoded characters" in finding.summary


def test_other_spellings_of_a_prompt(findings_of: Findings) -> None:
    rows = []
    for at in range(30):
        text = (
            f"A van of {at + 40} kg carries {at * 7 + 3} boxes of {at + 11} kg. What is the weight?"
        )
        rows += [row(2 * at, text, str(at)), row(2 * at + 1, text.replace("kg", "**KG**"), str(at))]
    (finding,) = findings_of("DAT107", context(rows))
    assert "30 of 60 prompts repeat an earlier one in another spelling" in finding.summary
    assert findings_of("DAT107", context(rows[::2])) == []


@pytest.mark.parametrize(
    ("model", "text", "found"),
    [
        (CHATML, "[INST] What is {}? [/INST]", True),
        (CHATML, "<|start_header_id|>user<|end_header_id|> {}", True),
        (LLAMA, "<|im_start|>user {}<|im_end|>", True),
        (CHATML, "What is {}?", False),
    ],
)
def test_marks_of_another_family(
    model: Model, text: str, found: bool, tmp_path: Path, context_of: Make, findings_of: Findings
) -> None:
    rows = [row(at, text.format(at), str(at)) for at in range(20)]
    findings = findings_of("DAT105", context_of(model.save(tmp_path / "model"), rows))
    reported = [each for each in findings if "another model" in each.summary]
    assert [each.severity for each in reported] == ["warning"] * found


_COLOURS = ("red", "blue", "green", "white")


@pytest.mark.parametrize("mark", ["({})", "{}.", "{})"])
@pytest.mark.parametrize(("place", "found"), [(1, True), (None, False)])
def test_an_option_that_is_always_right(
    mark: str, place: int | None, found: bool, findings_of: Findings
) -> None:
    rows = []
    for at in range(60):
        options = [f"{_COLOURS[(at * 7 + n) % 4]} number {at % 9}{n}" for n in range(4)]
        lines = [f"{mark.format(n + 1)} {text}" for n, text in enumerate(options)]
        right = options[at * 13 % 11 % 4 if place is None else place]
        rows.append(row(at, "\n".join([f"Which flag has ship {at}?", *lines]), right))
    findings = findings_of("DAT123", context(rows))
    assert [each.severity for each in findings] == ["warning"] * found
    assert all("the second option" in each.summary for each in findings)


def test_the_advice_for_classes_is_not_that_for_letters(findings_of: Findings) -> None:
    classes = ["neutral"] * 36 + ["positive", "negative"] * 2
    rows = [row(at, f"Review {at}", label) for at, label in enumerate(classes)]
    (finding,) = findings_of("DAT108", context(rows))
    assert finding.severity == "warning"
    assert "equally frequent" in finding.advice[0]


def test_files_that_are_named_after_their_answer(findings_of: Findings) -> None:
    animals = ["badger", "otter", "lynx", "tapir"]
    leaking = [row(at, f"Picture {animals[at % 4]}_{at}.jpg: which?", animals[at % 4])
               for at in range(40)]  # fmt: skip
    (finding,) = findings_of("DAT111", context(leaking))
    assert "40 of 40 prompts contain their answer" in finding.summary
    unrelated = [row(at, f"Picture otter_{at}.jpg: which?", animals[at % 4]) for at in range(40)]
    assert findings_of("DAT111", context(unrelated)) == []


@pytest.mark.parametrize(
    ("said", "framework", "severities"),
    [
        ("Let me add that up.", "", ["warning"]),
        ("Let me add that up.", "trl", ["info"]),  # the model continues it
        ("Let me add that up.\n", "", []),
        ("Let me add that up: <think>", "", []),
    ],
)
def test_a_finished_message_of_the_assistant_at_the_end(
    said: str, framework: str, severities: list[str], findings_of: Findings
) -> None:
    rows = [
        replace(one, messages=({"role": "user", "content": one.prompt},
                               {"role": "assistant", "content": said}))
        for one in (row(at, f"Add {at} and {at + 1}.", str(2 * at + 1)) for at in range(40))
    ]  # fmt: skip
    findings = findings_of("DAT111", replace(context(rows), framework=framework))
    assert [each.severity for each in findings] == severities


def test_tool_calls_must_fit_the_schema(findings_of: Findings) -> None:
    tools = [{"name": "forecast", "parameters": {"properties": {"city": {"type": "string"}}}}]
    for argument, severities in (("city", []), ("town", ["critical"])):
        call = f'{{"name": "forecast", "arguments": {{"{argument}": "Bari"}}}}'
        rows = [row(at, f"Trip {at}", call, tools=tools) for at in range(9)]
        assert [each.severity for each in findings_of("DAT124", context(rows))] == severities


def test_fewer_prompts_than_a_batch(findings_of: Findings) -> None:
    rows = tuple(row(at, f"Case {at}", str(at)) for at in range(40))
    for batch, severities in ((41, ["critical"]), (40, [])):
        given = PreflightContext(
            files=None, rows=rows, settings=RunSettings(), run_config={"prompts_per_batch": batch}
        )
        assert [each.severity for each in findings_of("DAT125", given)] == severities


def test_held_out_problems_with_other_names(findings_of: Findings) -> None:
    text = (
        "{} buys {} pears for {} euros and sells them for {} euros at the fair. What is the gain?"
    )
    figures = [(at + 3, at + 20, at * 3 + 40) for at in range(20)]
    rows = [row(at, text.format("Ann", *each), str(at)) for at, each in enumerate(figures)]
    held_out = [row(at, text.format("Bob Lee", *each), str(at)) for at, each in enumerate(figures)]
    others = [row(at, text.format("Bob Lee", a + 1, b, c), str(at))
              for at, (a, b, c) in enumerate(figures)]  # fmt: skip
    for tested, found in ((held_out, 20), (others, 0)):
        given = PreflightContext(
            files=None, rows=tuple(rows), held_out=tuple(tested), settings=RunSettings()
        )
        findings = findings_of("DAT107", given)
        assert [each.figures["leaked"] for each in findings] == [1.0] * bool(found)


def test_a_template_that_refuses_a_role(
    tmp_path: Path, context_of: Make, findings_of: Findings
) -> None:
    refusing = str(CHATML.template) + (
        "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    )
    model = replace(CHATML, template=refusing).save(tmp_path / "model")
    messages = ({"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi."})
    rows = [PromptRow(f"line {at}", "Hi.", messages) for at in range(4)]
    (finding,) = findings_of("DAT119", context_of(model, rows))
    assert finding.severity == "critical"
    assert "refuses 4 of 4 prompts (system, user)" in finding.summary
    assert findings_of("DAT119", context_of(model, [PromptRow("1", "Hi.", messages[1:])])) == []


def test_conversations_need_a_template(
    tmp_path: Path, context_of: Make, findings_of: Findings
) -> None:
    rows = [row(at, f"Case {at}", str(at)) for at in range(4)]
    (finding,) = findings_of("DAT119", context_of(BASE.save(tmp_path / "model"), rows))
    assert finding.severity == "critical"
    assert "no chat template" in finding.summary


@pytest.mark.parametrize("columns", [{"split": "test"}, {"extra_info": {"split": "validation"}}])
def test_rows_of_a_held_out_split(columns: dict[str, object], findings_of: Findings) -> None:
    rows = [row(at, f"Case {at}", str(at), **(columns if at % 4 == 0 else {"split": "train"}))
            for at in range(40)]  # fmt: skip
    (finding,) = findings_of("DAT107", context(rows))
    assert "10 of 40 rows belong to a held-out split" in finding.summary


@pytest.mark.parametrize(
    ("ending", "every", "is_named"),
    [
        ("\n\nAssistant:", 10, True),
        ("\nAI: <think>", 1, True),
        ("\n\nAssistant:", 20, False),
        (" Who was the assistant: ", 1, False),
    ],
)
def test_an_opened_turn_of_the_assistant_is_named(
    ending: str, every: int, is_named: bool, tmp_path: Path, context_of: Make,
    findings_of: Findings,
) -> None:  # fmt: skip
    texts = [f"Question {at}?{ending if at % every == 0 else ''}" for at in range(40)]
    rows = [
        PromptRow(f"line {at}", text, messages=({"role": "user", "content": text},))
        for at, text in enumerate(texts)
    ]
    findings = findings_of("DAT105", context_of(CHATML.save(tmp_path / "model"), rows))
    named = [each.summary for each in findings if "the assistant's opening" in each.summary]
    assert len(named) == is_named
    assert all(repr(ending.strip()) in summary for summary in named)


@pytest.mark.parametrize(("every", "alarms"), [(5, 1), (1, 0), (2000, 0)])
def test_dialogs_that_lost_their_first_message(
    every: int, alarms: int, findings_of: Findings
) -> None:
    system, user, assistant = (
        {"role": role, "content": role} for role in ("system", "user", "assistant")
    )
    whole = (system, user, assistant, user)
    rows = [
        replace(
            row(at, "?", str(at)), messages=(whole[0], *whole[2:]) if at % every == 0 else whole
        )
        for at in range(1, 101)
    ]
    found = findings_of("DAT121", context(rows))
    assert [each.severity for each in found] == ["warning"] * alarms
    assert all(
        "20 of 100 conversations begin with a message of the assistant" in f.summary for f in found
    )


@pytest.mark.parametrize(
    ("kept", "words"),
    [
        ("first", "another number of the solution"),
        ("last", ""),
        ("other", "do not occur in the solution"),
    ],
)
def test_answers_that_are_intermediate_results(
    kept: str, words: str, findings_of: Findings
) -> None:
    rows = []
    for at in range(40):
        first, last = at + 60, 3 * (at + 60)
        answer = {"first": first, "last": last, "other": 7 * at + 1000}[kept]
        work = f"There are {at} + 60 = {first} boxes.\nThey hold 3 * {first} = {last}.\n#### {last}"
        rows.append(row(at, f"How many pears are in shop {at}?", str(answer), solution=work))
    found = findings_of("DAT113", context(rows))
    assert [each.severity for each in found] == ["warning"] * bool(words)
    assert all(words in each.summary for each in found)
