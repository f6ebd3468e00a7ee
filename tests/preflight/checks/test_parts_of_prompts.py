"""Parts that a prompt refers to or consists of: images, tools, messages, whole sentences."""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.inputs.prompt_rows import PromptRow
from grpodoctor.preflight.results.check_results import CheckFinding
from tests.preflight.planted.models import BASE, CHATML, CHATML_TEMPLATE

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


def _with_single_blanks(folder: Path) -> Path:
    """A model whose tokens are single characters, and whose texts begin with a blank."""
    characters = dict.fromkeys("▁abcdefghijklmnopqrstuvwxyzQA:?0123456789")
    tokenizer = Tokenizer(models.BPE({each: at for at, each in enumerate(characters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    model = BASE.save(folder)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(model)
    return model


def test_a_blank_at_the_end_counts_only_if_the_next_word_takes_it(
    tmp_path: Path, context_of: Make, findings_of: Findings
) -> None:
    rows = [PromptRow(f"line {at}", f"Q: what is {at}?\nA: ") for at in range(9)]
    joins, keeps = BASE.save(tmp_path / "joins"), _with_single_blanks(tmp_path / "keeps")
    (finding,) = findings_of("DAT122", context_of(joins, rows))
    assert finding.summary.startswith("9 of 9 prompts end with a blank")
    assert findings_of("DAT122", context_of(keeps, rows)) == []


ARABIC, HEBREW = "\u0645\u0627 \u0647\u0648", "\u05de\u05d4"


@pytest.mark.parametrize("mark", ["\u200e", "\u200f", "\u061c", "\u202b", "\u2067"])
@pytest.mark.parametrize(
    ("prompt", "answer", "is_damaged"),
    [
        (f"{ARABIC} 6 * 7", "42", False),
        ("Translate into Hebrew: what", HEBREW, False),
        ("What is 6 * 7?", "42", True),
    ],
)
def test_marks_of_direction_belong_to_texts_from_right_to_left(
    mark: str,
    prompt: str,
    answer: str,
    tmp_path: Path,
    context_of: Make,
    findings_of: Findings,
    *,
    is_damaged: bool,
) -> None:
    rows = [PromptRow(f"line {at}", prompt, answer=f"{mark}{answer}") for at in range(9)]
    found = findings_of("DAT117", context_of(CHATML.save(tmp_path / "model"), rows))
    assert ["invisible" in each.summary for each in found] == [True] * is_damaged
