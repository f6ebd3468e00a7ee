"""The tensors of a checkpoint by name, and the groups in which they are exchanged."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from grpodoctor.errors import ModelError
from grpodoctor.probe.attribution.bench import Bench, model_path, read_config
from grpodoctor.probe.checksums import open_checkpoint

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
_LAYER = re.compile(r"\.(?:layers|h|blocks)\.(\d+)\.")


def tensor_names(model: Path) -> tuple[str, ...]:
    """The names of a checkpoint's tensors; empty if it has none that can be read."""
    try:
        checkpoint = open_checkpoint(str(model))
    except ModelError:
        return ()
    return tuple(sorted(checkpoint.tensors)) if checkpoint else ()


def kinds_of(names: Sequence[str]) -> dict[str, str]:
    """The kinds of tensors that occur, with their regular expressions; the first that matches."""
    return {
        kind: pattern
        for kind, pattern in KINDS.items()
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


def other_checkpoints(bench: Bench) -> list[Path]:
    """Directories whose weights the sampler may hold in part or in whole, the likeliest first."""
    case = bench.case
    own = model_path(case.learner).resolve()
    named = [case.sampler.options.get("sync"), model_path(case.sampler), case.stale]
    candidates = dict.fromkeys(Path(str(each)).resolve() for each in named if each)
    return [
        path
        for path in candidates
        if path != own and tensor_names(path) and not read_config(path).get("quantization_config")
    ]
