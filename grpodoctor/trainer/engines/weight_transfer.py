"""Handing the learner's weights over to an engine in another process, through a file."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterable
from pathlib import Path

from torch import Tensor

from grpodoctor.errors import EngineError

_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - a private directory is made in it


class WeightFiles:
    """A private directory with the weights published last.

    Args:
        parent: where it is made; empty takes shared memory where there is any.

    Raises:
        EngineError: if it cannot be made.
    """

    def __init__(self, parent: str) -> None:
        place = Path(parent) if parent else _SHARED_MEMORY
        if not parent and not place.is_dir():
            place = Path(tempfile.gettempdir())
        try:
            self.path = Path(tempfile.mkdtemp(prefix="grpodoctor-sync-", dir=place))
        except OSError as error:
            raise _unwritable(place, error) from error
        self._latest: Path | None = None
        self._remove = weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)

    def publish(self, weights: Iterable[tuple[str, Tensor]], step: int) -> tuple[Path, int]:
        """Write weights to a file of their own; returns it and how many tensors it holds.

        What was published before is removed, once the new file stands.

        Raises:
            EngineError: if it cannot be written.
        """
        from safetensors import SafetensorError
        from safetensors.torch import save_file

        path = self.path / f"weights-{step:06d}.safetensors"
        tensors = {name: tensor.contiguous() for name, tensor in weights}
        aside = path.with_suffix(".partial")
        try:
            save_file(tensors, aside)
            if self._latest is not None:
                self._latest.unlink(missing_ok=True)
            aside.rename(path)
        except (OSError, SafetensorError) as error:
            raise _unwritable(self.path, error) from error
        self._latest = path
        return path, len(tensors)

    def latest(self) -> dict[str, Tensor]:
        """What was published last; nothing if that was never."""
        from safetensors.torch import load_file

        return {} if self._latest is None else load_file(self._latest)

    def close(self) -> None:
        """Remove the directory."""
        self._remove()


def _unwritable(path: Path, error: Exception) -> EngineError:
    return EngineError(
        f"the weights cannot be handed over to vLLM: {error}",
        where=str(path)[:200],
        remedy="set engine.sync_dir to a directory with room for the whole model",
    )
