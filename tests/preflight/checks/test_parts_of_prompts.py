"""Parts that a prompt refers to or consists of: images, tools, messages, whole sentences."""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.inputs.prompt_rows import PromptRow
from grpodoctor.preflight.results.check_results import CheckFinding
from tests.preflight.planted.models import CHATML, CHATML_TEMPLATE

Make = Callable[..., PreflightContext]
Findings = Callable[[str, PreflightContext], list[CheckFinding]]

READS_IMAGES = replace(CHATML, config={"vision_config": {"depth": 2}})


def _images(**columns: object) -> list[PromptRow]:
    messages = ({"role": "user", "content": "<image>\nHow many cats are there?"},)
    return [
        PromptRow(f"line {at}", messages[0]["content"], messages, columns=columns)
        for at in range(9)
    ]


def test_images_need_a_column_and_a_model_that_reads_them(
    tmp_path: Path, context_of: Make, findings_of: Findings
) -> None:
    reads, text_only = READS_IMAGES.save(tmp_path / "reads"), CHATML.save(tmp_path / "text")
    assert findings_of("DAT118", context_of(reads, _images(images=["cat.png"]))) == []
    (missing,) = findings_of("DAT118", context_of(reads, _images(images=[])))
    assert missing.severity == "critical"
    assert "their row has none" in missing.summary
    (unread,) = findings_of("DAT118", context_of(text_only, _images(images=["cat.png"])))
    assert "reads only text" in unread.summary
    html = [PromptRow("line 1", "Which attribute does <img src=x> need?")]
    assert findings_of("DAT118", context_of(text_only, html)) == []


WRITES_TOOLS = "{% if tools %}{{ tools | tojson }}{% endif %}" + CHATML_TEMPLATE


@pytest.mark.parametrize(("template", "dropped"), [(WRITES_TOOLS, False), (CHATML_TEMPLATE, True)])
def test_a_template_must_write_the_tools(
    template: str, tmp_path: Path, context_of: Make, findings_of: Findings, *, dropped: bool
) -> None:
    tool = {"type": "function", "function": {"name": "forecast", "parameters": {}}}
    messages = ({"role": "user", "content": "Will it rain?"},)
    rows = [PromptRow("line 1", "Will it rain?", messages, columns={"tools": [tool]})]
    model = replace(CHATML, template=template).save(tmp_path / "model")
    found = findings_of("DAT119", context_of(model, rows))
    assert [each.severity for each in found] == ["warning"] * dropped


def test_escaped_messages_are_not_dropped(
    tmp_path: Path, context_of: Make, findings_of: Findings
) -> None:
    content = '  Reply with JSON:\n{"name": "x"}\n'
    template = CHATML_TEMPLATE.replace("{{ m.content }}", "{{ m.content | trim }}")
    messages = ({"role": "system", "content": content}, {"role": "user", "content": "Go."})
    model = replace(CHATML, template=template).save(tmp_path / "model")
    context = context_of(model, [PromptRow("line 1", "Go.", messages)])
    assert findings_of("DAT119", context) == []


def test_one_ending_without_a_full_stop_is_not_a_cut(
    tmp_path: Path, context_of: Make, findings_of: Findings
) -> None:
    """All prompts of a generator have the same number of words and the same last words."""
    text = "A shop has {} shelves and some baskets. It puts {} apples on each of them. Give the sum"
    rows = [PromptRow(f"line {at}", text.format(at + 10, 99 - at)) for at in range(60)]
    data = [
        PromptRow(f"line {at}", f"Sort the numbers of the list below. It is short.\n{at} {99 - at}")
        for at in range(10, 70)
    ]
    model = CHATML.save(tmp_path / "model")
    assert findings_of("DAT115", context_of(model, rows)) == []
    assert findings_of("DAT115", context_of(model, data)) == []


def test_code_to_complete_is_not_cut(
    tmp_path: Path, context_of: Make, findings_of: Findings
) -> None:
    """Generated functions have equal numbers of words, and begin with a small letter."""
    head = "import math\n\n\ndef "
    text = "{1}_{0}(side: float) -> float:\n    # The area of {0} squares. Each has one side.\n"
    names = ["hull", "cover", "span"]
    rows = [PromptRow(f"line {at}", head + text.format(at, names[at % 3])) for at in range(11, 80)]
    model = CHATML.save(tmp_path / "model")
    assert findings_of("DAT115", context_of(model, rows)) == []


def test_texts_of_one_length_with_different_sentences_are_cut(
    tmp_path: Path, context_of: Make, findings_of: Findings
) -> None:
    rng = random.Random(9)
    words = ["tower", "river", "stone", "bread", "night", "winter", "candle", "garden"]
    texts = [
        " ".join(rng.choice(words) + rng.choice([".", "", "", "", "", ""]) for _ in range(60))[:200]
        for _ in range(60)
    ]
    rows = [PromptRow(f"line {at}", text) for at, text in enumerate(texts)]
    model = CHATML.save(tmp_path / "model")
    (finding,) = findings_of("DAT115", context_of(model, rows))
    assert "60 of 60 prompts end within a sentence" in finding.summary


def test_a_mildly_unequal_key_is_a_note(
    tmp_path: Path, context_of: Make, findings_of: Findings
) -> None:
    def severity(letters: str) -> str:
        rows = [
            PromptRow(f"line {at}", f"Question {at}? A. one B. two C. three D. four", answer=letter)
            for at, letter in enumerate(letters * 20)
        ]
        (finding,) = findings_of("DAT108", context_of(model, rows))
        return finding.severity

    model = CHATML.save(tmp_path / "model")
    assert severity("ABBBBCCDBA") == "info"
    assert severity("BBBBABBBCD") == "warning"
