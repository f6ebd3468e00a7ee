"""Tensor names of a checkpoint, and the groups in which experiments exchange them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from grpodoctor.errors import EngineError, ModelError
from grpodoctor.probe.attribution.base import Identity
from grpodoctor.probe.attribution.engine_files import read_config
from grpodoctor.probe.attribution.engine_variants import model_path
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.variant import Variant
from grpodoctor.probe.inputs.checksums import compare_checkpoints, open_checkpoint

Found = TypeVar("Found")
PARTIAL_SYNC = Identity(
    "partial-sync",
    "Some of the sampler's tensors were not synced",
    (
        "Check how the named tensors are transferred. Syncs often miss tied embeddings and output "
        "heads, fused or renamed projections, biases, norms, experts, adapters, and copies that "
        "the engine packs at load time. If a part of many tensors is old, a rank missed the sync.",
        "After each sync, compare checksums tensor by tensor, or reload the engine from a saved "
        "checkpoint.",
    ),
)

KINDS = {
    "embeddings": r"embed_tokens|word_embeddings|wte\.",
    "output head": r"lm_head|embed_out",
    "norms": r"norm|ln_",
    "attention": r"self_attn(?!.*norm)|attention(?!.*norm)|\.attn\.",
    "router": r"mlp\.gate\.|router|block_sparse_moe\.gate\.",
    "experts": r"experts",
    "MLP": r"mlp\.(gate_proj|up_proj|down_proj|gate_up_proj|fc|c_|dense_)|feed_forward",
}
"""Regular expressions over tensor and module names, by kind of module."""
_SHOWN = 6
"""Groups of tensors in a sentence; details list all."""
_LAYER = re.compile(r"\.(?:layers|h|blocks)\.(\d+)\.")


def tensor_names(model: Path) -> tuple[str, ...]:
    """Tensor names of a checkpoint; empty if it has no readable tensors."""
    try:
        checkpoint = open_checkpoint(str(model))
    except ModelError:
        return ()
    return tuple(sorted(checkpoint.tensors)) if checkpoint else ()


def kind_of(name: str) -> str:
    """The kind of a tensor: one of `KINDS`, or its own name without the layer."""
    for kind, pattern in KINDS.items():
        if re.search(pattern, name):
            return kind
    return _LAYER.sub(".", name)


def layer_of(name: str) -> int | None:
    """The layer of a tensor; None if it belongs to no layer."""
    found = _LAYER.search(name)
    return int(found.group(1)) if found else None


def unequal_tensors(
    experiments: Experiments, folder: Path, names: frozenset[str]
) -> frozenset[str]:
    """The learner's tensors that may differ in another checkpoint.

    Tensors whose names are in both files are compared; a tied head or fused experts have no tensor
    of their own there.
    """
    case = experiments.case
    try:
        own = open_checkpoint(str(model_path(case.learner)))
        other = open_checkpoint(str(folder))
    except ModelError:
        return names
    if own is None or other is None:
        return names
    differing = compare_checkpoints(own, other).differing
    if differing is None:
        return names
    return names - ((set(own.tensors) & set(other.tensors)) - set(differing))


def tensors_in_words(labels: Sequence[str]) -> str:
    """The labels of some tensors in a sentence."""
    return ", ".join(labels[:_SHOWN]) + (" and others" if len(labels) > _SHOWN else "")


def other_checkpoints(experiments: Experiments) -> list[Path]:
    """Weights that the sampler may use in part or in whole, likeliest first.

    After those that are given: those found next to the learner, if they have something in common
    with the gap. One of these may be the file of an optimizer's state.
    """
    given = given_checkpoints(experiments)
    return [*given, *(path for path in experiments.found.compared if path not in given)]


def given_checkpoints(experiments: Experiments) -> list[Path]:
    """Directories that the user named whose weights the sampler may use."""
    case = experiments.case
    own = model_path(case.learner).resolve()
    paths = [case.sampler.options.get("sync"), model_path(case.sampler), case.stale]
    candidates = dict.fromkeys(Path(str(path)).resolve() for path in paths if path)
    return [
        path
        for path in candidates
        if path != own and tensor_names(path) and not read_config(path).get("quantization_config")
    ]


def updated_checkpoints(experiments: Experiments) -> list[Path]:
    """The other checkpoints from which an update can lead to the learner's weights.

    Between equal files there is no update. If the learner's weights in memory are not those of its
    files, the difference would look like one.
    """
    names = frozenset(tensor_names(model_path(experiments.case.learner)))
    return [
        folder
        for folder in other_checkpoints(experiments)
        if not names or unequal_tensors(experiments, folder, names)
    ]


def of_each_checkpoint(
    experiments: Experiments,
    examine: Callable[[Path], Iterable[Found]],
    folders: Callable[[Experiments], list[Path]] = other_checkpoints,
) -> list[Found]:
    """What an experiment finds with each other checkpoint.

    Args:
        experiments: of the case.
        examine: what is found with one checkpoint.
        folders: the directories of the checkpoints.

    Raises:
        EngineError: if nothing was found and a checkpoint could not be examined.
    """
    found: list[Found] = []
    errors: list[EngineError] = []
    for folder in folders(experiments):
        try:
            found += examine(folder)
        except EngineError as error:
            errors.append(error)
    if not found and errors:
        raise errors[0]
    return found


def takes_other_weights(experiments: Experiments, variant: Variant) -> bool:
    """Whether there are other weights, and a learner that can compute with a part of them."""
    setup = variant.setup
    if not setup.learner.kind.can_alter or setup.own_prompts or setup.replay:
        return False
    return bool(given_checkpoints(experiments) or experiments.found.neighbors.all)


def link_files(source: Path, folder: Path, *, without: Sequence[str] = ()) -> None:
    """Link a directory's files into another directory."""
    for path in source.iterdir():
        link = folder / path.name
        if path.is_file() and path.name not in without and not link.exists():
            link.symlink_to(path.resolve())


def write_once(path: Path, content: bytes) -> None:
    """Write a file unless its content is the same: unchanged files keep their cached results."""
    if not path.exists() or path.read_bytes() != content:
        path.write_bytes(content)
