"""The adapter for slime, which is connected by its arguments."""

from __future__ import annotations

from grpodoctor.hooks.adapter import SettingsAdapter
from grpodoctor.hooks.slime.rollout_log import VERIFIED


class SlimeAdapter(SettingsAdapter):
    """Refuses objects of slime: its rollout manager imports two functions instead."""

    framework = "slime"
    package = "slime"
    reason = "slime samples and trains in other processes"
    verified_versions = VERIFIED
    instructions = """\
# Two more arguments of train.py; slime still logs as before:
  --custom-rollout-log-function-path grpodoctor.hooks.slime.rollout_log.log_rollout
  --custom-eval-rollout-log-function-path grpodoctor.hooks.slime.rollout_log.log_evaluation

# in other terminals:
#   grpodoctor watch SAVE/grpodoctor   the responses; SAVE is the directory of --save
#   grpodoctor watch LOG               the training, from its console or TensorBoard log
"""
