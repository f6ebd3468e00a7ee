"""`grpodoctor.Callback`, for scripts that build their trainer with a list of callbacks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from grpodoctor.hooks.guard import Guard
from grpodoctor.hooks.run_hook import HookOptions, RunHook, hook_options
from grpodoctor.hooks.trl.log_listener import LogListener
from grpodoctor.hooks.trl.training_events import TrainingEvents
from grpodoctor.treatment.doctor import Apply


class Callback(TrainerCallback):
    """Records what TRL logs: `GRPOTrainer(..., callbacks=[grpodoctor.Callback()])`.

    With `log_completions=True`, it also measures the texts and rewards in TRL's completion files.
    A callback does not see the trainer. `grpodoctor.attach(trainer)` also records the tokens, their
    log-probabilities and advantages, and can change more than the learning rate.

    Args:
        run_dir: directory to record in; by default `grpodoctor` in the output directory.
        apply: remedies to apply without a person: `none`, `safe` or `unsafe`.
    """

    def __init__(
        self, run_dir: str | os.PathLike[str] | None = None, apply: Apply = "none"
    ) -> None:
        self._options = hook_options(run_dir, apply, "off", 0)
        self._events: TrainingEvents | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Open the run directory."""
        self._events = Guard().run("callback", _events, self._options, args)
        if self._events is not None:
            self._events.on_train_begin(args, state, control, **kwargs)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Put requested changes in force."""
        if self._events is not None:
            self._events.on_step_begin(args, state, control, **kwargs)

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Record the row."""
        if self._events is not None:
            self._events.on_log(args, state, control, **kwargs)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Close the run."""
        if self._events is not None:
            self._events.on_train_end(args, state, control, **kwargs)


def _events(options: HookOptions, args: Any) -> TrainingEvents:
    hook = RunHook("trl", options, Path(args.output_dir or ".") / "grpodoctor")
    return TrainingEvents(hook.guard, LogListener(hook, reads_files=True))
