import pytest

from grpodoctor.frameworks.registry import configurable_frameworks
from grpodoctor.frameworks.settings import framework_settings
from grpodoctor.monitor.advice import advice_for, called_for_by, overlapping
from grpodoctor.remedies.catalogue import all_remedies, remedy_of
from grpodoctor.remedies.plain_grpo import PLAIN_GRPO

CONFIG = {"overlong": "none", "dynamic_sampling": False, "advantage": "group"}


def test_a_known_config_gives_the_change():
    advice = advice_for("dynamic-sampling", CONFIG, "verl")
    assert advice.change == {"dynamic_sampling": True}
    assert advice.spelling[0].line == "algorithm.filter_groups.enable=True"
    assert (advice.config_missing, advice.if_not_set) == (False, ())


def test_without_a_config_the_usual_setting_is_given_on_condition():
    advice = advice_for("dynamic-sampling", {}, "verl")
    assert (advice.change, advice.spelling, advice.config_missing) == ({}, (), True)
    assert advice.if_not_set[0].line == "algorithm.filter_groups.enable=True"
    told = advice.to_json()
    assert (told["change"], told["spelling"]) == ({}, []), "only what is known"
    assert told["if_not_set"][0]["key"] == "algorithm.filter_groups.enable"


def test_a_change_that_depends_on_an_unknown_setting_is_relative_to_it():
    advice = advice_for("lower-learning-rate", {}, "verl")
    (setting,) = advice.if_not_set
    assert setting.line == "actor_rollout_ref.actor.optim.lr=<current value / 3>"


def test_values_are_computed_from_the_run():
    logged = {"optimizer/learning_rate": 3e-6, "length/truncated_rate": 0.2, "length/max": 1024.0}
    (rate,) = advice_for("lower-learning-rate", {}, "verl", logged).if_not_set
    assert rate.line == "actor_rollout_ref.actor.optim.lr=1e-06"
    (limit,) = advice_for("longer-limit", {}, "trl", logged).if_not_set
    assert limit.line == "max_completion_length=2496"
    known = advice_for("longer-limit", {"max_length": 1024}, "trl", logged)
    assert [line.line for line in known.spelling] == ["max_completion_length=2496"]
    gap = {"mismatch/logprob_diff_mean": 0.3}
    caps = [line.line for line in advice_for("tis", {}, "trl", gap).if_not_set]
    assert "vllm_importance_sampling_clip_max=6.4" in caps


def test_a_setting_in_place_is_not_advised_again():
    advice = advice_for("dynamic-sampling", {**CONFIG, "dynamic_sampling": True}, "verl")
    assert (advice.change, advice.config_missing, advice.if_not_set) == ({}, False, ())
    assert advice.already_set[0].line == "algorithm.filter_groups.enable=True"


def test_a_remedy_whose_mechanism_does_not_apply_is_not_offered():
    advice = advice_for("clip-higher", {}, "verl", {"clip/high_rate": 0.0})
    assert advice.obstacle == "no token is clipped at the upper bound"
    assert (advice.spelling, advice.if_not_set, advice.already_set) == ((), (), ())


def test_instructions_come_with_the_settings_that_belong_to_them():
    advice = advice_for("float16-engines", {}, "trl")
    assert advice.spelling[0].line == remedy_of("float16-engines").how
    assert {line.line for line in advice.spelling[1:]} >= {"fp16=True", "bf16=False"}
    unknown = advice_for("float16-engines", {}, "acme")
    assert [line.line for line in unknown.spelling] == [remedy_of("float16-engines").how]


@pytest.mark.parametrize("framework", [each.name for each in configurable_frameworks()])
@pytest.mark.parametrize("remedy", all_remedies(), ids=lambda each: each.id)
def test_every_remedy_says_what_to_do_without_a_config(remedy, framework):
    advice = advice_for(remedy.id, {}, framework)
    assert advice.spelling or advice.if_not_set
    assert not advice.obstacle
    changed = remedy.change(PLAIN_GRPO)
    if changed and any(line.key for line in framework_settings(changed, framework, PLAIN_GRPO)):
        lines = (*advice.spelling, *advice.if_not_set)
        assert any(line.key for line in lines), "a framework that has the setting is told it"


def test_every_remedy_is_called_for_by_a_rule():
    orphans = [remedy.id for remedy in all_remedies() if not called_for_by(remedy.id)]
    assert orphans == []


def test_overlaps_are_remedies_that_change_the_same_thing():
    assert {"mis", "icepop", "dppo"} <= set(overlapping("tis"))
    assert "tis" not in overlapping("tis")
    assert overlapping("recheck-reward") == ()
