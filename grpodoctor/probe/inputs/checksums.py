"""Whether two checkpoints hold the same weights: safetensors read without torch, tensor by tensor.

A file of safetensors is eight bytes with the length of a JSON header, the header with the type,
shape and place of each tensor, and the bytes. Those are read in pieces, so that memory does not
grow with the model. Nothing is unpickled: a checkpoint in another format is not known.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grpodoctor.errors import ModelError
from grpodoctor.probe.inputs.engine_spec import EngineSpec

HUB_NAME = re.compile(r"\w[\w.-]*(/[\w.-]+)?")
"""What may be the name of a model on the hub; `./here` and `/there` are not."""
_MOST_HEADER_BYTES = 100_000_000
"""The format's own bound."""
_MOST_CONFIG_BYTES = 4 << 20
_CHUNK_BYTES = 8 << 20
_HEAD = "lm_head.weight"
_FLOATS = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
"""Types that are decoded where two tensors differ, and the bytes of an entry."""

NUMERIC_SETTINGS = (
    *("rope_theta", "rope_scaling", "partial_rotary_factor", "max_position_embeddings"),
    *("rms_norm_eps", "layer_norm_eps", "hidden_act", "hidden_activation", "head_dim"),
    *("sliding_window", "use_sliding_window", "max_window_layers", "layer_types"),
    *("num_hidden_layers", "num_attention_heads", "num_key_value_heads", "hidden_size"),
    *("intermediate_size", "moe_intermediate_size", "vocab_size", "tie_word_embeddings"),
    *("num_experts", "num_local_experts", "num_experts_per_tok", "norm_topk_prob"),
    *("routed_scaling_factor", "scoring_func", "n_group", "topk_group", "attention_bias"),
    *("attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar"),
    *("logit_scale", "logits_scaling", "attention_multiplier", "embedding_multiplier"),
)
"""Keys of `config.json` that change what a model computes from the same weights."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """Where a tensor lies."""

    kind: str
    """As the format calls it: `F32`, `BF16`, …"""
    shape: tuple[int, ...]
    file: Path
    start: int
    size: int
    """Bytes."""

    def chunks(self) -> Iterator[bytes]:
        """Its bytes, a piece at a time."""
        with self.file.open("rb") as file:
            file.seek(self.start)
            left = self.size
            while left and (piece := file.read(min(left, _CHUNK_BYTES))):
                left -= len(piece)
                yield piece

    def digest(self) -> str:
        """A hash of its bytes, as 32 hexadecimal digits."""
        state = hashlib.blake2b(digest_size=16)
        for piece in self.chunks():
            state.update(piece)
        return state.hexdigest()


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The tensors of a model's directory, and its configuration."""

    tensors: Mapping[str, Tensor]
    """By name; without the output layer where it is the embedding."""
    config: Mapping[str, Any] = field(default_factory=dict)

    @property
    def quantisation(self) -> str:
        """How its weights are quantised; empty if they are not."""
        told = self.config.get("quantization_config")
        if not isinstance(told, Mapping):
            return ""
        return str(told.get("format") or told.get("quant_method") or "in some way")[:60]


@dataclass(frozen=True, slots=True)
class TensorGap:
    """A tensor that is not the same in two checkpoints."""

    name: str
    why: str
    """A clause: only in one of them, another shape, or by how much it differs."""
    relative: float | None = None
    """Root mean square of the difference over that of the tensor; None where it is not decoded."""


@dataclass(frozen=True, slots=True)
class WeightsComparison:
    """Two checkpoints side by side."""

    tensors: int
    """In all, those that only one has among them."""
    gaps: tuple[TensorGap, ...]
    """Largest relative difference first; without the modules that one side has quantised."""
    quantised: tuple[str, str]
    """How the two are quantised; empty where they are not."""
    settings: tuple[str, ...]
    """What in `config.json` differs and bears on the numbers, such as `rope_theta 10000 | 1e6`."""

    @property
    def differing(self) -> tuple[str, ...] | None:
        """Names of the tensors that differ; None if quantisation hides whether others do."""
        names = tuple(gap.name for gap in self.gaps)
        return names if names or self.quantised[0] == self.quantised[1] else None


def local_model(model: str) -> Path | None:
    """The directory of a model on this machine: it itself, or the hub's copy of the name."""
    with contextlib.suppress(OSError, ValueError, RuntimeError):  # a text that is no path
        path = Path(model).expanduser()
        if path.is_dir():
            return path
    if not HUB_NAME.fullmatch(model):
        return None
    home = Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser()
    cache = Path(os.environ.get("HF_HUB_CACHE", home / "hub"))
    folder = cache / f"models--{model.replace('/', '--')}"
    try:
        revision = (folder / "refs" / "main").read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return None
    found = folder / "snapshots" / revision
    return found if found.is_dir() else None


def checkpoint_of(spec: EngineSpec) -> Checkpoint | None:
    """The weights that an engine is given; None if they are not safetensors on this machine.

    With the options `weights` or `sync` these are another checkpoint's, or some of them. With noise
    on them (`perturb`) they are nobody's.

    Raises:
        ModelError: if a file is damaged.
    """
    base = None if spec.options.get("perturb") else open_checkpoint(str(spec.model))
    other = spec.options.get("weights") or spec.options.get("sync")
    if base is None or not other:
        return base
    over = open_checkpoint(str(other))
    if over is None:
        return None
    wanted = re.compile(str(spec.options.get("weights_only", "")))
    taken = {name: each for name, each in over.tensors.items() if wanted.search(name)}
    return Checkpoint({**base.tensors, **taken}, base.config)


def open_checkpoint(model: str) -> Checkpoint | None:
    """The tensors of a model; None if there is no directory with safetensors.

    Args:
        model: a directory, or a name that the hub's cache holds.

    Raises:
        ModelError: if a file is damaged.
    """
    folder = local_model(model)
    files = sorted(folder.glob("*.safetensors")) if folder else []
    if folder is None or not files:
        return None
    config = read_config(model)
    tensors = {name: each for file in files for name, each in _header(file)}
    if config.get("tie_word_embeddings") and len(tensors) > 1:
        tensors.pop(_HEAD, None)  # engines take the embedding, whatever is stored here
    return Checkpoint(tensors, config)


def read_config(model: str) -> dict[str, Any]:
    """The `config.json` of a model on this machine; empty if there is none that can be read."""
    folder = local_model(model)
    path = folder / "config.json" if folder else None
    try:
        if path is None or path.stat().st_size > _MOST_CONFIG_BYTES:
            return {}
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return config if isinstance(config, dict) else {}


def _header(path: Path) -> Iterator[tuple[str, Tensor]]:
    """Names and places of a file's tensors.

    Raises:
        ModelError: if it is damaged.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > min(size, _MOST_HEADER_BYTES):
                raise _damaged(path, f"its header claims {length} bytes")
            header = json.loads(file.read(length))
    except (OSError, struct.error, ValueError, RecursionError) as error:
        raise _damaged(path, " ".join(str(error).split())[:120]) from error
    if not isinstance(header, dict):
        raise _damaged(path, "its header is none")
    for name, entry in header.items():
        if name != "__metadata__":
            yield name, _tensor(path, name, entry, 8 + length, size)


def _tensor(path: Path, name: str, entry: Any, data: int, size: int) -> Tensor:
    try:
        start, end = (int(each) for each in entry["data_offsets"])
        shape = tuple(int(each) for each in entry["shape"])
        kind = str(entry["dtype"])
    except (TypeError, KeyError, ValueError) as error:
        raise _damaged(path, f"its header does not say where {name[:60]!r} is") from error
    width = _FLOATS.get(kind)
    is_whole = 0 <= start <= end <= size - data
    if not is_whole or (width and end - start != width * math.prod(shape)):
        raise _damaged(path, f"{name[:60]!r} does not fit in it")
    return Tensor(kind, shape, path, data + start, end - start)


def _damaged(path: Path, why: str) -> ModelError:
    return ModelError(
        f"the checkpoint is damaged: {why}", where=str(path), remedy="copy or download it again"
    )


def compare_checkpoints(one: Checkpoint, other: Checkpoint) -> WeightsComparison:
    """Compare by checksum; where two tensors differ, say by how much.

    Raises:
        ModelError: if a file cannot be read to its end.
    """
    names = sorted({*one.tensors, *other.tensors})
    hidden = _quantised_modules(one, other)
    gaps = []
    for name in names:
        if name.rpartition(".")[0] not in hidden:
            gap = _gap(name, one.tensors.get(name), other.tensors.get(name))
            gaps.extend([gap] if gap else [])
    gaps.sort(key=lambda gap: -(math.inf if gap.relative is None else gap.relative))
    return WeightsComparison(
        len(names),
        tuple(gaps),
        (one.quantisation, other.quantisation),
        tuple(_setting_gaps(one.config, other.config)),
    )


def _quantised_modules(one: Checkpoint, other: Checkpoint) -> set[str]:
    """Modules whose tensors only one side has quantised: their bytes say nothing."""
    if one.quantisation == other.quantisation:
        return set()
    scales = (".weight_scale", ".weight_packed", ".weight_scale_inv", ".qweight", ".scales")
    names = {*one.tensors, *other.tensors}
    return {name.rpartition(".")[0] for name in names if name.endswith(scales)}


def _gap(name: str, one: Tensor | None, other: Tensor | None) -> TensorGap | None:
    if one is None or other is None:
        return TensorGap(name, f"only the {'second' if one is None else 'first'} has it")
    if one.shape != other.shape:
        return TensorGap(name, f"shape {list(one.shape)} against {list(other.shape)}")
    if one == other or (one.kind == other.kind and one.digest() == other.digest()):
        return None
    if not (one.kind in _FLOATS and other.kind in _FLOATS):
        return TensorGap(name, f"other bytes, {one.kind} against {other.kind}")
    relative = _relative(one, other)
    if relative == 0:
        return None  # the same numbers, stored in another type
    kinds = "" if one.kind == other.kind else f", {one.kind} against {other.kind}"
    return TensorGap(name, f"differs by {relative:.2g} of its size{kinds}", relative)


def _relative(one: Tensor, other: Tensor) -> float:
    """Root mean square of the difference over that of the first, in pieces."""
    difference = size = 0.0
    entries = _CHUNK_BYTES // 8
    for left, right in zip(_decoded(one, entries), _decoded(other, entries), strict=True):
        difference += float(np.square(left - right).sum())
        size += float(np.square(left).sum())
    if not math.isfinite(difference) or not size:
        return math.inf if difference else 0.0
    return math.sqrt(difference / size)


def _decoded(tensor: Tensor, entries: int) -> Iterator[NDArray[np.float64]]:
    """Its numbers, so many at a time."""
    width = _FLOATS[tensor.kind]
    with tensor.file.open("rb") as file:
        file.seek(tensor.start)
        for left in range(tensor.size, 0, -entries * width):
            piece = file.read(min(left, entries * width))
            if len(piece) < min(left, entries * width):
                raise _damaged(tensor.file, "it ends in the middle of a tensor")
            yield _numbers(piece, tensor.kind)


def _numbers(piece: bytes, kind: str) -> NDArray[np.float64]:
    if kind == "BF16":  # the upper half of a float32
        wide = np.frombuffer(piece, "<u2").astype(np.uint32) << 16
        return wide.view(np.float32).astype(np.float64)
    return np.frombuffer(piece, {"F64": "<f8", "F32": "<f4", "F16": "<f2"}[kind]).astype(np.float64)


def _setting_gaps(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[str]:
    if not one or not other:
        return
    left, right = _flat_rope(one), _flat_rope(other)
    for key in NUMERIC_SETTINGS:
        if key in left and key in right and left[key] != right[key]:
            yield f"{key} {str(left[key])[:60]} | {str(right[key])[:60]}"


def _flat_rope(config: Mapping[str, Any]) -> dict[str, Any]:
    """The same with the rotary settings where transformers 4 has them; 5 puts them together."""
    rope = config.get("rope_parameters")
    if not isinstance(rope, Mapping):
        return dict(config)
    scaling = {key: value for key, value in rope.items() if key != "rope_theta"}
    plain = scaling.get("rope_type", "default") == "default"
    flat = {"rope_theta": rope.get("rope_theta"), "rope_scaling": None if plain else scaling}
    return {**config, **flat}
