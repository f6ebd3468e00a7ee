"""Checkpoints and optimizer states that a training run left next to the learner's model."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from grpodoctor.errors import ModelError
from grpodoctor.probe.inputs.checksums import Checkpoint, open_checkpoint

OPTIMIZER_FILES = ("optimizer.pt", "optimizer.bin")
"""Names of an optimizer's state: of the Trainer of transformers, and of accelerate."""
MOST_CHECKPOINTS = 3
_MOST_ENTRIES = 10_000
"""Entries of a folder that are read."""
_ANCESTORS = 4
"""Folders above a model among which a numbered one is searched, such as
`global_step_20/actor/huggingface`."""
_TAILS = ("", "huggingface", "hf", "actor/huggingface", "policy/huggingface", "model")
"""Places of a model in a checkpoint's folder."""
_MOST_COMPARED_BYTES = 1 << 30
_NUMBERED = re.compile(
    r"(checkpoint|ckpt|global_?step|step|iter|iteration|update|epoch)[-_]?0*(\d+)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Neighbors:
    """What a run left next to a model."""

    checkpoints: tuple[Path, ...] = ()
    """Earlier checkpoints of the model with the same tensors, newest first."""
    optimizer: Path | None = None
    """The file of the optimizer's state after the model's last update."""

    @property
    def all(self) -> tuple[Path, ...]:
        """All of them, the optimizer's state first."""
        return (*(() if self.optimizer is None else (self.optimizer,)), *self.checkpoints)


def neighbors_of(model: Path) -> Neighbors:
    """What a run left next to a model's directory; nothing if it cannot be read.

    Numbered folders next to the model, or to a folder above it, are checkpoints of its run. If no
    folder has the model's number, those inside of the model's folder, and next to it, are, and one
    with the model's weights is the model's own.
    """
    try:
        return _neighbors(model.resolve())
    except (OSError, ModelError, RuntimeError):
        return Neighbors()


def earlier_adapters(adapter: Path) -> tuple[Path, ...]:
    """Earlier LoRA adapters of the run with the same tensors, in numbered folders, newest first."""
    try:
        folder = adapter.resolve()
        own = open_checkpoint(str(folder)) if _has_adapter(folder) else None
        if own is None:
            return ()
        before = (each for each in _numbered_before(folder) if _has_adapter(each))
        found = (each for each in before if _has_same_tensors(own, each))
        return tuple(islice(found, MOST_CHECKPOINTS))
    except (OSError, ModelError, RuntimeError):
        return ()


def _neighbors(model: Path) -> Neighbors:
    own = open_checkpoint(str(model)) if _has_weights(model) else None
    if own is None:
        return Neighbors()
    optimizer = _optimizer_in(model)
    numbered = list(_numbered_before(model))
    if numbered:
        found = (folder for folder in numbered if _has_same_tensors(own, folder))
        return Neighbors(tuple(islice(found, MOST_CHECKPOINTS)), optimizer)
    earlier: list[Path] = []
    for folder in _numbered_around(model):
        if not _has_same_tensors(own, folder):
            continue
        if not earlier and _is_equal(own, folder):
            optimizer = optimizer or _optimizer_in(folder)
        else:
            earlier.append(folder)
        if len(earlier) == MOST_CHECKPOINTS:
            break
    return Neighbors(tuple(earlier), optimizer)


def _optimizer_in(folder: Path) -> Path | None:
    files = (folder / name for name in OPTIMIZER_FILES)
    return next((file for file in files if file.is_file()), None)


def _numbered_before(model: Path) -> Iterator[Path]:
    """Models of the run's checkpoints with lower numbers than the model's own, newest first."""
    for node in (model, *model.parents[:_ANCESTORS]):
        own = _NUMBERED.fullmatch(node.name)
        if own is None:
            continue
        tail = model.relative_to(node)
        for kind, number, folder in _numbered_in(node.parent):
            if kind == own[1].lower() and number < int(own[2]):
                yield folder / tail
        return


def _numbered_around(model: Path) -> Iterator[Path]:
    """Models of numbered folders inside of the model's folder, and next to it, newest first."""
    for parent in (model, model.parent):
        for _, _, folder in _numbered_in(parent):
            places = (folder / tail for tail in _TAILS)
            yield from islice((place for place in places if _has_weights(place)), 1)


def _numbered_in(parent: Path) -> list[tuple[str, int, Path]]:
    """Numbered folders with their kinds and numbers, highest number first."""
    found = []
    with os.scandir(parent) as entries:
        for entry in islice(entries, _MOST_ENTRIES):
            match = _NUMBERED.fullmatch(entry.name)
            if match is not None and len(match[2]) < 19 and entry.is_dir():
                found.append((match[1].lower(), int(match[2]), Path(entry.path)))
    return sorted(found, key=lambda each: -each[1])


def _has_weights(folder: Path) -> bool:
    return (folder / "config.json").is_file() and any(folder.glob("*.safetensors"))


def _has_adapter(folder: Path) -> bool:
    names = ("adapter_config.json", "adapter_model.safetensors")
    return all((folder / name).is_file() for name in names)


def _has_same_tensors(own: Checkpoint, folder: Path) -> bool:
    """Whether a folder is a checkpoint with the same tensors, not quantized."""
    if not (_has_weights(folder) or _has_adapter(folder)):
        return False
    try:
        other = open_checkpoint(str(folder))
    except ModelError:
        return False
    if other is None or other.quantization:
        return False
    shapes, others = (
        {name: tensor.shape for name, tensor in each.tensors.items()} for each in (own, other)
    )
    return shapes == others


def _is_equal(own: Checkpoint, folder: Path) -> bool:
    """Whether a checkpoint has the same weights, judging by its largest tensors up to a limit."""
    other = open_checkpoint(str(folder))
    if other is None:
        return False
    compared = 0
    for name, tensor in sorted(own.tensors.items(), key=lambda each: -each[1].size):
        if compared and compared + tensor.size > _MOST_COMPARED_BYTES:
            continue
        compared += tensor.size
        if tensor.dtype != other.tensors[name].dtype or tensor.digest() != (
            other.tensors[name].digest()
        ):
            return False
    return True
