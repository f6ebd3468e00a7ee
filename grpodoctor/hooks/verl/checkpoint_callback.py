"""verl's `trainer.checkpoint_callback_class`: the whole configuration, resumed step, checkpoints.

verl imports this module by the class's name and makes one object in its driver. It needs no base
class of verl. Exceptions of the callback would abort the training, so everything runs through the
guard.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from grpodoctor.hooks.verl.driver_recorder import DriverRecorder, driver_recorder


class RecordCheckpoints:
    """Begins the driver's record with verl's configuration, and notes each checkpoint.

    Args:
        config: verl's configuration.
    """

    def __init__(self, config: Any = None) -> None:
        recorder = driver_recorder()
        if recorder is not None:
            recorder.hook.guard.run("configuration", _begin, recorder, config)

    def on_save(
        self,
        trainer: Any,  # noqa: ARG002 - verl's signature
        global_step: int,
        checkpoint_dir: str,
        async_save: bool = False,  # noqa: ARG002 - as above
        **_: Any,
    ) -> None:
        """Note a checkpoint."""
        recorder = driver_recorder()
        if recorder is not None:
            recorder.hook.guard.run("checkpoints", recorder.saved, global_step, str(checkpoint_dir))


def _begin(recorder: DriverRecorder, config: Any) -> None:
    omega: Any = import_module("omegaconf").OmegaConf
    values = omega.to_container(config, resolve=True)
    model = omega.select(config, "actor_rollout_ref.model.path")
    recorder.begin(values, str(model or ""), resumed_step(config.trainer))


def resumed_step(trainer: Any) -> int:
    """The step of the checkpoint that verl will load; 0 if it starts from scratch.

    Args:
        trainer: verl's section `trainer`.
    """
    mode = trainer.get("resume_mode", "disable")
    folder = None
    if mode == "auto" and Path(trainer.default_local_dir).is_dir():
        manager: Any = import_module("verl.utils.checkpoint.checkpoint_manager")
        folder = manager.find_latest_ckpt_path(str(Path(trainer.default_local_dir).absolute()))
    elif mode == "resume_path":
        folder = trainer.resume_from_path
    number = str(folder or "").rstrip("/").rpartition("global_step_")[2]
    return int(number) if number.isdecimal() else 0
