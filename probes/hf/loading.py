"""Loads a causal language model of transformers according to an engine program's options.

Weights are read only from safetensors: nothing is unpickled. A model with a missing tensor is
refused, because transformers would initialize that tensor randomly.
"""

from __future__ import annotations

import difflib
import re
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from contract import RefusalError
from torch import Tensor, nn

from hf.adapters import USES, apply_adapter
from hf.what_if.rounding import rounded

_DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
_ATTENTION = ("sdpa", "eager", "flash_attention_2", "flash_attention_3", "flex_attention")
_BITS = {"int8": 8, "int4": 4}
_FLOATS = {"fp8": "fp8/row", "fp8_e5m2": "fp8_e5m2/row"}
"""Rounding to 8-bit floats, with a scale per output channel."""
_GROUP = 32
_MAX_LINE = 300
"""Characters of an error that are quoted."""
_CPU_TOKENS, _OTHER_TOKENS = 4096, 32_768
_UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError)
"""What transformers raises if a model's files are invalid."""
ROUTERS = r"(^|\.)(gate|router|shared_expert_gate)$"
"""Routers: no engine quantizes them by default."""


@dataclass(frozen=True)
class Settings:
    """The options of the programs that run transformers."""

    dtype: str = "float32"
    attention: str = ""
    """Attention kernel; by default the choice of transformers for the family, mostly sdpa."""
    autocast: str = ""
    """Precision of computation, under torch's autocast; weights stay in `dtype`."""
    batch_tokens: int = 0
    """Most tokens of a forward pass, padding included; 0 means a default for the device."""
    batch_rows: int = 64
    """Most responses sampled at a time."""
    device: str = "auto"
    seed: int = 0
    """Seed of the noise of `perturb`."""
    threads: int = 0
    """CPU threads of torch; 0 keeps torch's default."""
    trust_remote_code: bool = False
    quantise: str = ""
    """Fake quantization: `int8`, `fp8` (E4M3) and `fp8_e5m2` with a scale per output channel;
    `int4` with one per 32 inputs."""
    quantise_only: str = ""
    """Regular expression: quantize only modules whose names contain a match."""
    quantise_skip: str = ""
    """Regular expression: modules not to quantize; default: routers and the output layer."""
    perturb: float = 0.0
    """Noise on every weight matrix, relative to its deviation, as in a stale checkpoint."""
    weights: str = ""
    """Directory whose tensors replace the model's own."""
    weights_only: str = ""
    """Regular expression: replace only tensors whose names in the files contain a match."""
    adapter: str = ""
    """Directory of a LoRA adapter in peft's format."""
    adapter_use: str = "unmerged"
    """`unmerged`, `merged` into the weights, or `merged_twice`, a common mistake."""
    fsdp: int = 0
    """Ranks that shard the weights and divide the responses."""
    tensor_parallel: int = 0
    """Ranks that split each matrix."""

    @classmethod
    def of(cls, options: Mapping[str, Any], *, without: tuple[str, ...]) -> Settings:
        """Settings from options.

        Args:
            options: values by name.
            without: names that this program does not accept.

        Raises:
            RefusalError: for an unknown option or an invalid value.
        """
        known = [field.name for field in fields(cls) if field.name not in without]
        for name, value in options.items():
            if name not in known:
                near = difflib.get_close_matches(name, known) or sorted(known)
                raise RefusalError(f"there is no option {name!r}", f"use one of {', '.join(near)}")
            _check_type(name, value, type(getattr(cls, name)))
        settings = cls(**options)
        settings._check()
        return settings

    def _check(self) -> None:
        choices = {
            "dtype": (self.dtype, tuple(_DTYPES)),
            "attention": (self.attention, ("", *_ATTENTION)),
            "autocast": (self.autocast, ("", "bfloat16", "float16")),
            "quantise": (self.quantise, ("", *_BITS, *_FLOATS)),
            "adapter_use": (self.adapter_use, USES),
        }
        for name, (value, allowed) in choices.items():
            if value not in allowed:
                choices_text = ", ".join(choice for choice in allowed if choice)
                raise RefusalError(f"{name}={value!r} is unknown", f"use one of {choices_text}")
        for name in ("quantise_only", "quantise_skip", "weights_only"):
            try:
                re.compile(getattr(self, name))
            except re.error as error:
                raise RefusalError(f"{name} is not a regular expression: {error}") from error
        least = {"batch_tokens": 0, "batch_rows": 1, "threads": 0, "perturb": 0, "fsdp": 0}
        for name, minimum in (least | {"tensor_parallel": 0}).items():
            if not getattr(self, name) >= minimum:
                raise RefusalError(f"{name} is {getattr(self, name)}", f"set {minimum} or more")

    @property
    def torch_dtype(self) -> torch.dtype:
        """Precision of the weights."""
        return _DTYPES[self.dtype]

    @property
    def compute_dtype(self) -> torch.dtype | None:
        """Precision of autocast; None without it."""
        return _DTYPES[self.autocast] if self.autocast else None

    def tokens(self, device: torch.device) -> int:
        """Most tokens of a forward pass on a device."""
        return self.batch_tokens or (_CPU_TOKENS if device.type == "cpu" else _OTHER_TOKENS)


def _check_type(name: str, value: Any, kind: type) -> None:
    fitting = (int, float) if kind is float else kind
    if not isinstance(value, fitting) or (isinstance(value, bool) and kind is not bool):
        raise RefusalError(f"{name}={value!r} does not have the type {kind.__name__}")


def device_of(settings: Settings) -> torch.device:
    """The requested device; by default the GPU if there is one.

    Raises:
        RefusalError: if the device cannot be used.
    """
    if settings.device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(settings.device)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # torch asserts that it was built with CUDA
        raise RefusalError(
            f"the device {settings.device!r} cannot be used: {_line(error)}", "use device=cpu"
        ) from error
    return device


def load_model(model: str, settings: Settings, **more: Any) -> Any:
    """Load a model in evaluation mode, without gradients, on the CPU unless `more` differs.

    Args:
        model: a directory or a name on the hub.
        settings: how to load and change it.
        more: arguments of `from_pretrained`.

    Raises:
        RefusalError: if the model is missing, incomplete or does not fit the settings.
    """
    if not settings.weights:
        return _changed(_from_pretrained(model, settings, more), settings)
    with tempfile.TemporaryDirectory() as folder:
        _overlay(Path(folder), _files_of(model), _files_of(settings.weights), settings.weights_only)
        return _changed(_from_pretrained(folder, settings, more), settings)


def _from_pretrained(model: str, settings: Settings, more: Mapping[str, Any]) -> Any:
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM

    try:
        result: Any = AutoModelForCausalLM.from_pretrained(
            model,
            dtype=settings.torch_dtype,
            attn_implementation=settings.attention or None,
            trust_remote_code=settings.trust_remote_code,
            use_safetensors=True,
            ignore_mismatched_sizes=True,  # to list them; they are refused below
            output_loading_info=True,
            **more,
        )
    except (*_UNREADABLE, _invalid_config(), SafetensorError) as error:
        raise _unloadable(model, error) from error
    loaded, info = result
    invalid = sorted([*info["missing_keys"], *(entry[0] for entry in info["mismatched_keys"])])
    if invalid:
        raise RefusalError(
            f"{len(invalid)} tensors of {model} are missing or have another shape: {invalid[0]}",
            "use a directory whose weights fit its config.json",
        )
    return loaded.eval().requires_grad_(False)


def _invalid_config() -> type[Exception]:
    """The error of a contradictory config.json, for which newer versions have a class."""
    from huggingface_hub import errors

    kind: type[Exception] = getattr(errors, "StrictDataclassError", ValueError)
    return kind


def _unloadable(model: str, error: Exception) -> RefusalError:
    folder = Path(model)
    if folder.is_dir() and not any(folder.glob("*.safetensors")):
        pickles = [*folder.glob("*.bin"), *folder.glob("*.pt"), *folder.glob("*.pth")]
        if pickles:
            return RefusalError(
                f"the weights of {model} are pickles ({pickles[0].name}), which can run any code",
                "convert them to safetensors",
            )
        return RefusalError(f"{model} has no weights", "name a directory with *.safetensors")
    if not folder.is_dir() and isinstance(error, OSError):
        return RefusalError(
            f"there is no model {model}: {_line(error)}",
            "name a directory with config.json and *.safetensors, or a model on the hub",
        )
    return RefusalError(f"{model} cannot be loaded: {_line(error)}")


def _line(error: BaseException) -> str:
    line = " ".join(str(error).split())
    return line if len(line) <= _MAX_LINE else line[:_MAX_LINE].rpartition(" ")[0] + " …"


def _files_of(model: str) -> Path:
    """The directory with a model's files; for a name on the hub, its cache."""
    if Path(model).is_dir():
        return Path(model)
    from huggingface_hub import snapshot_download

    try:
        patterns = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja"]
        return Path(snapshot_download(model, allow_patterns=patterns))
    except (OSError, ValueError) as error:
        raise _unloadable(model, error) from error


def _overlay(folder: Path, base: Path, other: Path, only: str) -> None:
    """Write a model's directory with some tensors replaced by another model's.

    It is written to disk so that transformers converts names and merges experts as for any
    checkpoint. `only` refers to the names in the files.
    """
    from safetensors.torch import save_file

    own, theirs = _tensors(base), _tensors(other)
    taken = sorted(name for name in own.keys() & theirs.keys() if re.search(only, name))
    if not taken:
        raise RefusalError(
            f"no tensor of {other} matches weights_only={only!r}",
            "use names from its *.safetensors",
        )
    for path in base.iterdir():
        if path.is_file() and not path.name.endswith((".safetensors", ".index.json", ".bin")):
            shutil.copy(path, folder)
    merged = own | {name: theirs[name] for name in taken}
    save_file(merged, folder / "model.safetensors", metadata={"format": "pt"})


def _tensors(folder: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    paths = sorted(folder.glob("*.safetensors"))
    if not paths:
        raise _unloadable(str(folder), OSError())
    try:
        return {name: tensor for path in paths for name, tensor in load_file(path).items()}
    except (OSError, SafetensorError) as error:
        raise RefusalError(f"the weights of {folder} are damaged: {_line(error)}") from error


@torch.no_grad()
def _changed(model: Any, settings: Settings) -> Any:
    if settings.adapter:
        apply_adapter(model, settings.adapter, settings.adapter_use)
    if settings.perturb:
        _perturb(model, settings.perturb, settings.seed)
    if settings.quantise:
        _quantise(model, settings)
    return model


def _perturb(model: nn.Module, relative: float, seed: int) -> None:
    """Add noise to every matrix, or to this rank's shard of it.

    The noise depends only on the parameter's index. So a matrix that all ranks hold completely
    stays equal on all of them.
    """
    for number, weight in enumerate(model.parameters()):
        own = weight.to_local() if hasattr(weight, "to_local") else weight
        if own.ndim > 1 and own.numel() > 1:
            generator = torch.Generator().manual_seed(seed + number)
            noise = torch.randn(own.shape, generator=generator) * own.float().std().cpu()
            own.add_((relative * noise).to(own))


def quantised_modules(model: Any, settings: Settings) -> dict[str, list[Tensor]]:
    """The modules to quantize (linear layers and stacked experts) with their matrices.

    Raises:
        RefusalError: if there are none.
    """
    skip = settings.quantise_skip
    if not skip and not settings.quantise_only:
        output = model.get_output_embeddings()
        heads = [name for name, module in model.named_modules() if module is output]
        skip = "|".join([ROUTERS, *(f"^{re.escape(name)}$" for name in heads)])
    chosen = {
        name: _matrices(module)
        for name, module in model.named_modules()
        if re.search(settings.quantise_only, name) and not (skip and re.search(skip, name))
    }
    modules = {name: matrices for name, matrices in chosen.items() if matrices}
    if not modules:
        raise RefusalError(
            f"quantise_only={settings.quantise_only!r} leaves no module to quantize",
            "use names of the model's linear layers",
        )
    return modules


def _matrices(module: nn.Module) -> list[Tensor]:
    if isinstance(module, nn.Linear):
        return [module.weight]
    own = module.named_parameters(recurse=False)
    return [weight for name, weight in own if weight.ndim == 3 and "proj" in name]


def _quantise(model: Any, settings: Settings) -> None:
    names = quantised_modules(model, settings)
    modules = dict(model.named_modules())
    tied = model.get_input_embeddings().weight
    for name, matrices in names.items():
        for weight in matrices:
            if weight is tied:
                raise RefusalError(
                    f"{name} shares its weights with the input embeddings, which are not quantized",
                    "exclude it with quantise_skip",
                )
            # Some families store the experts' matrices with inputs first.
            is_transposed = bool(getattr(modules[name], "is_transposed", False))
            matrix = weight.transpose(-1, -2) if is_transposed else weight
            matrix.copy_(_coarse(matrix, settings.quantise))


def _coarse(matrix: Tensor, scheme: str) -> Tensor:
    if scheme in _FLOATS:
        return rounded(matrix, _FLOATS[scheme])
    return fake_quantised(matrix, _BITS[scheme])


def fake_quantised(weight: Tensor, bits: int) -> Tensor:
    """Round weights to signed integers and scale them back (symmetric quantization).

    Args:
        weight: matrices (…, outputs, inputs).
        bits: 8 with one scale per output; fewer with one per output and group of 32 inputs.

    Returns:
        A tensor of the same shape and dtype.
    """
    inputs = weight.shape[-1]
    group = inputs if bits == _BITS["int8"] else _GROUP
    padded = nn.functional.pad(weight.float(), (0, -inputs % group))
    groups = padded.reshape(*padded.shape[:-1], -1, group)
    largest = 2 ** (bits - 1) - 1
    scale = groups.abs().amax(dim=-1, keepdim=True).clamp_(min=1e-12) / largest
    rounded = (groups / scale).round_().clamp_(-largest, largest) * scale
    dequantised: Tensor = rounded.flatten(-2)[..., :inputs].to(weight.dtype)
    return dequantised


def load_tokenizer(model: str, settings: Settings, vocabulary: int) -> Any:
    """The model's tokenizer, or None if it has none that can be loaded.

    A tokenizer with less than half of the model's vocabulary belongs to another model, or is the
    empty one that transformers creates if the files are missing.
    """
    from transformers import AutoTokenizer

    with suppress(*_UNREADABLE):
        tokenizer = AutoTokenizer.from_pretrained(
            model, trust_remote_code=settings.trust_remote_code, use_fast=True
        )
        return tokenizer if 2 * len(tokenizer) >= vocabulary else None
    return None
