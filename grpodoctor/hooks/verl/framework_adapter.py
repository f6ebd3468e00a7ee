"""The adapter for verl, which is connected by its settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from grpodoctor.errors import RunError
from grpodoctor.hooks.adapter import Adapter, class_names

if TYPE_CHECKING:
    from grpodoctor.hooks.run_hook import RunHook

_MODULES = "verl."


class VerlAdapter(Adapter):
    """Refuses a trainer of verl: its loss runs in workers, which load a plugin instead."""

    framework = "verl"
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

# If Ray was started earlier, pass each exported variable to its workers as well:
  +ray_kwargs.ray_init.runtime_env.env_vars.GRPODOCTOR_VERL_RUN_DIR=/shared/RUN/tokens

# In other terminals:
#   grpodoctor watch /shared/RUN
#   grpodoctor watch /shared/RUN/tokens --apply safe
"""

    @classmethod
    def recognizes(cls, trainer: object) -> bool:
        """Whether the object is a trainer of verl, or extends one."""
        return any(name.startswith(_MODULES) and "Trainer" in name for name in class_names(trainer))

    def default_run_dir(self) -> Path:
        """The directory that a refused trainer does not use."""
        return Path("verl") / "grpodoctor"

    def install(self, hook: RunHook) -> None:  # noqa: ARG002 - nothing to install
        """Refuse.

        Raises:
            RunError: always; the message names the way that works.
        """
        raise RunError(
            "verl computes its loss in other processes",
            remedy="connect it by its settings: grpodoctor attach --framework verl",
        )
