"""The base of adapters for trainers that extend the trainer of transformers."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from grpodoctor.errors import RunError
from grpodoctor.hooks.adapter import Adapter

if TYPE_CHECKING:
    from grpodoctor.hooks.run_hook import RunHook


class TransformersAdapter(Adapter):
    """Adds a callback to a trainer."""

    output_dir: ClassVar[str]
    """The framework's default for `output_dir`."""

    def default_run_dir(self) -> Path:
        """A directory in the trainer's output directory."""
        args: Any = getattr(self.trainer, "args", None)
        return Path(getattr(args, "output_dir", None) or self.output_dir) / "grpodoctor"

    def install(self, hook: RunHook) -> None:
        """Add the callback.

        Raises:
            RunError: if the training has begun.
        """
        trainer: Any = self.trainer
        if getattr(trainer, "is_in_train", False):
            raise RunError("the training has begun", remedy="attach before trainer.train()")
        trainer.add_callback(self.callback(hook))

    @abstractmethod
    def callback(self, hook: RunHook) -> object:
        """The callback; it may also observe methods of the trainer."""
