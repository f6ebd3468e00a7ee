"""Every preset in every framework: what is printed agrees with itself and with the rules."""

from __future__ import annotations

import re

import pytest

from grpodoctor.frameworks.framework import Framework
from grpodoctor.frameworks.registry import configurable_framework_named, configurable_frameworks
from grpodoctor.frameworks.settings import framework_settings
from grpodoctor.rules.catalogue import rule_of
from grpodoctor.rules.lint import lint
from grpodoctor.trainer.config.preset_translation import TranslatedPreset, translate
from grpodoctor.trainer.config.presets import preset_names, preset_of
from grpodoctor.vocabulary.knobs import KNOBS, Setting

FRAMEWORKS = [framework.name for framework in configurable_frameworks()]

BY_DESIGN = {("two_grpo", "CFG013"), ("reinforce", "CFG015"), ("gspo", "CFG008")}
"""Rules that state what the preset is about, groups of two or no baseline, or what the printed note
states: AReaL's GSPO weights responses by their length."""

READ_OTHERWISE = {
    ("roll", "prorl_v2", "correction"): "ROLL lists the filters, and lists are not read",
    ("trl", "vespo", "correction"): "TRL's VESPO takes the ratio to the sampler from it",
    ("roll", "rloo", "kl_coefficient"): "the knob is the penalty in the loss",
    ("skyrl", "rloo", "kl_coefficient"): "the knob is the penalty in the loss",
}


EVERYWHERE = [
    pytest.param(
        preset,
        framework,
        id=f"{preset}-{framework}",
        marks=pytest.mark.slow if (row + column) % 3 else (),
    )
    for row, framework in enumerate(FRAMEWORKS)
    for column, preset in enumerate(preset_names())
]
everywhere = pytest.mark.parametrize(("preset", "framework"), EVERYWHERE)


def translated(preset: str, framework: str) -> TranslatedPreset:
    return translate(preset_of(preset), configurable_framework_named(framework))


def parsed(text: str) -> Setting | None:
    if text.startswith("<"):
        return 64
    text = text.strip('"')
    words: dict[str, Setting | None] = {"": True, "true": True, "false": False, "null": None}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def config_of(framework: Framework, preset: TranslatedPreset) -> dict[str, Setting]:
    """The printed settings as a run's config."""

    def key(flag: str) -> str:
        bare = flag.lstrip("+").removeprefix("--")
        return bare.replace("-", "_") if framework.knobs.syntax.dashes else bare

    config = {key(line.key): parsed(line.value) for line in preset.settings}
    omitted = [re.fullmatch(r"omit (--\S+)", note) for note in preset.by_itself]
    config.update({key(match[1]): False for match in omitted if match})
    return {name: value for name, value in config.items() if value is not None}


@everywhere
def test_the_rules_find_no_fault_with_what_is_printed(preset: str, framework: str) -> None:
    known = configurable_framework_named(framework)
    result = translated(preset, framework)
    config = config_of(known, result)
    lacking = {line.partition("=")[0].partition(":")[0] for line in result.lacking}
    for finding in lint(framework, config, known.knobs.read(config)).findings:
        needs = {name.replace("_", " ") for name in rule_of(finding.code).needs}
        is_stated = not needs.isdisjoint(lacking)
        assert is_stated or (preset, finding.code) in BY_DESIGN, finding.summary


@everywhere
def test_what_is_printed_is_read_as_the_preset(preset: str, framework: str) -> None:
    known, ours = (
        configurable_framework_named(framework),
        configurable_framework_named("grpodoctor"),
    )
    result = translated(preset, framework)
    read = known.knobs.read(config_of(known, result))
    wanted = ours.knobs.read(config_of(ours, translated(preset, "grpodoctor")))
    keys = {line.key for line in result.settings}
    for knob in wanted.keys() & read.keys():
        written = {line.key for line in framework_settings({knob: wanted[knob]}, framework)} & keys
        if written and (framework, preset, knob) not in READ_OTHERWISE:
            assert read[knob] == wanted[knob], knob


@everywhere
def test_no_line_undoes_another(preset: str, framework: str) -> None:
    result = translated(preset, framework)
    printed = {line.key.lstrip("+-"): line.value for line in result.settings}
    assert len(printed) == len(result.settings)
    texts = [note.partition(":")[2] or note for note in (*result.lacking, *result.by_itself)]
    for text in texts:
        advised = re.findall(r"(?:use|set) (?:--)?([\w.-]+?)[= ](\"?[\w.-]+\"?)", text)
        for key, value in advised:
            assert printed.get(key, value) == value, text
        for key in re.findall(r"(?:see|omit) (?:--)?([\w.-]+)", text):
            assert key not in printed, text


@everywhere
def test_what_is_printed_is_not_listed_as_missing(preset: str, framework: str) -> None:
    result = translated(preset, framework)
    values = [line.value.strip('"') for line in result.settings]
    for text in (*result.lacking, *result.untranslated):
        assert "remedy's page" not in text
    for text in result.untranslated:
        value = text.rpartition(": ")[2]
        is_telling = re.fullmatch(r"\d+\.\d+", value) and values.count(value)
        assert not is_telling or value in ("0.1", "0.2", "0.4", "0.5"), text


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_no_value_of_the_vocabulary_is_printed_as_it_is(name: str) -> None:
    """A row that translates some values translates all of them, or refuses the others."""
    table = configurable_framework_named(name).knobs
    if name == "grpodoctor":
        return
    for row in table.mappings:
        for choice in KNOBS[row.knob].choices:
            for line in table.lines(row.knob, choice, {}):
                own = row.values.get(choice) == choice
                assert own or line.value.strip('"') != choice or "-" not in choice, (row.knob, line)


def test_rloo_in_verl_subtracts_the_kl_from_the_reward() -> None:
    result = translated("rloo", "verl")
    lines = {line.key: line.value for line in result.settings}
    assert lines["algorithm.use_kl_in_reward"] == "True"
    assert lines["algorithm.kl_ctrl.kl_coef"] == "0.05"
    assert lines["algorithm.kl_penalty"] == "kl"
    assert lines["actor_rollout_ref.actor.use_kl_loss"] == "False"
    assert "actor_rollout_ref.actor.kl_loss_type" not in lines
    assert lines["actor_rollout_ref.actor.loss_agg_mode"] == "seq-mean-token-sum"
    assert result.lacking == result.untranslated == ()


def test_a_loss_that_is_lacking_leaves_no_settings_for_another_loss() -> None:
    result = translated("luspo", "openrlhf")
    assert not any("clip_ratio" in line.key for line in result.settings)
    assert "lower clip of the loss: 0.002" in result.untranslated
    assert not any("clip" in line.key for line in translated("luspo", "skyrl").settings)


def test_the_options_of_a_loss_are_printed_with_the_presets_values() -> None:
    lines = {line.key: line.value for line in translated("vespo", "trl").settings}
    assert lines["vespo_k_pos"] == "2"
    assert lines["vespo_lambda_neg"] == "2"
    assert lines["vllm_importance_sampling_correction"] == "True"
    assert translated("vespo", "trl").untranslated == ()
    assert translated("m2po", "areal").untranslated == ()
    for name in ("verl", "trl", "skyrl", "ms-swift", "areal"):
        assert translated("sapo", name).untranslated == (), name


def test_the_bundled_trainer_takes_a_preset_as_it_is() -> None:
    preset = preset_of("vapo")
    lines = [line.line for line in translated("vapo", "grpodoctor").settings]
    assert lines == preset.assignments()


def test_the_group_size_is_printed_where_the_default_is_one() -> None:
    lines = {line.key: line.value for line in translated("grpo", "verl").settings}
    assert int(lines["actor_rollout_ref.rollout.n"]) > 1
    assert not any(line.key == "num_generations" for line in translated("grpo", "trl").settings)


def test_luspo_is_gspo_with_another_denominator_in_verl() -> None:
    result = translated("luspo", "verl")
    lines = {line.key: line.value for line in result.settings}
    actor = "actor_rollout_ref.actor"
    assert lines[f"{actor}.policy_loss.loss_mode"] == "gspo"
    assert lines[f"{actor}.loss_agg_mode"] == "seq-mean-token-sum"
    assert lines[f"{actor}.clip_ratio_high"] == "0.0025"
    assert lines[f"{actor}.ppo_mini_batch_size"] == "<prompts per batch / 4>"
    assert result.untranslated == result.lacking == ()


def test_another_framework_gets_the_value_of_the_paper() -> None:
    lines = {line.key: line.value for line in translated("vapo", "verl").settings}
    assert lines["trainer.critic_warmup"] == "50"
    assert "critic.pretrain_steps=10" in preset_of("vapo").assignments()


@pytest.mark.parametrize("name", ["maxrl", "max-rl", "MaxRL", "max_rl"])
def test_a_preset_is_found_by_any_spelling(name: str) -> None:
    assert preset_of(name).name == "max_rl"
