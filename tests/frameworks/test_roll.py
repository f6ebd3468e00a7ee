"""What ROLL's keys mean under its settings, and how its logs and configs are recognized."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path

import pytest

from grpodoctor.frameworks.complete_config import complete_config, framework_of_config
from grpodoctor.frameworks.detection import guess_frameworks
from grpodoctor.frameworks.registry import framework_named
from grpodoctor.frameworks.roll.rollouts import FORMAT
from grpodoctor.frameworks.rollout_formats.base import DamageLog, FilePart
from grpodoctor.frameworks.translation import Translator
from grpodoctor.runs.reading.opening import open_run
from grpodoctor.vocabulary.knobs import Setting
from grpodoctor.vocabulary.values import NotApplicable, Reading, scalar
from tests.frameworks.courses import COURSES, STEPS
from tests.frameworks.generated_logs import WRITERS
from tests.frameworks.logged_keys import LOGGED

ROLL = framework_named("roll")
WEIGHT = "train_infer_correction.is_weight"


def read(values: Mapping[str, float], **settings: Setting) -> dict[str, Reading]:
    """The readings of a row of the latest version, with the settings that the row implies."""
    row = {"actor/backward_steps": 4.0, **values}
    assert ROLL.infer_settings is not None
    hints = ROLL.infer_settings([{ROLL.bare_key(key): value for key, value in row.items()}])
    return Translator(ROLL, {**hints, **settings}).readings(row)


def test_an_entropy_of_zero_was_not_computed() -> None:
    """Without a pass for the old log-probabilities RLVR logs the initial value of the entropy."""
    assert read({"critic/entropy/mean": 0.0}) == {}
    assert scalar(read({"critic/entropy/mean": 1e-6})["entropy/mean"]) == 1e-6


def test_the_mean_length_of_no_response_is_no_broken_value() -> None:
    assert read({"token/right_response_length/mean": math.nan}) == {}
    found = read({"token/right_response_length/mean": 9.0})
    assert scalar(found["length/correct"]) == 9
    assert scalar(read({"critic/score/mean": math.nan})["reward/mean"]) is None


@pytest.mark.parametrize(
    ("values", "settings", "metric"),
    [
        ({"time/reference/compute_log_probs/total": 9.0}, {}, "kl/reference/k3"),
        ({"time/ref_log_probs_values": 4.0}, {}, "kl/reference/k3"),
        ({"time/ref_log_probs_values": 1e-5}, {}, ""),
        ({"time/ref_log_probs_values": 1e-5}, {"use_kl_loss": True}, "kl/reference/k3"),
        ({"time/step_ref_log_probs_values_reward": 2.0}, {"use_opd": True}, "kl/teacher"),
        ({"student_train/grad_norm": 1.0, "time/ref_log_probs_values": 4.0}, {}, "kl/teacher"),
        ({}, {}, ""),
        ({"time/ref_log_probs_values": 4.0}, {"loss_agg_mode": "seq-mean-token-sum"}, ""),
    ],
)
def test_the_kl_loss_compares_with_the_reference_only_if_there_is_one(
    values: dict[str, float], settings: dict[str, Setting], metric: str
) -> None:
    found = read({"actor/kl_loss": 0.25, **values}, **settings)
    assert {name for name in found if name.startswith("kl/")} == ({metric} if metric else set())


def test_the_kl_before_the_update_needs_old_and_reference_log_probabilities() -> None:
    row = {"critic/kl": 0.25, "critic/entropy/mean": 0.5, "time/reference/execute": 3.0}
    assert scalar(read(row)["kl/reference/k1"]) == 0.25
    assert "kl/reference/k2" in read(row, kl_penalty="mse")
    for missing in ("critic/entropy/mean", "time/reference/execute"):
        rest = {key: value for key, value in row.items() if key != missing}
        assert "kl/reference/k1" not in read(rest)


def test_the_variant_of_the_loss_is_known_by_its_keys() -> None:
    assert ROLL.infer_settings is not None
    hints = ROLL.infer_settings([{"actor/cispo_cispo_upper_clipfrac": 0.1}])
    assert ROLL.knobs.read(hints)["loss"] == "cispo"
    other = ROLL.infer_settings([{"actor/topr_positive_ratio": 0.1}])
    assert "loss" not in ROLL.knobs.read(other)
    assert ROLL.knobs.read({})["loss"] == "ppo_clip"


@pytest.mark.parametrize(
    "pair",
    [
        ("actor/clipfrac", "actor/ppo_ratio_clipfrac"),
        ("actor/kl_loss", "critic/kl"),
        ("actor/kl_loss", "math_rule/critic/kl"),
    ],
)
@pytest.mark.parametrize(("factor", "summed"), [(0.6, False), (3.0, False), (400.0, True)])
def test_sums_over_tokens_are_no_shares_and_no_divergences(
    pair: tuple[str, str], factor: float, summed: bool
) -> None:
    """Without the config, two keys that should be alike show how a loss is averaged."""
    assert ROLL.infer_settings is not None
    rows = [{pair[0]: factor * size, pair[1]: size} for size in (0.001, 0.003, 0.002)]
    hints = {**ROLL.infer_settings(rows), "use_kl_loss": True}
    assert (Translator(ROLL, hints).readings({pair[0]: 0.25}) == {}) == summed


@pytest.mark.parametrize(
    ("settings", "metrics"),
    [
        ({}, {"ratio/mean", "ratio/max"}),
        ({"importance_sampling": "seq"}, {"ratio/sequence_max"}),
        ({"ratio_type": "segment"}, set()),
    ],
)
def test_the_level_of_the_ratio(settings: dict[str, Setting], metrics: set[str]) -> None:
    assert read({"actor/ratio_mean@sum": 1.0, "actor/ratio_max@max": 2.0}, **settings).keys() == (
        metrics
    )


def test_what_a_log_implies_is_no_config() -> None:
    """Otherwise rules would take ROLL's defaults for the settings of the run."""
    row = dict.fromkeys(LOGGED["roll"].split(), 0.5)
    assert ROLL.infer_settings is not None
    hints = ROLL.infer_settings([{ROLL.bare_key(key): value for key, value in row.items()}])
    assert not ROLL.knobs.reads_any_of(hints)


def test_maxima_of_the_first_versions_are_averaged() -> None:
    old = Translator(ROLL).readings({"actor/ratio_mean": 1.0, "actor/ratio_max": 2.0})
    assert set(old) == {"ratio/mean"}


def test_the_ratio_of_the_engines_is_no_correction_unless_it_weights_the_loss() -> None:
    row = {"actor/train_infer_ratio_token_mean@sum": 0.98}
    assert read(row) == {}
    assert read(row, **{f"{WEIGHT}.enabled": False}) == {}
    assert set(read(row, **{f"{WEIGHT}.enabled": True})) == {"correction/weight_mean"}
    # Only a weighted loss logs how many weights were capped.
    assert "correction/weight_mean" in read({**row, "actor/is_weight_clipfrac@sum": 0.1})


def test_the_geometric_mean_of_the_ratios_is_a_kl() -> None:
    found = read({"actor/train_infer_ratio_geometric_mean@sum": math.exp(-0.25)})
    assert scalar(found["mismatch/kl_k1"]) == pytest.approx(0.25)


def test_shares_that_the_masks_keep() -> None:
    row = {"actor/valid_sample_ratio@sum": 0.75, "actor/train_infer_final_mask_mean": 0.875}
    found = read(row)
    assert scalar(found["optimizer/left_out_rate"]) == 0.25
    assert scalar(found["correction/masked_rate"]) == 0.125


def test_responses_at_the_limit_become_a_rate() -> None:
    found = read({"token/total_response_length/clip": 64.0, "system/batch_size": 512.0})
    assert scalar(found["length/truncated_rate"]) == 0.125


def test_the_number_of_updates_is_read_from_the_log() -> None:
    row = {"actor/clipfrac@sum": 0.0, "actor/policykl@sum": 0.0}
    once = read({**row, "actor/backward_steps": 1.0})
    assert isinstance(once["clip/any_rate"], NotApplicable)
    several = read(row)
    assert scalar(several["clip/any_rate"]) == 0
    assert scalar(read({"actor/policykl@sum": -0.25})["kl/old_policy/k1"]) == 0.25


def test_actions_are_read_for_one_environment_only() -> None:
    row = {"env/FrozenLake/action_is_valid": 0.75, "env/FrozenLake/num_actions": 5.0}
    assert scalar(read(row)["environment/invalid_action_rate"]) == 0.25
    assert read({**row, "env/Sokoban/action_is_valid": 0.5}) == {}


@pytest.mark.parametrize(
    "key",
    [
        "actor/ppo_ratio_clipfrac@sum",
        "actor/cispo_cispo_upper_clipfrac",
        "critic/rewards/mean",
        "actor/train_infer_diff_token_mean@sum",
        "group/mixed_groups_ratio",
    ],
)
def test_keys_with_misleading_names_are_rejected_with_a_reason(key: str) -> None:
    translator = Translator(ROLL)
    assert translator.readings({key: 0.5}) == {}
    assert len(translator.unused.rejected[ROLL.bare_key(key)]) > 20


def test_the_driver_s_log_holds_each_step_twice_and_is_read_once(tmp_path: Path) -> None:
    run = open_run(WRITERS["roll"][1](COURSES["healthy"], tmp_path))
    steps = list(run.steps)
    assert [step.step for step in steps] == list(range(STEPS))
    assert len(set(steps[3].values)) > 30
    assert not [note for note in run.notes if "repeats each value" in note]
    assert not [note for note in run.notes if "teacher" in note]


def test_rows_without_a_step_are_numbered_by_the_pipeline_s_count(tmp_path: Path) -> None:
    """With another tracker the console has only the dict of metrics."""
    path = WRITERS["roll"][1](COURSES["healthy"], tmp_path)
    lines = [line for line in path.read_text().splitlines() if "metrics_tag" not in line]
    path.write_text("\n".join(lines[5:]) + "\n")
    steps = list(open_run(path).steps)
    assert [step.step for step in steps] == list(range(1, STEPS))


def test_a_log_with_keys_that_verl_has_too_is_roll_s() -> None:
    row = {"critic/score/mean", "actor/pg_loss", "critic/advantages/max", "actor/lr"}
    assert guess_frameworks(row)[0].framework.name == "verl"
    assert guess_frameworks({*row, "actor/ppo_ratio_clipfrac@sum"})[0].framework.name == "roll"


CONFIG: dict[str, Setting] = {
    "rollout_batch_size": 64,
    "num_return_sequences_in_group": 8,
    "response_length": 4096,
    "adv_estimator": "grpo",
    "pg_clip": 0.1,
    "dual_clip_loss": True,
    "init_kl_coef": 0.0,
    "actor_infer.generating_args.temperature": 1.0,
    "actor_train.training_args.learning_rate": 1e-6,
}


def test_a_config_is_recognized() -> None:
    assert framework_of_config(CONFIG).name == "roll"


def test_missing_sampling_parameters_have_rolls_own_defaults() -> None:
    """Its default of top-p is 0.7, which truncates the distribution."""
    knobs = ROLL.knobs.read(CONFIG)
    facts = complete_config("roll", CONFIG, knobs).facts
    assert (facts["top_p"], facts["top_k"]) == (0.7, 50)
    assert facts["learner_temperature"] == 1.0
    assert facts["dual_clip"] == pytest.approx(1.2)
    assert facts["kl_in_reward"] == 0.0
    bare = {key: value for key, value in CONFIG.items() if "generating" not in key}
    assert "top_p" not in complete_config("roll", bare, ROLL.knobs.read(bare)).facts


@pytest.mark.parametrize(
    ("grouping", "method", "advantage"),
    [
        ("traj_group_id", "mean_std", "group"),
        ("traj_group_id", "mean", "centred"),
        ("traj_group_id", "identity", "none"),
        ("batch", "mean_std", None),
        ("tags", "mean_std", None),
    ],
)
def test_the_agentic_pipeline_normalizes_within_the_groups_that_it_names(
    grouping: str, method: str, advantage: str | None
) -> None:
    config: dict[str, Setting] = {
        "adv_estimator": "grpo",
        "train_env_manager.group_size": 8,
        "reward_normalization.grouping": grouping,
        "reward_normalization.method": method,
    }
    assert ROLL.knobs.read(config).get("advantage") == advantage


def test_a_filter_in_the_log_leaves_the_correction_open() -> None:
    """The config lists its filters, and lists are not read."""
    off = {f"{WEIGHT}.enabled": False}
    assert ROLL.knobs.read(off)["correction"] == "none"
    assert ROLL.infer_settings is not None
    hints = ROLL.infer_settings([{"actor/train_infer_final_mask_mean": 0.9}])
    assert "correction" not in ROLL.knobs.read({**off, **hints})


def test_the_agentic_pipeline_s_dumps_have_other_columns(tmp_path: Path) -> None:
    path = tmp_path / "rollout_dump_data.step_3.jsonl"
    path.write_text(json.dumps({"trajectory_data": ["{}"], "global_step": [3]}) + "\n")
    assert FORMAT.claims(path, path.read_bytes())
    damage = DamageLog()
    part = FilePart(str(path), 0, path.stat().st_size, FORMAT.step_of(path))
    assert (part.step, list(FORMAT.read(part, damage)), damage.damaged) == (3, [], 0)
