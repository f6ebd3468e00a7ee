"""The adapter for TRL's GRPO trainers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from grpodoctor.hooks.adapter import class_names
from grpodoctor.hooks.transformers_adapter import TransformersAdapter
from grpodoctor.hooks.trl import private_names

if TYPE_CHECKING:
    from grpodoctor.hooks.run_hook import RunHook
    from grpodoctor.hooks.trl.training_events import Listener

_PLAIN = "trl.trainer.grpo_trainer.GRPOTrainer"
_OTHERS = ("GRPOTrainer", "AsyncGRPOTrainer", "UnslothGRPOTrainer")
_TOKENS = "advantages, log-probabilities and entropies of single tokens, and optimizer steps"
_RESPONSES = "texts, tokens and rewards of single responses"
_KNOBS = "live changes of settings other than the learning rate"


class TrlAdapter(TransformersAdapter):
    """Observes a `GRPOTrainer`: with every token on a verified version, else from its log."""

    framework = "trl"
    output_dir = "trainer_output"
    verified_versions = private_names.VERIFIED
    instructions = """\
import grpodoctor

trainer = GRPOTrainer(...)
grpodoctor.attach(trainer)  # the only new line
trainer.train()

# with Axolotl, in its configuration instead:
#   plugins:
#     - grpodoctor.hooks.trl.axolotl_plugin.GrpodoctorPlugin

# in another terminal, with the output_dir of the trainer's arguments:
#   grpodoctor watch OUTPUT_DIR/grpodoctor
"""

    @classmethod
    def recognizes(cls, trainer: object) -> bool:
        """Whether the trainer, or a class that it extends, is a GRPO trainer of TRL."""
        return any(name.rpartition(".")[2] in _OTHERS for name in class_names(trainer))

    def callback(self, hook: RunHook) -> object:
        """The callback, and on a verified version the taps."""
        from grpodoctor.hooks.trl.training_events import TrainingEvents

        return TrainingEvents(hook.guard, self._listener(hook))

    def _listener(self, hook: RunHook) -> Listener:
        reason = self._obstacle()
        if reason:
            return self._public_listener(hook, reason)
        from grpodoctor.hooks.trl.tap_listener import TapListener

        if private_names.has_other_loss(self.trainer):
            hook.missing("entropy, ratios and clipping of single tokens", "use_liger_kernel=True")
        return TapListener(hook, self.trainer)

    def _public_listener(self, hook: RunHook, reason: str) -> Listener:
        """Reads the log rows, and the responses from the reward functions' calls or from files."""
        from grpodoctor.hooks.trl.log_listener import LogListener
        from grpodoctor.hooks.trl.reward_calls import RewardCalls

        hook.missing((_TOKENS, _KNOBS), reason)
        calls = RewardCalls(self.trainer, hook.guard)
        if not calls.obstacle:
            return LogListener(hook, calls=calls)
        if getattr(self.trainer.args, "log_completions", False):  # type: ignore[attr-defined]
            hook.missing("tokens and lengths of single responses", calls.obstacle)
        else:
            hook.missing(_RESPONSES, f"{calls.obstacle}; log_completions=True records the texts")
        return LogListener(hook, reads_files=True)

    def _obstacle(self) -> str:
        """Why only the log can be read; empty if the taps fit."""
        version = private_names.installed_version()
        if not private_names.is_verified(version):
            known = ", ".join(private_names.VERIFIED)
            return (
                f"TRL {version or 'of unknown version'} is not among the verified versions {known}"
            )
        if _PLAIN not in class_names(self.trainer):
            return f"{type(self.trainer).__name__} does not extend TRL's GRPOTrainer"
        unknown = private_names.unknown_names(self.trainer)
        if unknown:
            return f"{type(self.trainer).__name__} differs from GRPOTrainer in {unknown[0]}"
        return ""
