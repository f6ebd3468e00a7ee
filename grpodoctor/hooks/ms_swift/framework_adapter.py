"""The adapter for ms-swift's GRPO trainer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpodoctor.errors import RunError
from grpodoctor.hooks.adapter import Adapter, class_names
from grpodoctor.hooks.ms_swift.verified import VERIFIED

if TYPE_CHECKING:
    from grpodoctor.hooks.run_hook import RunHook

_TRAINER = "swift.rlhf_trainers.grpo_trainer.GRPOTrainer"


class SwiftAdapter(Adapter):
    """Records what a `GRPOTrainer` of ms-swift logs, and changes its clip and learning rate."""

    framework = "ms-swift"
    verified_versions = VERIFIED
    instructions = """\
echo 'import grpodoctor.hooks.ms_swift.plugin' > grpodoctor_plugin.py

swift rlhf --rlhf_type grpo ... \\
  --external_plugins grpodoctor_plugin.py \\
  --callbacks grpodoctor \\
  --log_completions true

# in another terminal, with the output_dir that swift prints:
#   grpodoctor watch OUTPUT_DIR/grpodoctor --apply safe
"""

    @classmethod
    def recognizes(cls, trainer: object) -> bool:
        """Whether the trainer is, or extends, ms-swift's; it also extends TRL's."""
        return _TRAINER in class_names(trainer)

    def default_run_dir(self) -> Path:
        """A directory in the trainer's output directory."""
        args: Any = getattr(self.trainer, "args", None)
        return Path(getattr(args, "output_dir", None) or "output") / "grpodoctor"

    def install(self, hook: RunHook) -> None:
        """Add the callback.

        Raises:
            RunError: if the training has begun.
        """
        trainer: Any = self.trainer
        if getattr(trainer, "is_in_train", False):
            raise RunError("the training has begun", remedy="attach before trainer.train()")
        from grpodoctor.hooks.ms_swift.swift_listener import swift_events

        trainer.add_callback(swift_events(hook, trainer))
