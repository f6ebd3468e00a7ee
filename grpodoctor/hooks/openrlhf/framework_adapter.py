"""The adapter for OpenRLHF, which is followed by its log.

What OpenRLHF offers outsiders, a reward function and an agent, runs in the engines' processes. None
of them knows the training step, so their responses cannot be assigned to the steps of the log.
"""

from __future__ import annotations

from grpodoctor.hooks.adapter import SettingsAdapter


class OpenRlhfAdapter(SettingsAdapter):
    """Refuses objects of OpenRLHF, and names the log to follow."""

    framework = "openrlhf"
    package = "openrlhf"
    reason = "OpenRLHF has no hook that knows the training step"
    verified_versions = ("0.11.2",)
    instructions = """\
# One more argument of openrlhf.cli.train_ppo_ray; there is no hook, so the log is followed:
  --logger.tensorboard_dir /shared/RUN/tensorboard

# in another terminal:
#   grpodoctor watch /shared/RUN/tensorboard
"""
