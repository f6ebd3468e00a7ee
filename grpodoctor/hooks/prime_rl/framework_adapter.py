"""The adapter for prime-rl, which is connected by its settings."""

from __future__ import annotations

from grpodoctor.hooks.adapter import SettingsAdapter
from grpodoctor.hooks.prime_rl.loss_recorder import VERIFIED


class PrimeRlAdapter(SettingsAdapter):
    """Refuses objects of prime-rl: its trainer imports the observed loss instead."""

    framework = "prime-rl"
    package = "prime_rl"
    reason = "prime-rl computes its loss in other processes"
    verified_versions = VERIFIED
    instructions = """\
# In the configuration: a loss that calls prime-rl's own and records what it sees.
[trainer.loss]
type = "custom"
import_path = "grpodoctor.hooks.prime_rl.observed_loss.loss"

[trainer.loss.kwargs]
loss = "default"                      # or "ipo", or the import path of your own
run_dir = "/shared/RUN/tokens"
# and the settings of the loss, such as dppo_mask_low = 0.2, kl_tau = 1e-3

# in other terminals, with your output_dir:
#   grpodoctor watch OUTPUT_DIR          rewards, lengths and groups, from its own log
#   grpodoctor watch /shared/RUN/tokens  the trainer's tokens
"""
