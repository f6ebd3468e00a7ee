"""The callback that records a SkyRL training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from grpodoctor.frameworks.skyrl.metrics import FRAMEWORK
from grpodoctor.hooks.arrays import to_host
from grpodoctor.hooks.live_knobs import LiveKnobs, word_for
from grpodoctor.hooks.logged_steps import LoggedSteps
from grpodoctor.hooks.plain_config import plain_config
from grpodoctor.hooks.run_hook import RunHook
from grpodoctor.hooks.skyrl.rollouts import COLUMNS, Generated, rollout_batch


class SkyrlEvents:
    """Records a step for each row that the trainer logs, with the responses behind it.

    Its methods are those of SkyRL's `TrainingCallback`, which `skyrl_callback` adds as a base.

    Args:
        hook: the recorder.
        version: version of SkyRL.
    """

    def __init__(self, hook: RunHook, version: str) -> None:
        self._hook = hook
        self._steps = LoggedSteps(hook, FRAMEWORK, version)
        self._generated: Generated | None = None
        self._batch: Mapping[str, Any] | None = None

    def generated(self, result: tuple[Any, Any], *_: Any, **__: Any) -> None:
        """The generator's output of a step, with the rewards that the trainer uses.

        Args:
            result: what the trainer's `postprocess_generator_output` returned.
        """
        output, uids = result
        self._generated = Generated(dict(output), list(uids))

    def estimated(self, batch: Any, *_: Any, **__: Any) -> None:
        """The batch with its advantages, which the trainer rescales later for the loss.

        Args:
            batch: what the trainer's `compute_advantages_and_returns` returned.
        """
        columns = {name: batch.get(name) for name in COLUMNS}
        self._batch = {name: to_host(each) for name, each in columns.items() if each is not None}

    def on_train_start(self, trainer: Any, callback_input: Any, control: Any) -> None:  # noqa: ARG002 - SkyRL's signature, here and below
        """Open the run directory."""
        self._hook.guard.run("start", self._begin, trainer, callback_input.global_step)

    def _begin(self, trainer: Any, step: int) -> None:
        settings = trainer.cfg.trainer
        _add_advantage(self._hook.knobs, settings.algorithm)
        model, seed = str(settings.policy.model.path), settings.seed
        self._steps.begin(plain_config(trainer.cfg), model=model, seed=seed, resume=step > 0)

    def on_step_start(self, trainer: Any, callback_input: Any, control: Any) -> None:  # noqa: ARG002
        """Put requested changes in force."""
        self._hook.guard.run("step", self._steps.begin_step, callback_input.global_step)

    def on_log(self, trainer: Any, callback_input: Any, control: Any) -> None:  # noqa: ARG002
        """Record the step; an evaluation before the training is a separate step."""
        self._hook.guard.run("log", self._log, trainer, callback_input)

    def _log(self, trainer: Any, callback_input: Any) -> None:
        step = callback_input.global_step
        generated, batch = self._generated, self._batch
        self._generated = self._batch = None
        rollouts = None
        if generated is not None and batch is not None:
            part = ("tokens", rollout_batch)
            rollouts = self._hook.guard.run(*part, step, generated, batch, trainer.tokenizer)
        self._steps.add(step, callback_input.logs or {})
        self._steps.end_step(rollouts)

    def on_train_end(self, trainer: Any, callback_input: Any, control: Any) -> None:  # noqa: ARG002
        """Close the run."""
        self._hook.guard.run("end", self._steps.close)


def skyrl_callback(hook: RunHook, version: str) -> SkyrlEvents:
    """The callback as an object of SkyRL's class.

    Args:
        hook: the recorder.
        version: version of SkyRL.
    """
    from skyrl.train.utils.callbacks import TrainingCallback

    kind = type("SkyrlCallback", (SkyrlEvents, TrainingCallback), {})
    callback: SkyrlEvents = kind(hook, version)
    return callback


def _add_advantage(knobs: LiveKnobs, algorithm: Any) -> None:
    """Register the normalization by the standard deviation.

    Advantages are computed in the trainer's process. Workers have copies of all other settings.
    """
    if str(algorithm.advantage_estimator) != "grpo":
        return
    scaled = {"group": True, "centred": False}
    knobs.add(
        "advantage",
        get=lambda: "group" if algorithm.grpo_norm_by_std else "centred",
        set=lambda setting: setattr(
            algorithm, "grpo_norm_by_std", word_for(setting, scaled, "algorithm.grpo_norm_by_std")
        ),
    )
