"""Records what ms-swift's GRPO trainer logs, and changes its knobs in place."""

from __future__ import annotations

from typing import Any

from grpodoctor.frameworks.ms_swift.metrics import FRAMEWORK
from grpodoctor.hooks.live_knobs import word_for
from grpodoctor.hooks.logged_steps import note_version, package_version
from grpodoctor.hooks.ms_swift.verified import VERIFIED
from grpodoctor.hooks.run_hook import RunHook
from grpodoctor.hooks.trl.log_listener import LogListener
from grpodoctor.hooks.trl.training_events import TrainingEvents

_CLIPPED = frozenset({"grpo", "bnpo", "dr_grpo", "dapo"})
"""Losses that clip the ratio on both sides; `epsilon_high` is a distance from 1 in these."""
_ATTRIBUTES = ("loss_type", "epsilon_low", "epsilon_high", "beta", "overlong_filter")
"""Attributes that the loss of a verified version reads at each call."""


_IS_MASKED = {"mask": True, "none": False}


class SwiftListener(LogListener):
    """Records a step for each row.

    Args:
        hook: the recorder.
        trainer: a `GRPOTrainer` of ms-swift; its constructor may still be running.
    """

    def __init__(self, hook: RunHook, trainer: Any) -> None:
        super().__init__(hook, FRAMEWORK, package_version("ms_swift"))
        self._trainer = trainer
        note_version(hook, FRAMEWORK.title, self._version, VERIFIED)

    def add_knobs(self, args: Any, objects: dict[str, Any]) -> None:
        """Register the learning rate, and what the loss reads from the trainer at each call."""
        super().add_knobs(args, objects)
        if self._version in VERIFIED and not getattr(args, "use_liger_kernel", False):
            self._hook.guard.run("knobs", self._add_loss_knobs)

    def _add_loss_knobs(self) -> None:
        trainer, knobs = self._trainer, self._hook.knobs
        if any(not hasattr(trainer, name) for name in _ATTRIBUTES):
            return
        if trainer.loss_type in _CLIPPED:
            self._add_number("clip_low", "epsilon_low")
            self._add_number("clip_high", "epsilon_high")
        if trainer.beta:  # the reference model was loaded at the start
            self._add_number("kl_coefficient", "beta")
        knobs.add(
            "overlong",
            get=lambda: "mask" if trainer.overlong_filter else "none",
            set=lambda setting: setattr(
                trainer, "overlong_filter", word_for(setting, _IS_MASKED, "overlong_filter")
            ),
        )

    def _add_number(self, knob: str, attribute: str) -> None:
        trainer = self._trainer
        self._hook.knobs.add(
            knob,
            get=lambda: float(getattr(trainer, attribute)),
            set=lambda value: setattr(trainer, attribute, float(value)),
        )


def swift_events(hook: RunHook, trainer: Any) -> TrainingEvents:
    """The callback that records a trainer."""
    hook.missing(
        "values of single tokens and responses", "ms-swift logs means; see --log_completions"
    )
    return TrainingEvents(hook.guard, SwiftListener(hook, trainer))
