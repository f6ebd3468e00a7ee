"""A preset for users of another framework, in words that they know."""

from __future__ import annotations

import pytest

from grpodoctor.frameworks.bundled.knobs import KEYS
from grpodoctor.frameworks.registry import configurable_framework_named
from grpodoctor.trainer.config.preset_translation import translate
from grpodoctor.trainer.config.presets import preset_names, preset_of


@pytest.mark.parametrize("framework", ["trl", "verl"])
@pytest.mark.parametrize("name", preset_names())
def test_what_is_not_translated_is_said_in_words(name: str, framework: str) -> None:
    translated = translate(preset_of(name), configurable_framework_named(framework))
    for line in translated.untranslated:
        words = line.partition(":")[0]
        assert " " in words, line
        assert not {"=", "."} & set(words.replace("1 - 1 / (alpha x length)", "")), line
    for line in translated.lacking:
        assert not any(line.startswith(knob) for knob in KEYS if "_" in knob), line


def test_dapo_in_trl_asks_nothing_about_the_dynamic_sampling_that_trl_lacks() -> None:
    translated = translate(preset_of("dapo"), configurable_framework_named("trl"))
    assert [line.partition(":")[0] for line in translated.lacking] == ["dynamic sampling"]
    assert translated.untranslated == ()
    lines = {line.key: line.value for line in translated.settings}
    assert lines["reward_weights"] == "[..., 0.5]"
    assert "soft_punish_cache" not in lines


@pytest.mark.parametrize(
    ("framework", "lam", "clip"),
    [
        ("areal", "actor.gae_lambda", "critic.eps_clip"),
        ("openrlhf", "--algo.advantage.lambd", "--critic.value_clip"),
        ("roll", "lambd", "value_clip"),
        ("skyrl", "trainer.algorithm.lambd", "trainer.algorithm.value_clip"),
        ("slime", "--lambd", "--value-clip"),
        ("verl", "algorithm.lam", "critic.cliprange_value"),
    ],
)
def test_ppo_is_translated_whole(framework: str, lam: str, clip: str) -> None:
    translated = translate(preset_of("ppo"), configurable_framework_named(framework))
    lines = {line.key: line.value for line in translated.settings}
    assert (lines[lam], lines[clip]) == ("0.95", "0.2")
    assert translated.untranslated == translated.lacking == ()
