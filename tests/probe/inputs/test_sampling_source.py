import json
from pathlib import Path

import pytest

from grpodoctor.errors import ConfigError
from grpodoctor.probe.inputs.engine_spec import EngineSpec
from grpodoctor.probe.inputs.sampling_source import default_notes, sampling_from


def sampler(folder: Path) -> EngineSpec:
    return EngineSpec.of("transformers", str(folder), {})


def generation_config(folder: Path, **settings: object) -> None:
    (folder / "generation_config.json").write_text(json.dumps(settings))


def test_the_models_generation_config(tmp_path: Path) -> None:
    generation_config(
        tmp_path, do_sample=True, temperature=0.6, top_k=20, top_p=0.95, repetition_penalty=1.05
    )
    found = sampling_from("generation_config", [sampler(tmp_path)])
    assert found.settings == {
        "temperature": 0.6, "top_k": 20, "top_p": 0.95, "repetition_penalty": 1.05
    }  # fmt: skip
    assert found.untried == ()
    assert any("repetition_penalty 1.05" in note for note in found.notes)
    (note,) = default_notes([sampler(tmp_path)])
    assert "temperature 0.6" in note
    assert "repetition_penalty 1.05" in note
    assert default_notes([sampler(tmp_path)], "generation_config") == (), "its settings are used"
    assert default_notes([sampler(tmp_path)], "run") == (note,)


@pytest.mark.parametrize(
    ("content", "settings", "untried"),
    [
        ({"repetition_penalty": 1.2}, {"repetition_penalty": 1.2}, ()),
        ({"min_new_tokens": 8}, {"min_tokens": 8}, ()),
        ({"logit_bias": {"5": -2}}, {"logit_bias": {5: -2.0}}, ()),
        ({"suppress_tokens": [3, 4]}, {"logit_bias": {3: -100.0, 4: -100.0}}, ()),
        ({"bad_words_ids": [[7]]}, {"logit_bias": {7: -100.0}}, ()),
        ({"bad_words_ids": [[7, 8]]}, {}, ("bad_words_ids [[7, 8]]",)),
        ({"no_repeat_ngram_size": 3}, {}, ("no_repeat_ngram_size 3",)),
        ({"typical_p": 0.9, "top_p": 0.8}, {"top_p": 0.8}, ("typical_p 0.9",)),
        ({"no_repeat_ngram_size": 0, "typical_p": 1.0, "top_p": 1}, {"top_p": 1.0}, ()),
        ({"length_penalty": 2.0, "top_p": 1}, {"top_p": 1.0}, ()),
        (
            {"temperature": 1, "generation_kwargs": {"presence_penalty": 0.5, "temperature": 0.9}},
            {"temperature": 0.9, "presence_penalty": 0.5},
            (),
        ),
    ],
)
def test_penalties_are_sent_and_the_rest_is_named(
    tmp_path: Path, content: dict[str, object], settings: dict[str, object], untried: tuple[str]
) -> None:
    path = tmp_path / "sampling.json"
    path.write_text(json.dumps(content))
    found = sampling_from(str(path), [])
    assert (found.settings, found.untried) == (settings, untried)


def test_a_setting_that_is_an_option_of_the_engine_is_tried(tmp_path: Path) -> None:
    path = tmp_path / "sampling.json"
    path.write_text('{"top_p": 1, "structured_outputs": {"regex": "[0-9]+"}}')
    option = EngineSpec.of("vllm", "m", {"structured_outputs": '{"regex": "[0-9]+"}'})
    assert sampling_from(str(path), [option]).untried == ()
    assert len(sampling_from(str(path), [sampler(tmp_path)]).untried) == 1


def test_neutral_defaults_are_not_reported(tmp_path: Path) -> None:
    generation_config(tmp_path, do_sample=True, temperature=1.0, top_p=1, eos_token_id=2)
    assert default_notes([sampler(tmp_path)]) == ()
    (tmp_path / "generation_config.json").write_text("{")
    assert default_notes([sampler(tmp_path)]) == ()


def test_the_config_file_of_a_framework(tmp_path: Path) -> None:
    path = tmp_path / "verl.yaml"
    path.write_text(
        "actor_rollout_ref:\n  rollout:\n    temperature: 0.8\n    top_p: 0.9\n    top_k: -1\n"
        "algorithm:\n  adv_estimator: grpo\n"
    )
    found = sampling_from(str(path), [])
    assert found.settings == {"temperature": 0.8, "top_p": 0.9, "top_k": 0}


def test_a_run_directory(tmp_path: Path) -> None:
    manifest = {"schema_version": 1, "framework": "grpodoctor", "knobs": {"temperature": 0.7}}
    recording = tmp_path / "grpodoctor"
    recording.mkdir()
    (recording / "run.json").write_text(json.dumps(manifest))
    (recording / "steps.jsonl").write_text("")
    assert sampling_from(str(recording), []).settings["temperature"] == 0.7
    trainer = sampling_from(str(tmp_path), [])
    assert trainer.settings["temperature"] == 0.7, "the output folder of TRL, as --run takes it"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{}", "there is no sampling setting"),
        ('{"temperature": "warm"}', "temperature is 'warm', not a number"),
        ('{"temperature": true}', "temperature is 'True', not a number"),
        ('{"temperature": 0}', "greedy sampling"),
        ('{"do_sample": false, "temperature": 0.6}', "greedy sampling"),
        ("[1]", "contains no settings"),
        ("{", "cannot be read"),
    ],
)
def test_sources_without_a_usable_setting(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "sampling.json"
    path.write_text(content)
    with pytest.raises(ConfigError, match=message):
        sampling_from(str(path), [])


def test_missing_sources(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such run or file"):
        sampling_from(str(tmp_path / "nothing"), [])
    with pytest.raises(ConfigError, match="the sampler's model has no"):
        sampling_from("generation_config", [sampler(tmp_path)])
