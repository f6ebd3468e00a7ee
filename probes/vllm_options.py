"""The options of the vLLM engine, as arguments of `vllm.LLM`, and its environment."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from contract import RefusalError
from hf.adapter_config import read_adapter_config
from vllm_worker_extension import EXTENSION

_OWN_OPTIONS = (
    *("adapter", "attention", "batch_tokens", "perturb", "structured_outputs"),
    *("sync", "sync_reset_cache", "sync_stock"),
)
_FIXED = {
    "model": "it is given before the question mark",
    "worker_extension_cls": "the probe uses its own extension",
    "skip_tokenizer_init": "the engine tokenizes the prompts",
}
_LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Values of vLLM's `max_lora_rank`."""
_ENVIRONMENT = {
    "VLLM_NO_USAGE_STATS": "1",  # the user did not consent
    "VLLM_LOGGING_LEVEL": "WARNING",  # several lines a second otherwise
}


def prepare_environment(options: Mapping[str, Any]) -> None:
    """Set the variables that vLLM reads on import, unless the user has set them."""
    degree = options.get("tensor_parallel_size", 1)
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    if degree == 1:
        os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")  # a faster start
        os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    elif isinstance(degree, int) and degree <= (os.cpu_count() or 1):
        # On a CPU each rank needs its own cores.
        cores = (os.cpu_count() or 1) // degree
        shares = (range(rank * cores, (rank + 1) * cores) for rank in range(degree))
        bound = "|".join(",".join(map(str, share)) for share in shares)
        os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", bound)
    # Worker processes import the extension from this folder.
    here = str(Path(__file__).parent)
    paths = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = f"{here}{os.pathsep}{paths}" if paths else here


def checked_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options, with JSON parsed, after all checks that do not need vLLM."""
    for name, why in _FIXED.items():
        if name in options:
            raise RefusalError(f"{name}= cannot be set: {why}", "remove it")
    mode = options.get("logprobs_mode", "raw_logprobs")
    if mode not in ("raw_logprobs", "processed_logprobs"):
        raise RefusalError(
            f"logprobs_mode={mode} does not give log-probabilities",
            "use raw_logprobs or processed_logprobs",
        )
    noise = options.get("perturb", 0.0)
    if isinstance(noise, bool) or not isinstance(noise, int | float) or not noise >= 0:
        raise RefusalError(f"perturb={noise} is not a number of at least 0", "set 0 or more")
    _check_adapter(options)
    return {name: _structured(value) for name, value in options.items()}


def _check_adapter(options: Mapping[str, Any]) -> None:
    """Refuse LoRA without an adapter, which would sample from the base model without a word."""
    if not options.get("adapter"):
        if options.get("enable_lora"):
            raise RefusalError(
                "enable_lora= without an adapter would sample from the base model",
                "name the adapter's directory with adapter=",
            )
        return
    for name in ("sync", "perturb"):
        if options.get(name):
            raise RefusalError(
                f"{name}= and adapter= cannot be combined: vLLM loads other weights only without "
                "an adapter",
                "merge the adapter, and name the merged model",
            )
    read_adapter_config(Path(str(options["adapter"])))


def _lora_arguments(adapter: str) -> dict[str, Any]:
    """The arguments of `LLM` that an adapter needs."""
    rank = read_adapter_config(Path(adapter)).largest_rank
    fitting = [each for each in _LORA_RANKS if each >= rank]
    if not fitting:
        raise RefusalError(
            f"the adapter's rank of {rank} exceeds vLLM's largest, {_LORA_RANKS[-1]}",
            "merge it with peft, and name the merged model",
        )
    return {"enable_lora": True, "max_lora_rank": fitting[0]}


def engine_arguments(model: str, options: Mapping[str, Any], *, on_cpu: bool) -> dict[str, Any]:
    """The arguments of `LLM`."""
    known = _known_options()
    for name in options:
        if name not in known:
            near = ", ".join(difflib.get_close_matches(name, sorted(known)))
            advice = f"did you mean {near}?" if near else "use an argument of vllm.LLM"
            raise RefusalError(f"vLLM has no option {name[:60]!r}", advice)
    settings = dict(options)
    if adapter := settings.pop("adapter", None):
        settings = _lora_arguments(str(adapter)) | settings | {"enable_lora": True}
    if "attention" in settings:
        settings["attention_backend"] = str(settings.pop("attention")).upper()
    if "batch_tokens" in settings:
        settings["max_num_batched_tokens"] = settings.pop("batch_tokens")
    if on_cpu:
        settings.setdefault("enforce_eager", True)  # compilation takes minutes on a CPU
        # vLLM's default requests nearly all memory, and fails if some of it is in use.
        settings.setdefault("gpu_memory_utilization", 0.5)
        if "max_num_batched_tokens" not in settings:  # less than the context needs chunks
            # Chunked prefill rewinds the generator of a seeded request, which a CPU's cannot do.
            settings.setdefault("enable_chunked_prefill", False)
    elif _has_experts(model, settings):
        settings.setdefault("enable_return_routed_experts", True)
    return settings | {"model": model, "worker_extension_cls": EXTENSION}


def _known_options() -> set[str]:
    from vllm import LLM, EngineArgs

    fields = {field.name for field in dataclasses.fields(EngineArgs)}
    own = set(inspect.signature(LLM.__init__).parameters) - {"self", "kwargs"}
    return (fields | own | set(_OWN_OPTIONS)) - set(_FIXED)


def _structured(value: Any) -> Any:
    """An option, parsed if it is written as JSON."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return json.loads(value)
        except ValueError as error:
            raise RefusalError(
                f"{value[:60]!r} is not JSON: {error}", "use double quotes for strings"
            ) from error
    return value


def _has_experts(model: str, settings: Mapping[str, Any]) -> bool:
    if "enable_return_routed_experts" not in _known_options():
        return False
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(
            model, trust_remote_code=bool(settings.get("trust_remote_code", False))
        ).get_text_config()
    except (OSError, ValueError, KeyError):
        return False  # vLLM supports more models than transformers, and has better errors
    names = ("num_experts", "num_local_experts", "n_routed_experts")
    return any((getattr(config, name, 0) or 0) > 1 for name in names)
