import pytest

from grpodoctor.frameworks.registry import configurable_framework_named, configurable_frameworks
from grpodoctor.frameworks.settings import framework_settings
from grpodoctor.monitor.advice import (
    advice_for,
    called_for_by,
    overlapping,
    usable,
    with_alternatives,
)
from grpodoctor.remedies.catalogue import all_remedies, remedy_of
from grpodoctor.remedies.plain_grpo import PLAIN_GRPO
from grpodoctor.rules.catalogue import all_rules
from grpodoctor.vocabulary.knobs import Setting

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
    assert limit.line == "max_completion_length=2048"
    known = advice_for("longer-limit", {"max_length": 1024}, "trl", logged)
    assert [line.line for line in known.spelling] == ["max_completion_length=2048"]
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


@pytest.mark.parametrize(
    ("remedy", "knobs", "readings", "condition"),
    [
        ("clip-higher", {}, {"clip/high_rate": 0.012}, "the share clipped high is 1.2%"),
        ("clip-higher", {}, {}, "if tokens are clipped at the upper bound (not logged)"),
        (
            "cispo",
            {},
            {"clip/high_rate": 0.0, "clip/low_rate": 0.25},
            "the share clipped low is 25%",
        ),
        ("longer-limit", {}, {}, "if responses are truncated (not logged)"),
        ("fewer-updates", {"updates_per_batch": 8}, {}, "updates per batch is 8"),
        ("fewer-updates", {}, {"updates_per_batch": 2.0}, "updates per batch is 2"),
        ("dynamic-sampling", {}, {}, "if some groups have zero variance (not logged)"),
        ("raise-temperature", {}, {}, ""),
    ],
)
def test_the_condition_is_stated_with_its_value_or_as_unknown(remedy, knobs, readings, condition):
    advice = advice_for(remedy, knobs, "trl", readings)
    assert (advice.condition, advice.obstacle) == (condition, "")
    assert advice.is_conditional is condition.startswith("if ")
    stated = advice.to_json()
    assert stated["condition"] == condition
    assert stated["condition_met"] is (True if condition and not advice.is_conditional else None)


@pytest.mark.parametrize(
    ("remedy", "knobs", "readings"),
    [
        ("clip-higher", {}, {"clip/any_rate": 0.0}),
        ("cispo", {}, {"clip/high_rate": 0.0, "clip/low_rate": 0.0}),
        ("soft-overlong", {}, {"length/truncated_rate": 0.0}),
        ("fewer-updates", {"updates_per_batch": 1}, {}),
        ("dynamic-sampling", {}, {"groups/zero_variance_rate": 0.0}),
        ("kl-penalty", {}, {"kl/reference/k1": -0.5}),
    ],
)
def test_a_remedy_without_anything_to_act_on_is_not_offered(remedy, knobs, readings):
    assert advice_for(remedy, knobs, "trl", readings).obstacle
    assert not advice_for(remedy, {}, "verl", {}).obstacle


def test_what_a_framework_always_does_is_not_offered_and_alternatives_take_its_place():
    remedies = ("recompute-old-logprobs", "sync-sampler")
    advice = {each: advice_for(each, {}, "trl") for each in with_alternatives(remedies)}
    assert advice["sync-sampler"].obstacle == "TRL syncs the weights before every generation"
    offered = [each.id for each in usable(remedies, advice)]
    assert offered == ["check-weight-sync", "limit-staleness", "m2po"]
    assert [
        each.id
        for each in usable(("tis", *remedies), advice | {"tis": advice_for("tis", {}, "trl")})
    ] == ["tis"]


MISMATCH = ("tis", "recompute-old-logprobs", "sync-sampler")


@pytest.mark.parametrize(
    ("framework", "first"),
    [("tinker-cookbook", "limit-staleness"), ("prime-rl", "dppo"), ("trl", "tis")],
)
def test_an_alternative_with_settings_precedes_those_that_the_framework_lacks(framework, first):
    advice = {each: advice_for(each, {}, framework) for each in with_alternatives(MISMATCH)}
    offered = usable(MISMATCH, advice)
    assert offered[0].id == first
    assert offered[0].settings


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.code)
def test_the_order_of_a_rules_own_remedies_is_kept(rule):
    """Also where a later one has settings, since the first may treat the cause."""
    for framework in ("trl", "verl", "tinker-cookbook", "prime-rl", "generic", ""):
        advice = {
            each: advice_for(each, {}, framework) for each in with_alternatives(rule.remedies)
        }
        own = [each for each in rule.remedies if advice[each].is_doable]
        doable = [each for each in own if not advice[each].obstacle]
        offered = [each.id for each in usable(rule.remedies, advice)]
        assert offered[: len(doable)] == doable


def test_a_command_names_the_model_unless_its_name_is_no_plain_text():
    def learner(model):
        return advice_for("check-weight-sync", {}, "trl", {}, model).command.split()[-1]

    assert learner("Qwen/Qwen2.5-7B") == "transformers:Qwen/Qwen2.5-7B"
    assert {learner(name) for name in ("", "a b", "a;b", "$(x)", "a\nb", "é")} == {
        "transformers:MODEL"
    }


def test_the_limit_is_computed_from_the_longest_response_where_truncation_is_not_logged():
    (limit,) = advice_for("longer-limit", {}, "trl", {"length/max": 256.0}).if_not_set
    assert limit.line == "max_completion_length=512"
    (unknown,) = advice_for("longer-limit", {}, "trl", {}).if_not_set
    assert unknown.line == "max_completion_length=<current value x 2>"


def test_a_setting_that_excludes_a_remedy_is_not_called_already_set():
    knobs = {"overlong": "mask", "overlong_buffer": 512, "max_length": 2048}
    soft = advice_for("soft-overlong", knobs, "trl", has_config=True)
    assert soft.already_set == ()
    assert soft.obstacle == "the run has mask_truncated_completions=True, which excludes it"
    assert advice_for("overlong-mask", knobs, "trl").already_set[0].line == (
        "mask_truncated_completions=True"
    )


def test_a_config_without_the_setting_is_not_a_missing_config():
    assert advice_for("dynamic-sampling", {}, "verl", has_config=True).has_config
    assert not advice_for("dynamic-sampling", {}, "verl").has_config


def test_a_former_id_still_loads():
    assert remedy_of("reset-reference") is remedy_of("check-reference")


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
    changed = remedy.change(PLAIN_GRPO)
    starts = configurable_framework_named(framework).knobs.starts_with
    if remedy.id == "fewer-updates" and starts:
        assert "num_iterations" in advice.obstacle
        return
    if advice.obstacle:  # the framework always does it
        lines = framework_settings(changed, framework, PLAIN_GRPO)
        assert [line.key for line in lines] == [""]
        assert advice.obstacle == lines[0].note
        return
    assert advice.spelling or advice.if_not_set
    if changed and any(line.key for line in framework_settings(changed, framework, PLAIN_GRPO)):
        lines = (*advice.spelling, *advice.if_not_set)
        assert any(line.key for line in lines), "a framework that has the setting is told it"


def test_every_remedy_is_called_for_by_a_rule_or_a_crash():
    orphans = [
        remedy.id
        for remedy in all_remedies()
        if not called_for_by(remedy.id) and remedy.crash is None
    ]
    assert orphans == []


def test_overlaps_are_remedies_that_change_the_same_thing():
    assert {"mis", "icepop", "dppo"} <= set(overlapping("tis"))
    assert "tis" not in overlapping("tis")
    assert overlapping("recheck-reward") == ()


def test_a_setting_contains_the_limit_that_truncated_responses_show():
    def punishment(**logged):
        readings = {f"length/{name}": value for name, value in logged.items()}
        return [each.line for each in advice_for("soft-overlong", {}, "trl", readings).if_not_set]

    (line,) = punishment(max=96.0, truncated_rate=1.0)
    assert line == "reward_funcs=[..., get_soft_overlong_punishment(96, 19)]"
    (unknown,) = punishment(max=96.0)
    assert "<max_completion_length>" in unknown


RATE = "optimizer/learning_rate"
USUAL_FULL = "usual for full training: 5e-7 to 5e-6"


@pytest.mark.parametrize(
    ("knobs", "logged", "value", "note"),
    [
        ({"learning_rate": 2e-4, "lora_rank": 0}, {}, "1e-06", USUAL_FULL),
        ({"learning_rate": 2e-5, "lora_rank": 0}, {}, "1e-06", USUAL_FULL),
        ({"lora_rank": 0}, {RATE: 1e-5}, "1e-06", USUAL_FULL),
        ({"learning_rate": 9e-6, "lora_rank": 0}, {}, "3e-06", ""),
        ({"learning_rate": 2e-5}, {}, "6.7e-06", ""),
        ({"learning_rate": 2e-4, "lora_rank": 32}, {}, "6.7e-05", ""),
        (
            {"learning_rate": 0.03, "lora_rank": 32},
            {},
            "1e-05",
            "usual for adapters: 1e-5 to 1e-4",
        ),
        ({"learning_rate": 2e-4}, {}, "1e-06", "for full training; 1e-05 with LoRA"),
        ({}, {RATE: 1e-3}, "1e-06", "for full training; 1e-05 with LoRA"),
        ({"lora_rank": 32}, {RATE: 1e-3}, "0.00033", ""),
        ({}, {RATE: 6e-5}, "2e-05", ""),
        ({"learning_rate": 3e-3, "lora_rank": 0, "pretrained_model": False}, {}, "0.001", ""),
        ({"learning_rate": 2e-5, "lora_rank": 0, "pretrained_model": False}, {}, "6.7e-06", ""),
        ({"lora_rank": 0, "pretrained_model": False}, {RATE: 3e-3}, "0.001", ""),
    ],
)
def test_a_rate_far_above_those_of_rl_is_set_to_a_usual_one(
    knobs: dict[str, Setting], logged: dict[str, float], value: str, note: str
) -> None:
    advice = advice_for("lower-learning-rate", knobs, "trl", logged)
    (line,) = advice.settings
    now = f"now {knobs['learning_rate']:.6g}" if "learning_rate" in knobs else ""
    assert (line.value, line.note) == (value, "; ".join(filter(None, (now, note))))


def test_the_present_value_stands_next_to_the_new_one() -> None:
    (line,) = advice_for("longer-limit", {"max_length": 256}, "verl").settings
    assert line.note == "now 256"
    (unknown,) = advice_for("longer-limit", {}, "verl").settings
    assert not unknown.note.startswith("now")


def test_a_live_change_assumes_nothing_about_the_weights_that_are_trained() -> None:
    lower = remedy_of("lower-learning-rate")
    assert lower.change({"learning_rate": 3e-4}) == {"learning_rate": 1e-4}
    assert lower.change({"learning_rate": 3e-5, "lora_rank": 0}) == {"learning_rate": 1e-6}


@pytest.mark.parametrize(
    ("remedy", "knobs", "lines"),
    [
        ("clip-higher", {"clip_high": 0.28, "updates_per_batch": 1}, ["epsilon_high=0.28"]),
        ("clip-higher", {"clip_high": 0.2, "updates_per_batch": 1}, []),
        ("clip-higher", {"clip_high": 0.4}, ["epsilon_high=0.4"]),
        ("fewer-updates", {"updates_per_batch": 1}, ["num_iterations=1"]),
        ("cispo", {"loss": "gspo", "clip_low": 1.0, "clip_high": 4.0,
                   "aggregation": "token-mean"}, []),
        ("kl-penalty", {"kl_coefficient": 0.5}, ["beta=0.5"]),
    ],
)  # fmt: skip
def test_a_remedy_in_force_says_so_whatever_stands_against_it(
    remedy: str, knobs: dict[str, Setting], lines: list[str]
) -> None:
    advice = advice_for(remedy, knobs, "trl", has_config=True)
    assert [line.line for line in advice.already_set] == lines
    assert advice.is_in_force == bool(lines)
    assert not (advice.is_open and lines)


def test_a_default_that_makes_a_remedy_superfluous_keeps_it_out() -> None:
    advice = advice_for("fewer-updates", {}, "trl")
    assert "num_iterations=1" in advice.obstacle
    assert not advice_for("fewer-updates", {"updates_per_batch": 16}, "trl").obstacle
    unknown = advice_for("fewer-updates", {}, "verl")
    assert unknown.condition == "if a batch takes more than 4 updates (unknown)"
    assert unknown.is_conditional


def test_a_setting_that_only_the_log_shows_is_changed_from_there() -> None:
    (line,) = advice_for("fewer-updates", {}, "trl", {"updates_per_batch": 16.0}).spelling
    assert line.line == "num_iterations=4"
    weight = {"optimizer/kl_coefficient": 0.3}
    lines = advice_for("smaller-kl-penalty", {}, "verl", weight).settings
    assert lines[-1].line == "actor_rollout_ref.actor.kl_loss_coef=0.001"
    (own,) = advice_for("smaller-kl-penalty", {"kl_coefficient": 0.2}, "trl", weight).settings
    assert own.line == "beta=0.001"
    assert advice_for("smaller-kl-penalty", {"kl_coefficient": 0.0}, "trl", weight).obstacle
