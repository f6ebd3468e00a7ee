"""What a skipped rule tells its user to log, in the words of the framework that wrote the log."""

from __future__ import annotations

import pytest

from grpodoctor.frameworks.logging_advice import feeding
from grpodoctor.rules.catalogue import rule_of


@pytest.mark.parametrize(
    ("framework", "code", "said"),
    [
        ("verl", "MIS001", "training/rollout_probs_diff_max: set actor_rollout_ref.rollout."),
        ("verl", "KLD002", "actor/kl_loss: set actor_rollout_ref.actor.use_kl_loss=True"),
        ("verl", "REW003", "val-core/<path>/mean@<n>: set trainer.test_freq above 0"),
        ("trl", "KLD002", "logs it as kl: set beta above 0"),
        ("trl", "REW003", "eval_reward: give an eval_dataset and set eval_strategy"),
        ("trl", "ENT001", "entropy since 0.20"),
        ("trl", "CLP001", "clip_ratio/high_mean since 0.17"),
        ("trl", "MIS004", "set use_vllm=True and vllm_importance_sampling_correction=True"),
        ("openrlhf", "ENT001", "set --actor.entropy_coef 0"),
        ("ms-swift", "ENT001", "set log_entropy=True"),
        ("open-instruct", "ENT001", "set record_entropy=True"),
        ("slime", "KLD002", "train/kl_loss: set --use-kl-loss"),
        ("slime", "REW003", "set --eval-prompt-data and --eval-interval"),
        ("skyrl", "KLD002", "set trainer.algorithm.use_kl_loss=true"),
        ("skyrl", "REW003", "trainer.eval_interval above 0"),
        ("nemo-rl", "REW003", "set grpo.val_period above 0"),
        ("tinker-cookbook", "KLD001", "kl_pre_post_v1: set compute_post_kl=True"),
        ("verl", "GRP001", "but a rollout dump beside the log does: set trainer.rollout_data_dir"),
        ("verl", "INS001", "a rollout dump beside the log: set trainer.rollout_data_dir"),
        ("trl", "INS001", "a rollout dump beside the log: set log_completions=True"),
        ("slime", "INS001", "a rollout dump beside the log: set --dump-details"),
        ("tinker-cookbook", "ENT001", "logs it as optim/entropy"),
    ],
)
def test_the_flag_that_makes_it_logged_is_named(framework: str, code: str, said: str) -> None:
    need = rule_of(code).inputs[0]
    assert said in feeding(framework, (need,) if isinstance(need, str) else need)


@pytest.mark.parametrize(
    ("framework", "code", "key"),
    [
        # Other rows of these keys hold under losses that nobody has by default.
        ("verl", "CLP001", "verl logs it as actor/pg_clipfrac"),
        ("trl", "GRP004", "TRL GRPOTrainer logs it as frac_reward_zero_std since 0.18"),
        ("verl", "ENT001", "verl logs it as actor/entropy"),
    ],
)
def test_what_is_so_by_default_is_no_condition(framework: str, code: str, key: str) -> None:
    need = rule_of(code).inputs[0]
    assert feeding(framework, (need,) if isinstance(need, str) else need) == key
