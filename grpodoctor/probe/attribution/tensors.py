"""Tensor names of a checkpoint, and the groups in which experiments exchange them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from grpodoctor.errors import ModelError
from grpodoctor.probe.attribution.experiments import Experiments, model_path, read_config
from grpodoctor.probe.inputs.checksums import Tensor, open_checkpoint

KINDS = {
    "embeddings": r"embed_tokens|word_embeddings|wte\.",
    "output head": r"lm_head|embed_out",
    "norms": r"norm|ln_",
    "attention": r"self_attn(?!.*norm)|attention(?!.*norm)|\.attn\.",
    "router": r"mlp\.gate\.|router|block_sparse_moe\.gate\.",
    "experts": r"experts",
    "MLP": r"mlp\.(gate_proj|up_proj|down_proj|gate_up_proj|fc|c_)|feed_forward",
}
"""Regular expressions over tensor and module names, by kind of module."""
PROJECTIONS = {
    "queries": r"q_proj",
    "keys": r"k_proj",
    "values": r"v_proj",
    "attention outputs": r"o_proj",
    "gates": r"gate_proj",
    "up-projections": r"up_proj",
    "down-projections": r"down_proj",
}
"""The same for single projections, as most families name them."""
_LAYER = re.compile(r"\.(?:layers|h|blocks)\.(\d+)\.")


def tensor_names(model: Path) -> tuple[str, ...]:
    """Tensor names of a checkpoint; empty if it has no readable tensors."""
    try:
        checkpoint = open_checkpoint(str(model))
    except ModelError:
        return ()
    return tuple(sorted(checkpoint.tensors)) if checkpoint else ()


def kinds_of(names: Sequence[str], among: Mapping[str, str] = KINDS) -> dict[str, str]:
    """The kinds of tensors that occur among the names, with their regular expressions."""
    return {
        kind: pattern
        for kind, pattern in among.items()
        if any(re.search(pattern, name) for name in names)
    }


def layers_of(names: Sequence[str], pattern: str) -> list[int]:
    """The layers that contain a kind of tensor."""
    found = (_LAYER.search(name) for name in names if re.search(pattern, name))
    return sorted({int(match.group(1)) for match in found if match})


def in_layers(pattern: str, layers: Sequence[int]) -> str:
    """Regular expression for a kind of tensor in some layers only."""
    numbers = "|".join(map(str, layers))
    return rf"\.(?:layers|h|blocks)\.(?:{numbers})\.(?=.*(?:{pattern}))"


def other_checkpoints(experiments: Experiments) -> list[Path]:
    """Directories whose weights the sampler may use in part or in whole, likeliest first."""
    case = experiments.case
    own = model_path(case.learner).resolve()
    paths = [case.sampler.options.get("sync"), model_path(case.sampler), case.stale]
    candidates = dict.fromkeys(Path(str(path)).resolve() for path in paths if path)
    return [
        path
        for path in candidates
        if path != own and tensor_names(path) and not read_config(path).get("quantization_config")
    ]


def untied(experiments: Experiments, model: Path) -> Path:
    """A model directory with untied embeddings; the given one if it is untied already.

    An engine may store the head as a copy of tied embeddings and miss it in a sync. The new
    directory consists of links, a configuration and the head. Load it through `weights` only: it
    has more files than transformers expects.
    """
    config = read_config(model)
    if not config.get("tie_word_embeddings"):
        return model
    try:
        checkpoint = open_checkpoint(str(model))
    except ModelError:
        return model
    tensors = checkpoint.tensors if checkpoint else {}
    embeddings = [name for name in tensors if re.search(KINDS["embeddings"], name)]
    if len(embeddings) != 1:
        return model
    folder = experiments.scratch(f"untied-{model.name}")
    link_files(model, folder, without=("config.json",))
    write_once(folder / "config.json", json.dumps(config | {"tie_word_embeddings": False}).encode())
    write_once(folder / "untied_head.safetensors", _alone("lm_head.weight", tensors[embeddings[0]]))
    return folder


def _alone(name: str, tensor: Tensor) -> bytes:
    """The content of a safetensors file with one tensor."""
    entry = {"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [0, tensor.size]}
    header = json.dumps({name: entry}).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + b"".join(tensor.chunks())


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
