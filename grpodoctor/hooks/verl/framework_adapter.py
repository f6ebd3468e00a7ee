"""The adapter for verl, which is connected by its settings."""

from __future__ import annotations

from grpodoctor.hooks.adapter import SettingsAdapter


class VerlAdapter(SettingsAdapter):
    """Refuses a trainer of verl: its loss runs in workers, which load a plugin instead."""

    framework = "verl"
    package = "verl"
    reason = "verl computes its loss in other processes"
    verified_versions = ("0.9.1",)
    instructions = """\
# The log and the responses, for grpodoctor check and watch:
export VERL_FILE_LOGGER_PATH=/shared/RUN/log.jsonl
  'trainer.logger=["console","file"]'
  trainer.rollout_data_dir=/shared/RUN/rollouts

# The tokens of the policy loss, and its clip while the training runs:
export VERL_USE_EXTERNAL_PLUGINS=grpodoctor
export GRPODOCTOR_VERL_RUN_DIR=/shared/RUN/tokens
export GRPODOCTOR_VERL_UPDATES_PER_STEP=1   # train_batch_size / ppo_mini_batch_size * ppo_epochs
  actor_rollout_ref.actor.policy_loss.loss_mode=grpodoctor_vanilla   # grpodoctor_ + your loss

# Checkpoints and the whole configuration, from the driver:
  trainer.checkpoint_callback_class=grpodoctor.hooks.verl.checkpoint_callback.RecordCheckpoints

# Rewards, groups and advantages, from the driver; not for grpo, gae, gdpo and remax:
#   algorithm.adv_estimator=grpodoctor_rloo   # grpodoctor_ + your estimator

# If Ray was started earlier, pass each exported variable to its workers as well:
  +ray_kwargs.ray_init.runtime_env.env_vars.GRPODOCTOR_VERL_RUN_DIR=/shared/RUN/tokens

# In other terminals:
#   grpodoctor watch /shared/RUN
#   grpodoctor watch /shared/RUN/tokens --apply safe
"""
