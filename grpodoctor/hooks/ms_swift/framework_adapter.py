"""The adapter for ms-swift's GRPO trainer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from grpodoctor.hooks.adapter import class_names
from grpodoctor.hooks.ms_swift.verified import VERIFIED
from grpodoctor.hooks.transformers_adapter import TransformersAdapter

if TYPE_CHECKING:
    from grpodoctor.hooks.run_hook import RunHook

_TRAINER = "swift.rlhf_trainers.grpo_trainer.GRPOTrainer"


class SwiftAdapter(TransformersAdapter):
    """Records what a `GRPOTrainer` of ms-swift logs, and changes its clip and learning rate."""

    framework = "ms-swift"
    output_dir = "output"
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

    def callback(self, hook: RunHook) -> object:
        """The callback."""
        from grpodoctor.hooks.ms_swift.swift_listener import swift_events

        return swift_events(hook, self.trainer)
