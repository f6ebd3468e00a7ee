"""What a skipped rule asks its user to log, in the framework's own keys and settings."""

from __future__ import annotations

import pytest

from grpodoctor.frameworks.logging_advice import how_to_log
from grpodoctor.rules.catalogue import rule_of
from grpodoctor.rules.shared.missing_metrics import how_to_enable


@pytest.mark.parametrize(
    ("framework", "code", "said"),
    [
        (
            "verl",
            "MIS001",
            "training/rollout_probs_diff_max; to enable it, set actor_rollout_ref.rollout.",
        ),
        (
            "verl",
            "KLD002",
            "actor/kl_loss; to enable it, set actor_rollout_ref.actor.use_kl_loss=True "
            "and actor_rollout_ref.actor.kl_loss_coef=0",
        ),
        (
            "verl",
            "REW003",
            "val-core/<path>/acc/mean@<n>; to enable it, set trainer.test_freq above 0",
        ),
        ("trl", "KLD002", "logs it as kl; to enable it, set beta=1e-6, too small to matter"),
        ("trl", "REW003", "eval_reward; to enable it, give an eval_dataset and set eval_strategy"),
        ("trl", "ENT001", "entropy since 0.20"),
        ("trl", "CLP001", "clip_ratio/high_mean since 0.17"),
        ("trl", "MIS004", "set use_vllm=True and vllm_importance_sampling_correction=True"),
        ("openrlhf", "ENT001", "set --actor.entropy_coef 0"),
        ("ms-swift", "ENT001", "set log_entropy=True"),
        ("open-instruct", "ENT001", "set record_entropy=True"),
        ("slime", "KLD002", "train/kl_loss; to enable it, set --use-kl-loss and --kl-loss-coef 0"),
        ("slime", "REW003", "set --eval-prompt-data and --eval-interval"),
        ("skyrl", "KLD002", "set trainer.algorithm.use_kl_loss=true"),
        ("skyrl", "REW003", "trainer.eval_interval above 0"),
        ("nemo-rl", "REW003", "set grpo.val_period above 0"),
        ("tinker-cookbook", "KLD001", "kl_pre_post_v1; to enable it, set compute_post_kl=True"),
        (
            "verl",
            "GRP001",
            "but its rollout dumps contain it; to write one, set trainer.rollout_data_dir",
        ),
        (
            "verl",
            "INS001",
            "a rollout dump alongside the log; to write one, set trainer.rollout_data_dir",
        ),
        (
            "trl",
            "INS001",
            "a rollout dump alongside the log; to write one, set log_completions=True",
        ),
        ("slime", "INS001", "a rollout dump alongside the log; to write one, set --dump-details"),
        ("tinker-cookbook", "ENT001", "logs it as optim/entropy"),
    ],
)
def test_the_setting_that_logs_a_metric_is_named(framework: str, code: str, said: str) -> None:
    need = rule_of(code).inputs[0]
    assert said in how_to_log(framework, (need,) if isinstance(need, str) else need)


@pytest.mark.parametrize(
    ("framework", "code", "key"),
    [
        # Other rows of these keys hold under losses that are never the default.
        ("verl", "CLP001", "verl logs it as actor/pg_clipfrac"),
        ("trl", "GRP004", "TRL GRPOTrainer logs it as frac_reward_zero_std since 0.18"),
        ("verl", "ENT001", "verl logs it as actor/entropy"),
    ],
)
def test_default_settings_are_not_named_as_conditions(framework: str, code: str, key: str) -> None:
    need = rule_of(code).inputs[0]
    assert how_to_log(framework, (need,) if isinstance(need, str) else need) == key


def test_alternatives_are_those_that_the_framework_logs() -> None:
    inputs = ("accuracy/heldout", "reward/heldout", "accuracy/train")
    assert how_to_enable(inputs, "tinker-cookbook").endswith(
        "alternative metrics: reward/heldout, accuracy/train"
    )
    assert how_to_enable(inputs, "trl").endswith("alternative metrics: reward/heldout")
    ends = ("length/max", "length/end_tokens")
    assert how_to_enable(ends, "tinker-cookbook") == "tinker-cookbook does not log this"
    assert how_to_enable(ends, "").endswith("alternative metrics: length/end_tokens")
