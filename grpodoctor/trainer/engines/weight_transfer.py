"""Transfers the learner's weights to an engine in another process through a file."""

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
    """A private directory that holds the most recently written weights.

    Args:
        parent: its parent directory; empty for shared memory, or the temporary folder without it.

    Raises:
        EngineError: if the directory cannot be created.
    """

    def __init__(self, parent: str) -> None:
        folder = Path(parent) if parent else _SHARED_MEMORY
        if not parent and not folder.is_dir():
            folder = Path(tempfile.gettempdir())
        try:
            self.path = Path(tempfile.mkdtemp(prefix="grpodoctor-sync-", dir=folder))
        except OSError as error:
            raise _unwritable(folder, error) from error
        self._latest: Path | None = None
        self._remove = weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)

    def write(self, weights: Iterable[tuple[str, Tensor]], step: int) -> tuple[Path, int]:
        """Write weights to a new file; returns its path and the number of tensors.

        The previous file is removed after the new one is written.

        Raises:
            EngineError: if it cannot be written.
        """
        from safetensors import SafetensorError
        from safetensors.torch import save_file

        path = self.path / f"weights-{step:06d}.safetensors"
        tensors = {name: tensor.contiguous() for name, tensor in weights}
        partial = path.with_suffix(".partial")
        try:
            save_file(tensors, partial)
            if self._latest is not None:
                self._latest.unlink(missing_ok=True)
            partial.rename(path)
        except (OSError, SafetensorError) as error:
            raise _unwritable(self.path, error) from error
        self._latest = path
        return path, len(tensors)

    def latest(self) -> dict[str, Tensor]:
        """The most recently written weights; empty before the first `write`."""
        from safetensors.torch import load_file

        return {} if self._latest is None else load_file(self._latest)

    def close(self) -> None:
        """Remove the directory."""
        self._remove()


def _unwritable(path: Path, error: Exception) -> EngineError:
    return EngineError(
        f"the weights cannot be written for vLLM: {error}",
        where=str(path)[:200],
        remedy="set engine.sync_dir to a directory with space for the whole model",
    )
