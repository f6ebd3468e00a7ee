"""The tables of log keys, row by row."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from grpodoctor.frameworks.detection import guess_frameworks
from grpodoctor.frameworks.framework import Framework
from grpodoctor.frameworks.key_meaning import FORMULAS, Formula
from grpodoctor.frameworks.registry import (
    configurable_frameworks,
    framework_named,
    logging_frameworks,
)
from grpodoctor.frameworks.row_keys import RowKeys
from grpodoctor.frameworks.translation import Translator
from grpodoctor.runs.log_formats.decoding.console_reader import Console
from grpodoctor.runs.reading.opening import open_run
from grpodoctor.support.numbers import parse_number
from grpodoctor.vocabulary.knobs import KNOBS, Setting
from grpodoctor.vocabulary.metrics import metric_of
from grpodoctor.vocabulary.values import NotApplicable, Reading, scalar
from tests.frameworks.logged_keys import LOGGED

ACTOR = "actor_rollout_ref.actor"
MODE = f"{ACTOR}.policy_loss.loss_mode"


OPERANDS: dict[str, Callable[[int], bool]] = {
    **dict.fromkeys(("sum", "difference", "product", "share"), lambda count: count > 1),
    **dict.fromkeys(("ratio", "explained"), lambda count: count == 2),
    "at-limit": lambda count: count == 3,
    "with-filtered": lambda count: count == 4,
    **dict.fromkeys(("as-is", "one-minus", "plus-one", "negated", "log"), lambda count: count == 1),
}
"""Whether a formula accepts a number of operands."""


def read(
    name: str,
    values: Mapping[str, float],
    settings: Mapping[str, Setting] | None = None,
    version: str = "",
) -> tuple[dict[str, Reading], Translator]:
    translator = Translator(framework_named(name), settings, version)
    return translator.readings(values), translator


def number_of(readings: Mapping[str, Reading], metric: str) -> float | None:
    reading = readings.get(metric)
    return None if reading is None or isinstance(reading, NotApplicable) else scalar(reading)


@pytest.mark.parametrize("framework", logging_frameworks(), ids=lambda each: each.name)
def test_every_row_names_an_existing_metric_or_knob(framework: Framework) -> None:
    for row in framework.meanings:
        assert not row.metric or metric_of(row.metric) is not None, row
        assert row.formula in FORMULAS
        assert row.factor
        assert row.formula == "zero" or OPERANDS[row.formula](len(row.keys) + bool(row.knob)), row
    for row in framework.knobs.mappings:
        assert row.knob in KNOBS, row


@pytest.mark.parametrize("name", sorted(LOGGED))
def test_every_key_that_a_framework_logs_is_in_its_table(name: str) -> None:
    framework = framework_named(name)
    keys = [key.replace("~", " ") for key in LOGGED[name].split()]
    assert len(keys) > 20
    assert [key for key in keys if not framework.knows(framework.bare_key(key))] == []


@pytest.mark.parametrize("framework", logging_frameworks(), ids=lambda each: each.name)
def test_a_signature_is_in_the_table(framework: Framework) -> None:
    for entry in framework.signature:
        for key in (entry,) if isinstance(entry, str) else entry:
            known = framework.knows(key.replace("<", "").replace(">", ""))
            assert known or key in framework.row_keys.step, key


@pytest.mark.parametrize("framework", ["trl", "ms-swift"])
def test_an_extreme_over_ranks_is_not_an_extreme_over_responses(framework: str) -> None:
    """Each rank's mean is computed first, so the logged maximum is the largest mean."""
    found, _ = read(framework, {"clip_ratio/high_max": 0.5, "clip_ratio/low_min": 0.1})
    assert found == {}


def test_reward_std_of_trl_is_per_group_before_027() -> None:
    old, _ = read("trl", {"reward_std": 0.5}, version="0.26.2")
    assert number_of(old, "groups/reward_std") == 0.5
    assert "reward/std" not in old


def test_reward_std_of_trl_is_per_batch_since_027() -> None:
    new, _ = read("trl", {"reward_std": 0.5}, version="0.27.0")
    assert number_of(new, "reward/std") == 0.5
    assert "groups/reward_std" not in new


def test_the_version_is_inferred_from_present_and_missing_keys() -> None:
    """`step_time` is always logged since 0.26, so a log without it is older."""
    old, _ = read("trl", {"reward_std": 0.5, "completion_length": 9.0, "rewards/f": 1.0})
    assert number_of(old, "groups/reward_std") == 0.5


def test_a_key_is_ambiguous_if_the_version_is_unknown() -> None:
    found, translator = read("trl", {"reward_std": 0.5, "step_time": 1.0})
    assert "groups/reward_std" not in found
    assert "reward/std" not in found
    assert "0.27" in translator.unused.ambiguous["reward_std"]


@pytest.mark.parametrize(
    ("mode", "metric"),
    [("vanilla", "clip/dual_rate"), ("geo_mean", "clip/low_rate"), ("gspo", ""), ("cispo", "")],
)
def test_the_four_meanings_of_pg_clipfrac_lower(mode: str, metric: str) -> None:
    found, translator = read("verl", {"actor/pg_clipfrac_lower": 0.25}, {MODE: mode})
    assert {name for name in found if name.startswith("clip/")} == ({metric} if metric else set())
    assert ("actor/pg_clipfrac_lower" in translator.unused.rejected) == (not metric)


@pytest.mark.parametrize(
    ("mode", "metric"),
    [("vanilla", "clip/any_rate"), ("gspo", "clip/any_rate"), ("geo_mean", "clip/high_rate"),
     ("cispo", ""), ("clip_cov", ""), ("sapo", "")],
)  # fmt: skip
def test_the_meanings_of_pg_clipfrac(mode: str, metric: str) -> None:
    found, _ = read("verl", {"actor/pg_clipfrac": 0.25}, {MODE: mode})
    assert {name for name in found if name.startswith("clip/")} == ({metric} if metric else set())


@pytest.mark.parametrize("key", ["critic/kl", "actor/reward_kl_penalty"])
def test_the_kl_penalty_in_the_reward_under_both_of_its_names(key: str) -> None:
    found, _ = read("verl", {key: 0.5, "critic/score/mean": 0.1}, {})
    assert scalar(found["kl/reference/k1"]) == 0.5


@pytest.mark.parametrize(
    ("kind", "metric"),
    [("low_var_kl", "kl/reference/k3"), ("kl", "kl/reference/k1"), ("mse", "kl/reference/k2"),
     ("abs", "")],
)  # fmt: skip
def test_the_estimator_of_verls_kl_loss_follows_its_setting(kind: str, metric: str) -> None:
    found, _ = read("verl", {"actor/kl_loss": 0.5}, {f"{ACTOR}.kl_loss_type": kind})
    assert set(found) == ({metric} if metric else set())


@pytest.mark.parametrize(
    ("framework", "key"),
    [
        ("trl", "sampling/importance_sampling_ratio/max"),
        ("trl", "sampling/importance_sampling_ratio/min"),
        ("verl", "rollout_corr/rollout_is_eff_sample_size"),
        ("areal", "rollout/accepted"),
        ("areal", "ppo_actor/no_eos_ratios/avg"),
        ("areal", "ppo_actor/final_reward/avg"),
        ("open-instruct", "objective/kl3_avg"),
        ("open-instruct", "val/ratio_var"),
        ("open-instruct", "loss/kl_avg"),
        ("nemo-rl", "train/policy_kl_error"),
        ("verl", "critic/rewards/mean"),
    ],
)
def test_a_key_with_a_misleading_name_is_rejected_with_a_reason(framework: str, key: str) -> None:
    found, translator = read(framework, {key: 0.5})
    assert found == {}
    assert len(translator.unused.rejected[key]) > 8


def test_ratios_after_the_cap_are_not_raw_ratios() -> None:
    """The cap hides large ratios, so neither the mean nor the maximum is the raw ratio's."""
    values = {
        "sampling/importance_sampling_ratio/mean": 1.0,
        "sampling/importance_sampling_ratio/max": 2.0,
    }
    found, _ = read("trl", values)
    assert set(found) == {"correction/weight_mean"}
    found, _ = read("verl", {"rollout_corr/rollout_is_max": 2.0},
                    {"algorithm.rollout_correction.rollout_is": "token"})  # fmt: skip
    assert found == {}


def test_open_instructs_estimators_count_from_zero() -> None:
    values = {f"objective/kl{place}_avg": place / 8 for place in range(1, 4)}
    found, _ = read("open-instruct", values)
    assert number_of(found, "kl/reference/k2") == 1 / 8
    assert number_of(found, "kl/reference/k3") == 2 / 8
    assert "kl/reference/k1" not in found


def test_areals_kl_is_negated() -> None:
    found, _ = read("areal", {"ppo_actor/update/approx_kl/avg": -0.25})
    assert number_of(found, "kl/old_policy/k1") == 0.25


def test_areals_lengths_include_the_prompt() -> None:
    values = {"ppo_actor/seq_len/avg": 900.0, "ppo_actor/prompt_len/avg": 100.0}
    assert number_of(read("areal", values)[0], "length/mean") == 800
    assert read("areal", {"ppo_actor/seq_len/avg": 900.0})[0] == {}


def test_nemo_counts_groups_in_percent() -> None:
    found, _ = read("nemo-rl", {"train/baseline_reward/pct_0": 25.0})
    assert number_of(found, "groups/all_incorrect_rate") == 0.25


def test_nemos_mean_ratio_becomes_its_logarithm() -> None:
    found, _ = read("nemo-rl", {"train/token_mult_prob_error": 1.0})
    assert number_of(found, "mismatch/logprob_diff_mean") == 0


def test_open_instructs_stop_rate_is_one_minus_the_truncated_rate() -> None:
    found, _ = read("open-instruct", {"val/stop_rate": 0.75})
    assert number_of(found, "length/truncated_rate") == 0.25


def test_counts_become_rates_only_with_their_total() -> None:
    counts = {"batch/filtered_prompts": 8.0, "batch/total_prompts": 24.0}
    assert number_of(read("open-instruct", counts)[0], "groups/zero_variance_rate") == 0.25
    assert read("open-instruct", {"batch/filtered_prompts": 8.0})[0] == {}
    assert read("verl", {"training/filter_groups/kept": 8.0})[0] == {}


def test_tinkers_length_is_a_product() -> None:
    values = {"env/all/ac_tokens_per_turn": 50.0, "env/all/turns_per_episode": 3.0}
    assert number_of(read("tinker-cookbook", values)[0], "length/mean") == 150


def test_tinkers_staleness_is_a_difference() -> None:
    values = {"training_client/step": 12.0, "sampling_client/step_mean": 10.5}
    assert number_of(read("tinker-cookbook", values)[0], "staleness/mean") == 1.5


def test_trls_batch_scaling_does_not_describe_groups() -> None:
    row = {"frac_reward_zero_std": 1.0}
    assert number_of(read("trl", row)[0], "groups/zero_variance_rate") == 1.0
    assert read("trl", row, {"scale_rewards": "batch"})[0] == {}


def test_a_sum_over_tokens_is_not_a_mean_entropy() -> None:
    row = {"actor/entropy": 31.0}
    summed = {f"{ACTOR}.loss_agg_mode": "seq-mean-token-sum"}
    assert number_of(read("verl", row)[0], "entropy/mean") == 31.0
    assert read("verl", row, summed)[0] == {}


def test_a_sum_over_tokens_is_no_divergence_per_token() -> None:
    row = {"actor/kl_loss": 31.0}
    summed = {f"{ACTOR}.loss_agg_mode": "seq-mean-token-sum"}
    assert number_of(read("verl", row)[0], "kl/reference/k3") == 31.0
    assert read("verl", row, summed)[0] == {}


STRUCTURAL: tuple[tuple[str, str, str, Mapping[str, Setting]], ...] = (
    ("trl", "clip_ratio/region_mean", "clip/any_rate", {"num_iterations": 1}),
    ("trl", "clip_ratio/low_mean", "clip/low_rate",
     {"num_iterations": 1, "steps_per_generation": 4, "gradient_accumulation_steps": 4}),
    ("verl", "actor/pg_clipfrac", "clip/any_rate",
     {"data.train_batch_size": 64, f"{ACTOR}.ppo_mini_batch_size": 64}),
    ("verl", "actor/ppo_kl", "kl/old_policy/k1",
     {"data.train_batch_size": 64, f"{ACTOR}.ppo_mini_batch_size": 64}),
    ("areal", "ppo_actor/update/dual_clip_ratio/avg", "clip/dual_rate",
     {"actor.ppo_n_minibatches": 1}),
    ("slime", "train/pg_clipfrac", "clip/any_rate", {"num_steps_per_rollout": 1}),
    ("ms-swift", "clip_ratio/region_mean", "clip/any_rate", {"num_iterations": 1}),
)  # fmt: skip


@pytest.mark.parametrize(("framework", "key", "metric", "settings"), STRUCTURAL)
def test_a_structural_zero_is_not_applicable(
    framework: str, key: str, metric: str, settings: Mapping[str, Setting]
) -> None:
    once, _ = read(framework, {key: 0.0}, settings)
    assert isinstance(once[metric], NotApplicable)
    moved, _ = read(framework, {key: 0.125}, settings)
    assert abs(number_of(moved, metric) or 0) == 0.125
    several = {name: 4 if name in ("num_iterations", "actor.ppo_n_minibatches",
                                   "num_steps_per_rollout") else value
               for name, value in settings.items()}  # fmt: skip
    several = {name: 256 if name == "data.train_batch_size" else value
               for name, value in several.items()}  # fmt: skip
    zero, _ = read(framework, {key: 0.0}, several)
    assert number_of(zero, metric) == 0
    unknown, _ = read(framework, {key: 0.0})
    assert number_of(unknown, metric) == 0


def test_percentages_of_a_console_become_shares(tmp_path: Path) -> None:
    path = tmp_path / "orchestrator.log"
    path.write_text(
        "12:00:00 SUCCESS Step 3 | 9.00s | Reward 0.5000 | Max Off-Policy 2 | Truncation 25.0%\n"
    )
    (row,) = Console(path, RowKeys()).read().records
    found, _ = read("prime-rl", row.values)
    assert row.step == 3
    assert number_of(found, "length/truncated_rate") == 0.25
    assert number_of(found, "reward/mean") == 0.5


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0.25", 0.25), ("1e-6", 1e-6), ("nan", None), ("-3", -3.0), ("true", None), ("", None),
     ("0.25 tokens", None), ("9" * 41, None), ("inf", float("inf"))],
)  # fmt: skip
def test_numbers_that_are_logged_as_text(text: str, expected: float | None) -> None:
    found = parse_number(text)
    if text == "nan":
        assert found is not None
        assert found != found
    else:
        assert found == expected


def test_the_users_map_overrides_the_table() -> None:
    translator = Translator(framework_named("trl"), own={"kl": "kl/old_policy/k1"})
    assert set(translator.readings({"kl": 0.5})) == {"kl/old_policy/k1"}


@pytest.mark.parametrize(
    ("keys", "name"),
    [
        # W&B's log of TRL: its profiler's keys, and what the user logged.
        (
            (
                "profiling/Time taken: GRPOTrainer.compute_loss",
                "train/avg_reward",
                "train/accuracy",
            ),
            "trl",
        ),
        # A supervised run: other tables list `time/<path>` and `train/<path>` to ignore them.
        (("learning_rate", "time/step", "time/total", "num_tokens", "train_mean_nll"), "generic"),
        (("train/avg_reward", "train/learning_rate", "train/anything"), "generic"),
        # Means by another word: `rewards_avg` is no component of another framework's reward.
        (("rewards_avg", "train_accuracies_avg", "val_accuracies_avg", "kl_avg"), "generic"),
    ],
)
def test_ignored_keys_do_not_decide_the_framework(keys: tuple[str, ...], name: str) -> None:
    assert guess_frameworks(keys)[0].framework.name == name


def test_a_skyrl_server_behind_tinker_adds_its_gradient_norm() -> None:
    row = {"env/all/reward/total": 0.5, "progress/done_frac": 0.1, "skyrl.ai/grad_norm": 2.0}
    translator = Translator(framework_named("tinker"))
    assert scalar(translator.readings(row)["optimizer/grad_norm"]) == 2.0
    assert translator.unused.unmapped == {}


def test_a_mean_is_recognized_by_any_common_name() -> None:
    row = {"rewards_avg": 0.5, "train_accuracies_avg": 0.4, "val_accuracy_mean": 0.3, "KL_ref": 0.1}
    readings = Translator(framework_named("generic")).readings(row)
    assert {name: scalar(value) for name, value in readings.items()} == pytest.approx(
        {
            "reward/mean": 0.5,
            "accuracy/train": 0.4,
            "accuracy/heldout": 0.3,
            "kl/reference/k1": 0.1,
        }
    )


def test_keys_that_loggers_add_are_not_unmapped() -> None:
    translator = Translator(framework_named("trl"))
    translator.readings({"reward": 0.5, "_runtime": 3.0, "_timestamp": 1.7e9, "mine": 1.0})
    assert set(translator.unused.unmapped) == {"mine"}


@pytest.mark.parametrize(
    ("framework", "key"),
    [("tinker-cookbook", "optim/entropy"), ("nemo-rl", "train/approx_entropy")],
)
def test_an_entropy_estimate_from_sampled_tokens_has_its_own_metric(
    framework: str, key: str
) -> None:
    found, _ = read(framework, {key: 0.5})
    assert number_of(found, "entropy/sampled") == 0.5
    assert "entropy/mean" not in found


def test_tinkers_kl_within_a_batch_is_to_the_old_policy() -> None:
    found, _ = read("tinker-cookbook", {"kl_pre_post_v1": 0.02, "kl_pre_post_v2": 0.03})
    assert number_of(found, "kl/old_policy/k1") == 0.02
    assert number_of(found, "kl/old_policy/k2") == 0.03


def test_tinkers_distillation_has_no_reward(tmp_path: Path) -> None:
    """The environment's reward is always 0 by construction, which does not mean hard prompts."""

    def written(**more: float) -> list[str]:
        row = {"env/all/reward/total": 0.0, "env/all/by_group/frac_all_bad": 1.0, **more}
        row |= {"env/all/by_group/frac_all_good": 0.0, "optim/entropy": 0.5}
        path = tmp_path / "metrics.jsonl"
        path.write_text("".join(json.dumps({"step": n, **row}) + "\n" for n in range(30)))
        return [each for step in open_run(path).steps for each in step.values]

    assert set(written(teacher_kl=0.3)) == {"entropy/sampled", "kl/teacher"}
    assert {"reward/mean", "groups/all_incorrect_rate"} <= set(written())


def test_openrlhfs_reward_excludes_length_penalties_if_the_score_is_logged(
    tmp_path: Path,
) -> None:
    def rewards(**more: float) -> set[float | None]:
        row = {"ppo_clip_ratio": 0.01, "actor_grad_norm": 0.3, "reward": 0.4, **more}
        path = tmp_path / "metrics.jsonl"
        path.write_text("".join(json.dumps({"step": n, **row}) + "\n" for n in range(3)))
        return {number_of(step.values, "reward/mean") for step in open_run(path).steps}

    assert rewards(score=0.5) == {0.5}
    assert rewards() == {0.4}


def test_ms_swift_before_it_renamed_its_lengths() -> None:
    row = {"completion_length": 74.4, "response_clip_ratio": 0.1, "rewards/MathFormat": 0.2}
    found, translator = read("ms-swift", {**row, "train_speed(iter/s)": 0.03, "reward": 0.2})
    assert number_of(found, "length/mean") == 74.4
    assert number_of(found, "length/truncated_rate") == 0.1
    assert number_of(found, "reward/component/MathFormat/mean") == 0.2
    assert translator.unused.unmapped == {}


@pytest.mark.parametrize("formula", sorted(FORMULAS))
@pytest.mark.parametrize(
    "values",
    [(math.inf, -math.inf), (-math.inf, math.inf, math.nan), (1.7e308, 1.7e308), (0.0, 0.0)],
)
def test_formulas_accept_any_number(formula: Formula, values: tuple[float, ...]) -> None:
    assert isinstance(FORMULAS[formula](values), float)


def test_opposite_infinities_have_no_sum() -> None:
    row = {"env/all/by_group/frac_all_good": math.inf, "env/all/by_group/frac_all_bad": -math.inf}
    found, _ = read("tinker-cookbook", row)
    assert number_of(found, "groups/zero_variance_rate") is None


def test_a_key_of_a_new_version_outweighs_an_own_key_under_an_old_name() -> None:
    """A public script adds `rewards/total_reward`, the form of TRL before 0.17."""
    row = {
        "reward": 2.0,
        "rewards/total_reward": 2.0,
        "completions/mean_length": 50.0,
        "completions/clipped_ratio": 0.25,
        "completions/max_terminated_length": 70.0,
        "frac_reward_zero_std": 0.5,
    }
    settings = {"scale_rewards": "group"}
    readings = Translator(framework_named("trl"), settings).readings(row)
    assert {"length/mean", "length/truncated_rate", "groups/zero_variance_rate"} <= set(readings)
    old = Translator(framework_named("trl"), settings)
    assert "reward/component/total_reward/mean" in old.readings({"rewards/total_reward": 2.0})


def test_prime_rl_before_its_keys_named_agents() -> None:
    """Keys of a hosted run: `max` is of the prompts' means, and no reward of a response."""
    row = {
        "reward/all/mean": 1.2,
        "reward/all/max": 1.8,
        "decode_len/all/mean": 132.3,
        "is_truncated/all/mean": 0.03,
        "solve_none/all": 0.25,
        "solve_all/all": 0.5,
        "filters/all/zero_advantage": 0.75,
        "eval/gsm8k/avg@1": 1.78,
        "off_policy_level/all/mean": 1.4,
    }
    assert [guess.framework.name for guess in guess_frameworks(row)][:1] == ["prime-rl"]
    found, translator = read("prime-rl", row)
    assert {name: scalar(reading) for name, reading in found.items()} == {
        "reward/mean": 1.2,
        "length/mean": 132.3,
        "length/truncated_rate": 0.03,
        "groups/all_incorrect_rate": 0.25,
        "groups/all_correct_rate": 0.5,
        "groups/zero_variance_rate": 0.75,
        "reward/heldout/set/gsm8k": 1.78,
    }
    assert not translator.unused.unmapped


@pytest.mark.parametrize(
    "framework", configurable_frameworks(), ids=lambda framework: framework.name
)
def test_a_fact_of_a_config_has_one_row(framework: Framework) -> None:
    facts = Counter(row.knob for row in framework.knobs.facts)
    assert [knob for knob, count in facts.items() if count > 1] == []
