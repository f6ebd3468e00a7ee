"""The tensors of a checkpoint by name, and the groups in which they are exchanged."""

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
"""Regular expressions over tensor and module names, one for each kind of them."""
PROJECTIONS = {
    "queries": r"q_proj",
    "keys": r"k_proj",
    "values": r"v_proj",
    "attention outputs": r"o_proj",
    "gates": r"gate_proj",
    "up-projections": r"up_proj",
    "down-projections": r"down_proj",
}
"""The same of what these are made of, in the names of most families."""
_LAYER = re.compile(r"\.(?:layers|h|blocks)\.(\d+)\.")


def tensor_names(model: Path) -> tuple[str, ...]:
    """The names of a checkpoint's tensors; empty if it has none that can be read."""
    try:
        checkpoint = open_checkpoint(str(model))
    except ModelError:
        return ()
    return tuple(sorted(checkpoint.tensors)) if checkpoint else ()


def kinds_of(names: Sequence[str], among: Mapping[str, str] = KINDS) -> dict[str, str]:
    """The kinds of tensors that occur, with their regular expressions."""
    return {
        kind: pattern
        for kind, pattern in among.items()
        if any(re.search(pattern, name) for name in names)
    }


def layers_of(names: Sequence[str], pattern: str) -> list[int]:
    """The layers in which a kind of tensors occurs."""
    found = (_LAYER.search(name) for name in names if re.search(pattern, name))
    return sorted({int(match.group(1)) for match in found if match})


def in_layers(pattern: str, layers: Sequence[int]) -> str:
    """A kind of tensors in some layers only, as a regular expression."""
    numbers = "|".join(map(str, layers))
    return rf"\.(?:layers|h|blocks)\.(?:{numbers})\.(?=.*(?:{pattern}))"


def other_checkpoints(experiments: Experiments) -> list[Path]:
    """Directories whose weights the sampler may hold in part or in whole, the likeliest first."""
    case = experiments.case
    own = model_path(case.learner).resolve()
    named = [case.sampler.options.get("sync"), model_path(case.sampler), case.stale]
    candidates = dict.fromkeys(Path(str(each)).resolve() for each in named if each)
    return [
        path
        for path in candidates
        if path != own and tensor_names(path) and not read_config(path).get("quantization_config")
    ]


def untied(experiments: Experiments, model: Path) -> Path:
    """A model directory whose output head is a tensor of its own; the same one if it was before.

    An engine may keep the head as a copy of tied embeddings, and forget it in a sync. The directory
    is made of links, a configuration and the head; it can be loaded through `weights` alone, since
    it has more files than transformers looks for.
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
    """A safetensors file of one tensor."""
    entry = {"dtype": tensor.kind, "shape": tensor.shape, "data_offsets": [0, tensor.size]}
    header = json.dumps({name: entry}).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + b"".join(tensor.chunks())


def link_files(source: Path, folder: Path, *, without: Sequence[str] = ()) -> None:
    """Link a directory's files into another one."""
    for path in source.iterdir():
        link = folder / path.name
        if path.is_file() and path.name not in without and not link.exists():
            link.symlink_to(path.resolve())


def write_once(path: Path, content: bytes) -> None:
    """Write a file unless it says so already: one that is not touched is not run anew."""
    if not path.exists() or path.read_bytes() != content:
        path.write_bytes(content)
