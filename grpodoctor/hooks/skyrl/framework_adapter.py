"""The adapter for SkyRL's trainer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpodoctor.errors import RunError
from grpodoctor.hooks.adapter import Adapter, class_names
from grpodoctor.hooks.logged_steps import note_version, package_version

if TYPE_CHECKING:
    from grpodoctor.hooks.run_hook import RunHook

_TRAINER = "skyrl.train.trainer.RayPPOTrainer"
_ASYNC = "skyrl.train.fully_async_trainer.FullyAsyncRayPPOTrainer"
_RESPONSES, _ADVANTAGES = "postprocess_generator_output", "compute_advantages_and_returns"
_TOKENS = "values of single tokens and responses"


class SkyrlAdapter(Adapter):
    """Records the rows of a `RayPPOTrainer`, with responses, advantages and log-probabilities."""

    framework = "skyrl"
    verified_versions = ("0.3.0",)
    instructions = """\
# Train with SkyRL's own entry point and one more setting:
python -m skyrl.train.entrypoints.main_base \\
  trainer.override_entrypoint=grpodoctor.hooks.skyrl.entrypoint ...

# Or attach in a get_trainer of your own:
class Experiment(BasePPOExp):
    def get_trainer(self, *args, **kwargs):
        trainer = super().get_trainer(*args, **kwargs)
        grpodoctor.attach(trainer)
        return trainer

# in another terminal, with your trainer.export_path:
#   grpodoctor watch EXPORT_PATH/grpodoctor --apply safe
"""

    @classmethod
    def recognizes(cls, trainer: object) -> bool:
        """Whether the trainer is, or extends, SkyRL's."""
        return _TRAINER in class_names(trainer)

    def default_run_dir(self) -> Path:
        """A directory in the trainer's export path."""
        trainer: Any = self.trainer
        return Path(trainer.cfg.trainer.export_path) / "grpodoctor"

    def install(self, hook: RunHook) -> None:
        """Add the callback, and on a verified version observe the generator's output.

        Raises:
            RunError: if the trainer calls no callbacks, or if the training has begun.
        """
        trainer: Any = self.trainer
        if _ASYNC in class_names(trainer):
            remedy = "set trainer.logger and follow the log with grpodoctor watch"
            raise RunError("SkyRL's asynchronous trainer calls no callbacks", remedy=remedy)
        if trainer.global_step:
            raise RunError("the training has begun", remedy="attach before trainer.train()")
        from grpodoctor.hooks.skyrl.skyrl_callback import skyrl_callback

        version = package_version("skyrl")
        note_version(hook, "SkyRL", version, self.verified_versions)
        callback = skyrl_callback(hook, version)
        reason = self._obstacle(version)
        if reason:
            hook.missing(_TOKENS, reason)
        else:
            taps = {_RESPONSES: callback.generated, _ADVANTAGES: callback.estimated}
            for name, observe in taps.items():
                setattr(trainer, name, hook.guard.after(getattr(trainer, name), "tokens", observe))
        trainer.add_callback(callback)

    def _obstacle(self, version: str) -> str:
        """Why the responses are not recorded; empty if they are."""
        trainer: Any = self.trainer
        if version not in self.verified_versions:
            return "the batches of this version are not verified"
        if trainer.cfg.generator.step_wise_trajectories:
            return "generator.step_wise_trajectories=true trains on single turns"
        return ""
