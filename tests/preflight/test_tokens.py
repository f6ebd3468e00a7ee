"""Each fault of a tokenizer or of the data is planted, and is not told where it is absent."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from grpodoctor.errors import ModelError
from grpodoctor.preflight.base import Remark, Skipped
from grpodoctor.preflight.catalogue import all_checks
from grpodoctor.preflight.context import Patient, Plan, Row, load_tokenizer
from tests.probes.models import CONTEXT, variant

Make = Callable[..., Patient]
Remarks = Callable[[str, Patient], list[Remark]]

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


def test_a_sound_model_has_nothing_to_be_told(
    sound: Path, patient_of: Make, remarks_of: Remarks
) -> None:
    patient = patient_of(sound)
    assert {code: remarks_of(code, patient) for code in TOKEN_CHECKS} == {
        code: [] for code in TOKEN_CHECKS
    }


def test_thoughts_that_are_dropped_are_told(
    tmp_path: Path, dense_model: Path, patient_of: Make, remarks_of: Remarks
) -> None:
    model = variant(tmp_path / "model", dense_model, template=FORGETTING)
    (single,) = remarks_of("DAT101", patient_of(model))
    assert single.severity == "info"
    turns = ({"role": "user", "content": "1+1="}, {"role": "assistant", "content": "2"})
    talk = Row("line 1", "1+1=", (*turns, {"role": "user", "content": "2+2="}), "4")
    (several,) = remarks_of("DAT101", patient_of(model, [talk]))
    assert several.severity == "warning"
    assert several.details[0].startswith("they part at token ")


def test_a_generation_prompt_unlike_an_answer_is_told(
    tmp_path: Path, dense_model: Path, patient_of: Make, remarks_of: Remarks
) -> None:
    model = variant(tmp_path / "model", dense_model, template=UNLIKE)
    (remark,) = remarks_of("DAT101", patient_of(model))
    assert remark.severity == "warning"
    assert any("777" in line for line in remark.details)


def test_a_doubled_begin_is_told(
    tmp_path: Path, dense_model: Path, patient_of: Make, remarks_of: Remarks
) -> None:
    model = variant(tmp_path / "model", dense_model, begin=True, template=BEGINNING)
    (remark,) = remarks_of("DAT105", patient_of(model))
    assert "'<bos>'" in remark.summary


def _declare(model: Path, file: str, end: object) -> Path:
    path = model / file
    path.write_text(json.dumps(json.loads(path.read_text()) | {"eos_token_id": end}))
    return model


def test_no_end_token_at_all_is_critical(
    sound: Path, patient_of: Make, remarks_of: Remarks
) -> None:
    for file in ("config.json", "generation_config.json"):
        _declare(sound, file, None)
    settings = sound / "tokenizer_config.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"eos_token": None}))
    (remark,) = remarks_of("DAT103", patient_of(sound))
    assert remark.severity == "critical"


def test_an_end_that_no_file_declares_is_critical(
    tmp_path: Path, dense_model: Path, patient_of: Make, remarks_of: Remarks
) -> None:
    template = APPENDING.replace("<eos>", "<user>", 1)  # a turn ends with another token
    model = variant(tmp_path / "model", dense_model, template=template)
    severities = [each.severity for each in remarks_of("DAT103", patient_of(model))]
    assert "critical" in severities


def test_files_that_disagree_on_the_end_are_told(
    sound: Path, patient_of: Make, remarks_of: Remarks
) -> None:
    end = load_tokenizer(sound).eos_token_id
    for file in ("config.json", "generation_config.json"):
        _declare(sound, file, end)
    assert remarks_of("DAT103", patient_of(sound)) == []
    _declare(sound, "generation_config.json", [end, end + 2])
    (remark,) = remarks_of("DAT103", patient_of(sound))
    assert remark.severity == "info"
    _declare(sound, "generation_config.json", [end, 10**6])
    (remark,) = remarks_of("DAT103", patient_of(sound))
    assert remark.severity == "critical"


def test_padding_that_is_the_end_is_told(
    sound: Path, patient_of: Make, remarks_of: Remarks
) -> None:
    settings = sound / "tokenizer_config.json"
    told = json.loads(settings.read_text()) | {"pad_token": "<eos>"}
    settings.write_text(json.dumps(told))
    (remark,) = remarks_of("DAT104", patient_of(sound))
    assert remark.severity == "warning"
    settings.write_text(json.dumps(told | {"pad_token": None}))
    (remark,) = remarks_of("DAT104", patient_of(sound))
    assert remark.severity == "info"


def test_long_prompts_are_told(dense_model: Path, patient_of: Make, remarks_of: Remarks) -> None:
    rows = [Row("line 1", "1+1=", answer="2"), Row("line 2", "1+" * 300, answer="300")]
    plan = Plan(max_tokens=CONTEXT - 100)
    (remark,) = remarks_of("DAT106", patient_of(dense_model, rows, plan=plan))
    assert remark.figures["share"] == 0.5
    assert [line.partition(":")[0] for line in remark.details] == ["line 2"]


def test_twins_and_their_quarrels_are_told(
    dense_model: Path, patient_of: Make, remarks_of: Remarks
) -> None:
    rows = [
        Row("line 1", "1+1=", answer="2"),
        Row("line 2", " 1+1= ", answer="2"),
        Row("line 3", "1+1=", answer="3"),
        Row("line 4", "1+2=", answer="3"),
    ]
    spare, quarrel = remarks_of("DAT107", patient_of(dense_model, rows))
    assert spare.figures["share"] == 0.5
    assert quarrel.details == ("line 1: 2, line 2: 2, line 3: 3",)


def test_held_out_prompts_among_those_of_the_training_are_told(
    dense_model: Path, patient_of: Make, remarks_of: Remarks
) -> None:
    rows = [Row("line 1", "1+1=", answer="2"), Row("line 2", "1+2=", answer="3")]
    others = (Row("line 1", "5+5=", answer="10"), Row("line 2", "1+2= ", answer="3"))
    (remark,) = remarks_of("DAT107", patient_of(dense_model, rows, held_out=others))
    assert remark.severity == "warning"
    assert remark.details == ("line 2 = line 2",)
    assert remarks_of("DAT107", patient_of(dense_model, rows, held_out=others[:1])) == []


def test_answers_of_a_choice_are_guessable(
    dense_model: Path, patient_of: Make, remarks_of: Remarks
) -> None:
    rows = [Row(f"line {index}", f"{index}?", answer="ABCD"[index % 4]) for index in range(40)]
    (remark,) = remarks_of("DAT108", patient_of(dense_model, rows))
    assert remark.figures["guess"] == pytest.approx(0.25)
    assert remark.figures["letters"] == 1.0
    assert remarks_of("DAT108", patient_of(dense_model)) == []


def test_dropout_is_told_without_an_engine(
    tmp_path: Path, dense_model: Path, patient_of: Make, remarks_of: Remarks
) -> None:
    model = variant(tmp_path / "m", dense_model, config={"attention_dropout": 0.1})
    (remark,) = remarks_of("KLD101", patient_of(model))
    assert remark.details == ("attention_dropout: 0.1",)


def test_what_was_not_looked_at_has_not_passed(dense_model: Path, patient_of: Make) -> None:
    patient = replace(patient_of(dense_model), rows=())
    for check in all_checks():
        needs_rows = check.code in ("DAT102", "DAT105", "DAT106", "DAT107", "DAT108")
        assert isinstance(check.examine(patient), Skipped) or not needs_rows, check.code


def test_damaged_models_are_refused_in_a_line(tmp_path: Path, sound: Path) -> None:
    with pytest.raises(ModelError, match="no such model directory"):
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
def test_whatever_is_damaged_is_told_in_a_line(
    file: str, content: str, sound: Path, patient_of: Make, remarks_of: Remarks
) -> None:
    (sound / file).write_text(content)
    with pytest.raises(ModelError) as caught:
        remarks_of("DAT101", patient_of(sound))
    assert "\n" not in str(caught.value)


def test_a_template_that_fails_is_refused_in_a_line(
    tmp_path: Path, dense_model: Path, patient_of: Make, remarks_of: Remarks
) -> None:
    model = variant(tmp_path / "model", dense_model, template="{{ raise_exception('no') }}")
    with pytest.raises(ModelError, match="chat template fails"):
        remarks_of("DAT101", patient_of(model))
