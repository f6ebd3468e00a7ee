"""Planted faults of tokenizer and data are found, and sound ones have no findings."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from grpodoctor.errors import ModelError
from grpodoctor.preflight.catalogue import all_checks
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.inputs.chat_template import load_tokenizer
from grpodoctor.preflight.inputs.prompt_rows import PromptRow
from grpodoctor.preflight.inputs.run_settings import RunSettings
from grpodoctor.preflight.results.check_results import CheckFinding, SkippedCheck
from tests.probes.models import CONTEXT, variant

Make = Callable[..., PreflightContext]
Findings = Callable[[str, PreflightContext], list[CheckFinding]]

TOKEN_CHECKS = ("DAT101", "DAT102", "DAT104", "DAT105", "DAT106", "DAT107")

APPENDING = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}<eos>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
FORGETTING = (
    "{% for m in messages %}<{{ m.role }}>"
    "{{ m.content if loop.last else m.content.split('</think>')[-1] }}<eos>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
UNLIKE = APPENDING.replace("<assistant>{% endif", "<assistant>777{% endif")
BEGINNING = "<bos>" + APPENDING


@pytest.fixture
def sound(tmp_path: Path, dense_model: Path) -> Path:
    return variant(tmp_path / "sound", dense_model, template=APPENDING)


def test_a_sound_model_has_no_findings(
    sound: Path, context_of: Make, findings_of: Findings
) -> None:
    context = context_of(sound)
    assert {code: findings_of(code, context) for code in TOKEN_CHECKS} == {
        code: [] for code in TOKEN_CHECKS
    }


def test_dropped_thoughts_are_found(
    tmp_path: Path, dense_model: Path, context_of: Make, findings_of: Findings
) -> None:
    model = variant(tmp_path / "model", dense_model, template=FORGETTING)
    (single,) = findings_of("DAT101", context_of(model))
    assert single.severity == "info"
    turns = ({"role": "user", "content": "1+1="}, {"role": "assistant", "content": "2"})
    talk = PromptRow("line 1", "1+1=", (*turns, {"role": "user", "content": "2+2="}), "4")
    (several,) = findings_of("DAT101", context_of(model, [talk]))
    assert several.severity == "warning"
    assert several.details[0].startswith("first difference at token ")


def test_a_generation_prompt_unlike_an_answer_is_found(
    tmp_path: Path, dense_model: Path, context_of: Make, findings_of: Findings
) -> None:
    model = variant(tmp_path / "model", dense_model, template=UNLIKE)
    (finding,) = findings_of("DAT101", context_of(model))
    assert finding.severity == "warning"
    assert any("777" in line for line in finding.details)


def test_a_double_bos_is_found(
    tmp_path: Path, dense_model: Path, context_of: Make, findings_of: Findings
) -> None:
    model = variant(tmp_path / "model", dense_model, begin=True, template=BEGINNING)
    (finding,) = findings_of("DAT105", context_of(model))
    assert "'<bos>'" in finding.summary


def _declare(model: Path, file: str, end: object) -> Path:
    path = model / file
    path.write_text(json.dumps(json.loads(path.read_text()) | {"eos_token_id": end}))
    return model


def test_no_end_token_at_all_is_critical(
    sound: Path, context_of: Make, findings_of: Findings
) -> None:
    for file in ("config.json", "generation_config.json"):
        _declare(sound, file, None)
    settings = sound / "tokenizer_config.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"eos_token": None}))
    (finding,) = findings_of("DAT103", context_of(sound))
    assert finding.severity == "critical"


def test_an_undeclared_end_token_is_critical(
    tmp_path: Path, dense_model: Path, context_of: Make, findings_of: Findings
) -> None:
    template = APPENDING.replace("<eos>", "<user>", 1)  # a turn ends with another token
    model = variant(tmp_path / "model", dense_model, template=template)
    severities = [each.severity for each in findings_of("DAT103", context_of(model))]
    assert "critical" in severities


def test_inconsistent_end_tokens_are_found(
    sound: Path, context_of: Make, findings_of: Findings
) -> None:
    end = load_tokenizer(sound).eos_token_id
    for file in ("config.json", "generation_config.json"):
        _declare(sound, file, end)
    assert findings_of("DAT103", context_of(sound)) == []
    _declare(sound, "generation_config.json", [end, end + 2])
    (finding,) = findings_of("DAT103", context_of(sound))
    assert finding.severity == "info"
    _declare(sound, "generation_config.json", [end, 10**6])
    (finding,) = findings_of("DAT103", context_of(sound))
    assert finding.severity == "critical"


def test_padding_equal_to_the_end_token_is_found(
    sound: Path, context_of: Make, findings_of: Findings
) -> None:
    settings = sound / "tokenizer_config.json"
    told = json.loads(settings.read_text()) | {"pad_token": "<eos>"}
    settings.write_text(json.dumps(told))
    (finding,) = findings_of("DAT104", context_of(sound))
    assert finding.severity == "warning"
    settings.write_text(json.dumps(told | {"pad_token": None}))
    (finding,) = findings_of("DAT104", context_of(sound))
    assert finding.severity == "info"


def test_long_prompts_are_found(dense_model: Path, context_of: Make, findings_of: Findings) -> None:
    rows = [PromptRow("line 1", "1+1=", answer="2"), PromptRow("line 2", "1+" * 300, answer="300")]
    settings = RunSettings(max_tokens=CONTEXT - 100)
    (finding,) = findings_of("DAT106", context_of(dense_model, rows, settings=settings))
    assert finding.figures["share"] == 0.5
    assert [line.partition(":")[0] for line in finding.details] == ["line 2", "context length"]


def test_duplicate_prompts_with_different_answers_are_found(
    dense_model: Path, context_of: Make, findings_of: Findings
) -> None:
    rows = [
        PromptRow("line 1", "1+1=", answer="2"),
        PromptRow("line 2", " 1+1= ", answer="2"),
        PromptRow("line 3", "1+1=", answer="3"),
        PromptRow("line 4", "1+2=", answer="3"),
    ]
    spare, quarrel = findings_of("DAT107", context_of(dense_model, rows))
    assert spare.figures["share"] == 0.5
    assert quarrel.details == ("line 1: 2, line 2: 2, line 3: 3",)


def test_held_out_prompts_in_the_training_data_are_found(
    dense_model: Path, context_of: Make, findings_of: Findings
) -> None:
    rows = [PromptRow("line 1", "1+1=", answer="2"), PromptRow("line 2", "1+2=", answer="3")]
    others = (PromptRow("line 1", "5+5=", answer="10"), PromptRow("line 2", "1+2= ", answer="3"))
    (finding,) = findings_of("DAT107", context_of(dense_model, rows, held_out=others))
    assert finding.severity == "warning"
    assert finding.details == ("held-out line 2 = line 2",)
    assert findings_of("DAT107", context_of(dense_model, rows, held_out=others[:1])) == []


def test_multiple_choice_answers_are_guessable(
    dense_model: Path, context_of: Make, findings_of: Findings
) -> None:
    rows = [
        PromptRow(f"line {index}", f"{index}?", answer="ABCD"[index % 4]) for index in range(40)
    ]
    (finding,) = findings_of("DAT108", context_of(dense_model, rows))
    assert finding.figures["guess"] == pytest.approx(0.25)
    assert finding.figures["letters"] == 1.0
    assert findings_of("DAT108", context_of(dense_model)) == []


def test_dropout_is_found_without_an_engine(
    tmp_path: Path, dense_model: Path, context_of: Make, findings_of: Findings
) -> None:
    model = variant(tmp_path / "m", dense_model, config={"attention_dropout": 0.1})
    (finding,) = findings_of("KLD101", context_of(model))
    assert finding.details == ("attention_dropout: 0.1",)


def test_checks_without_prompts_are_skipped(dense_model: Path, context_of: Make) -> None:
    context = replace(context_of(dense_model), rows=())
    for check in all_checks():
        needs_rows = check.code in ("DAT102", "DAT105", "DAT106", "DAT107", "DAT108")
        assert isinstance(check.examine(context), SkippedCheck) or not needs_rows, check.code


def test_damaged_models_are_refused_in_one_line(tmp_path: Path, sound: Path) -> None:
    with pytest.raises(ModelError, match="model directory does not exist"):
        load_tokenizer(tmp_path / "none")
    (sound / "tokenizer.json").write_text("{")
    with pytest.raises(ModelError, match="does not load"):
        load_tokenizer(sound)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("tokenizer.json", "[]"),
        ("tokenizer.json", '{"added_tokens": [], "model": {"type": "none"}}'),
        ("tokenizer_config.json", "[" * 100_000),
        ("tokenizer_config.json", '{"eos_token": {"a": 1}}'),
        ("config.json", '{"model_type": "qwen2", "vocab_size": "x"}'),
        ("chat_template.jinja", "{% if %}"),
    ],
)
def test_damaged_files_are_one_line(
    file: str, content: str, sound: Path, context_of: Make, findings_of: Findings
) -> None:
    (sound / file).write_text(content)
    with pytest.raises(ModelError) as caught:
        findings_of("DAT101", context_of(sound))
    assert "\n" not in str(caught.value)


def test_a_failing_template_is_refused_in_one_line(
    tmp_path: Path, dense_model: Path, context_of: Make, findings_of: Findings
) -> None:
    model = variant(tmp_path / "model", dense_model, template="{{ raise_exception('no') }}")
    with pytest.raises(ModelError, match="chat template fails"):
        findings_of("DAT101", context_of(model))
