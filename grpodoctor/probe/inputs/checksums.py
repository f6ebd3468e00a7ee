"""Compares the weights of two checkpoints, tensor by tensor, without torch.

A safetensors file has eight bytes with the length of a JSON header, the header with the type, shape
and place of each tensor, and the tensors' bytes. The bytes are read in chunks, so memory does not
grow with the model. Nothing is unpickled: checkpoints in other formats are not compared.
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
from grpodoctor.support.files.regular_files import read_regular

HUB_NAME = re.compile(r"\w[\w.-]*(/[\w.-]+)?")
"""Possible names of models on the hub; `./here` and `/there` are not."""
_MAX_HEADER_BYTES = 100_000_000
"""The limit of the format itself."""
_MAX_CONFIG_BYTES = 4 << 20
_CHUNK_BYTES = 8 << 20
_HEAD = "lm_head.weight"
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
"""Ends of the names of files that may hold weights."""
_FLOAT_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
"""Types that are decoded if two tensors differ, with the bytes per entry."""

NUMERIC_SETTINGS = (
    *("rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor"),
    *("max_position_embeddings", "hidden_act", "hidden_activation", "head_dim"),
    *("rms_norm_eps", "layer_norm_eps"),
    *("sliding_window", "use_sliding_window", "max_window_layers", "layer_types"),
    *("num_hidden_layers", "num_attention_heads", "num_key_value_heads", "hidden_size"),
    *("intermediate_size", "moe_intermediate_size", "vocab_size", "tie_word_embeddings"),
    *("num_experts", "num_local_experts", "num_experts_per_tok", "norm_topk_prob"),
    *("routed_scaling_factor", "scoring_func", "n_group", "topk_group", "attention_bias"),
    *("attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar"),
    *("logit_scale", "logits_scaling", "attention_multiplier", "embedding_multiplier"),
)
"""Keys of `config.json` that change a model's output for the same weights."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor's place in a file."""

    dtype: str
    """The format's name of the type: `F32`, `BF16`, …"""
    shape: tuple[int, ...]
    file: Path
    start: int
    size: int
    """Bytes."""

    def chunks(self) -> Iterator[bytes]:
        """The tensor's bytes, in chunks."""
        with self.file.open("rb") as file:
            file.seek(self.start)
            remaining = self.size
            while remaining and (chunk := file.read(min(remaining, _CHUNK_BYTES))):
                remaining -= len(chunk)
                yield chunk

    def digest(self) -> str:
        """A hash of the tensor's bytes; 32 hexadecimal digits."""
        state = hashlib.blake2b(digest_size=16)
        for chunk in self.chunks():
            state.update(chunk)
        return state.hexdigest()


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The tensors and the configuration of a model's directory."""

    tensors: Mapping[str, Tensor]
    """By name; without the output layer if it is tied to the embedding."""
    config: Mapping[str, Any] = field(default_factory=dict)

    @property
    def quantization(self) -> str:
        """The weights' quantization format; empty if they are not quantized."""
        config = self.config.get("quantization_config")
        if not isinstance(config, Mapping):
            return ""
        return str(config.get("format") or config.get("quant_method") or "unknown format")[:60]


@dataclass(frozen=True, slots=True)
class TensorDifference:
    """A tensor that differs between two checkpoints."""

    name: str
    reason: str
    """A clause: only in one of them, another shape, or the size of the difference."""
    relative: float | None = None
    """RMS of the difference divided by the RMS of the tensor; None if it was not decoded."""


@dataclass(frozen=True, slots=True)
class WeightsComparison:
    """The result of comparing two checkpoints."""

    tensors: int
    """All tensors, including those in only one checkpoint."""
    differences: tuple[TensorDifference, ...]
    """Largest relative difference first; without modules that only one side has quantized."""
    quantization: tuple[str, str]
    """Quantization formats of the two; empty if not quantized."""
    settings: tuple[str, ...]
    """Keys of `config.json` that differ and affect the output, such as `rope_theta 10000 | 1e6`."""

    @property
    def differing(self) -> tuple[str, ...] | None:
        """Names of the tensors that differ; None if quantization hides whether others do."""
        names = tuple(difference.name for difference in self.differences)
        return names if names or self.quantization[0] == self.quantization[1] else None


def local_model(model: str) -> Path | None:
    """The directory of a model on this machine: a path, or a name in the hub's cache."""
    with contextlib.suppress(OSError, ValueError, RuntimeError):  # not a path
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
    snapshot = folder / "snapshots" / revision
    return snapshot if snapshot.is_dir() else None


def lacking(folder: Path) -> str:
    """Why a directory is no checkpoint of a model, such as `has no weights`; empty if it may be."""
    names = [file.name for file in folder.iterdir()]
    if "adapter_config.json" in names and "config.json" not in names:
        return "is a LoRA adapter, not a model"
    if not any(name.endswith(_WEIGHTS) for name in names):
        return "has no weights"
    return "" if {"config.json", "params.json"} & {*names} else "has no config.json"


def checkpoint_of(spec: EngineSpec) -> Checkpoint | None:
    """An engine's weights; None if they are not safetensors on this machine.

    The options `weights` and `sync` replace all or some tensors by another checkpoint's. Weights
    with noise (`perturb`) belong to no checkpoint.

    Raises:
        ModelError: if a file is damaged.
    """
    base = None if spec.options.get("perturb") else open_checkpoint(str(spec.model))
    model = spec.options.get("weights") or spec.options.get("sync")
    if base is None or not model:
        return base
    replacement = open_checkpoint(str(model))
    if replacement is None:
        return None
    pattern = re.compile(str(spec.options.get("weights_only", "")))
    replaced = {
        name: tensor for name, tensor in replacement.tensors.items() if pattern.search(name)
    }
    return Checkpoint({**base.tensors, **replaced}, base.config)


def open_checkpoint(model: str) -> Checkpoint | None:
    """The tensors of a model; None if there is no directory with safetensors.

    Args:
        model: a directory, or a name in the hub's cache.

    Raises:
        ModelError: if a file is damaged.
    """
    folder = local_model(model)
    files = sorted(folder.glob("*.safetensors")) if folder else []
    if folder is None or not files:
        return None
    config = read_config(model)
    tensors = {name: tensor for file in files for name, tensor in _header(file)}
    if config.get("tie_word_embeddings") and len(tensors) > 1:
        tensors.pop(_HEAD, None)  # engines use the embedding, whatever is stored
    return Checkpoint(tensors, config)


def read_config(model: str) -> dict[str, Any]:
    """The `config.json` of a model on this machine; empty if missing or unreadable."""
    folder = local_model(model)
    path = folder / "config.json" if folder else None
    try:
        if path is None:
            return {}
        config = json.loads(read_regular(path, _MAX_CONFIG_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return config if isinstance(config, dict) else {}


def _header(path: Path) -> Iterator[tuple[str, Tensor]]:
    """Names and places of a file's tensors.

    Raises:
        ModelError: if the file is damaged.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > min(size, _MAX_HEADER_BYTES):
                raise _damaged(path, f"its header claims {length} bytes")
            header = json.loads(file.read(length))
    except (OSError, struct.error, ValueError, RecursionError) as error:
        raise _damaged(path, " ".join(str(error).split())[:120]) from error
    if not isinstance(header, dict):
        raise _damaged(path, "its header is not an object")
    for name, entry in header.items():
        if name != "__metadata__":
            yield name, _tensor(path, name, entry, 8 + length, size)


def _tensor(path: Path, name: str, entry: Any, data: int, size: int) -> Tensor:
    try:
        start, end = (int(offset) for offset in entry["data_offsets"])
        shape = tuple(int(length) for length in entry["shape"])
        dtype = str(entry["dtype"])
    except (ArithmeticError, TypeError, KeyError, ValueError) as error:
        raise _damaged(path, f"its header has no valid entry for {name[:60]!r}") from error
    width = _FLOAT_BYTES.get(dtype)
    is_whole = 0 <= start <= end <= size - data
    if not is_whole or (width and end - start != width * math.prod(shape)):
        raise _damaged(path, f"{name[:60]!r} does not fit in it")
    return Tensor(dtype, shape, path, data + start, end - start)


def _damaged(path: Path, reason: str) -> ModelError:
    return ModelError(
        f"the checkpoint is damaged: {reason}", where=str(path), remedy="copy or download it again"
    )


def compare_checkpoints(one: Checkpoint, other: Checkpoint) -> WeightsComparison:
    """Compare tensors by checksum, and measure the difference of those that differ.

    Raises:
        ModelError: if a file cannot be read to its end.
    """
    names = sorted({*one.tensors, *other.tensors})
    skipped = _quantized_modules(one, other)
    differences = []
    for name in names:
        if name.rpartition(".")[0] not in skipped:
            difference = _difference(name, one.tensors.get(name), other.tensors.get(name))
            differences.extend([difference] if difference else [])
    differences.sort(key=lambda each: -(math.inf if each.relative is None else each.relative))
    return WeightsComparison(
        tensors=len(names),
        differences=tuple(differences),
        quantization=(one.quantization, other.quantization),
        settings=tuple(_setting_differences(one.config, other.config)),
    )


def _quantized_modules(one: Checkpoint, other: Checkpoint) -> set[str]:
    """Modules that only one side has quantized, whose bytes cannot be compared."""
    if one.quantization == other.quantization:
        return set()
    scales = (".weight_scale", ".weight_packed", ".weight_scale_inv", ".qweight", ".scales")
    names = {*one.tensors, *other.tensors}
    return {name.rpartition(".")[0] for name in names if name.endswith(scales)}


def _difference(name: str, one: Tensor | None, other: Tensor | None) -> TensorDifference | None:
    if one is None or other is None:
        return TensorDifference(name, f"only the {'second' if one is None else 'first'} has it")
    if one.shape != other.shape:
        return TensorDifference(name, f"shape {list(one.shape)} versus {list(other.shape)}")
    if one == other or (one.dtype == other.dtype and one.digest() == other.digest()):
        return None
    if not (one.dtype in _FLOAT_BYTES and other.dtype in _FLOAT_BYTES):
        return TensorDifference(name, f"different bytes, {one.dtype} versus {other.dtype}")
    relative = _relative(one, other)
    if relative == 0:
        return None  # the same numbers, stored in another type
    dtypes = "" if one.dtype == other.dtype else f", {one.dtype} versus {other.dtype}"
    return TensorDifference(name, f"differs by {relative:.2g} of its size{dtypes}", relative)


def _relative(one: Tensor, other: Tensor) -> float:
    """RMS of the difference divided by the RMS of the first, in chunks."""
    difference = size = 0.0
    entries = _CHUNK_BYTES // 8
    for left, right in zip(_decoded(one, entries), _decoded(other, entries), strict=True):
        difference += float(np.square(left - right).sum())
        size += float(np.square(left).sum())
    if not math.isfinite(difference) or not size:
        return math.inf if difference else 0.0
    return math.sqrt(difference / size)


def _decoded(tensor: Tensor, entries: int) -> Iterator[NDArray[np.float64]]:
    """A tensor's numbers, in chunks of `entries`."""
    width = _FLOAT_BYTES[tensor.dtype]
    with tensor.file.open("rb") as file:
        file.seek(tensor.start)
        for remaining in range(tensor.size, 0, -entries * width):
            chunk = file.read(min(remaining, entries * width))
            if len(chunk) < min(remaining, entries * width):
                raise _damaged(tensor.file, "it ends in the middle of a tensor")
            yield _numbers(chunk, tensor.dtype)


def _numbers(chunk: bytes, dtype: str) -> NDArray[np.float64]:
    if dtype == "BF16":  # the upper half of a float32
        wide = np.frombuffer(chunk, "<u2").astype(np.uint32) << 16
        return wide.view(np.float32).astype(np.float64)
    codes = {"F64": "<f8", "F32": "<f4", "F16": "<f2"}
    return np.frombuffer(chunk, codes[dtype]).astype(np.float64)


def _setting_differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[str]:
    if not one or not other:
        return
    left, right = _flat_rope(one), _flat_rope(other)
    for key in NUMERIC_SETTINGS:
        if key in left and key in right and left[key] != right[key]:
            yield f"{key} {str(left[key])[:60]} | {str(right[key])[:60]}"


def _flat_rope(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration with rotary settings as in transformers 4; version 5 groups them."""
    rope = config.get("rope_parameters")
    if not isinstance(rope, Mapping):
        return dict(config)
    if any(isinstance(value, Mapping) for value in rope.values()):
        return dict(config)  # settings by kind of layer, which version 4 has no keys for
    scaling = {key: value for key, value in rope.items() if key != "rope_theta"}
    plain = scaling.get("rope_type", "default") == "default"
    flat = {"rope_theta": rope.get("rope_theta"), "rope_scaling": None if plain else scaling}
    rest = {key: value for key, value in config.items() if key != "rope_parameters"}
    return {**rest, **flat}
