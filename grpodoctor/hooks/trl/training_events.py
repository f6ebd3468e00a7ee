"""The events of a training, as transformers' callbacks report them."""

from __future__ import annotations

from typing import Any, Protocol

from transformers import TrainerCallback

from grpodoctor.hooks.guard import Guard


class Listener(Protocol):
    """Receives the events of a training."""

    def train_begin(self, args: Any, state: Any, objects: dict[str, Any]) -> None:
        """The optimizer and the scheduler exist, and no step is done yet."""

    def step_begin(self, state: Any) -> None:
        """An optimizer step begins."""

    def before_update(self, objects: dict[str, Any]) -> None:
        """The gradients are complete and clipped."""

    def step_end(self, state: Any) -> None:
        """An optimizer step is done and counted."""

    def log(self, state: Any, row: dict[str, Any]) -> None:
        """A row is logged."""

    def train_end(self) -> None:
        """The training is complete."""


class TrainingEvents(TrainerCallback):
    """Passes the events on, behind the boundary.

    Args:
        guard: the boundary.
        listener: receives the events.
    """

    def __init__(self, guard: Guard, listener: Listener) -> None:
        self._guard, self._listener = guard, listener

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002 - transformers' signature, here and below
        """The training begins."""
        self._guard.run("start", self._listener.train_begin, args, state, kwargs)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """An optimizer step begins."""
        self._guard.run("step", self._listener.step_begin, state)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """The weights are about to change."""
        self._guard.run("updates", self._listener.before_update, kwargs)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """An optimizer step is done."""
        self._guard.run("step", self._listener.step_end, state)

    def on_log(
        self,
        args: Any,  # noqa: ARG002
        state: Any,
        control: Any,  # noqa: ARG002
        logs: dict[str, Any] | None = None,
        **kwargs: Any,  # noqa: ARG002
    ) -> None:
        """A row is logged."""
        self._guard.run("log", self._listener.log, state, dict(logs or {}))

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """The training is complete."""
        self._guard.run("end", self._listener.train_end)
