"""vLLM inside the trainer's process; with tensor parallelism its workers are separate processes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from grpodoctor.errors import EngineError, MissingExtraError
from grpodoctor.support.safe_text import printable
from grpodoctor.trainer.config.train_config import TrainConfig
from grpodoctor.trainer.engines.vllm_backend import (
    LoadResult,
    PromptRequest,
    SamplingSettings,
    ServedModel,
    VllmResponse,
)
from grpodoctor.trainer.engines.vllm_worker import EXTENSION
from grpodoctor.trainer.model.policy import Policy

if TYPE_CHECKING:
    from transformers import PreTrainedModel


_ENVIRONMENT = {
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # vLLM shares the cores with the learner
    "VLLM_LOGGING_LEVEL": "ERROR",  # otherwise it logs several lines per step over the progress bar
    "VLLM_NO_USAGE_STATS": "1",  # the user has not agreed to usage statistics
}
"""Environment variables that vLLM reads on import; a value set by the user has priority."""


class LocalVllm:
    """A vLLM engine in this process.

    Raises:
        MissingExtraError: if vLLM is not installed.
        EngineError: if it does not start.
    """

    name = "vLLM in process"

    def __init__(self, config: TrainConfig, policy: Policy, folder: Path) -> None:
        if find_spec("vllm") is None:
            raise MissingExtraError("engine.kind=vllm", "vllm")
        _write_config(policy.model, folder)
        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        if config.engine.tensor_parallel == 1:  # running its loop in this process starts faster
            os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
        try:
            with _keep_torch_threads():
                from vllm import LLM

                self._llm: Any = LLM(**_settings(config, policy, folder))
        # vLLM's parts raise these for an unsupported model or device, or too little memory.
        except (RuntimeError, ValueError, OSError, AssertionError, ImportError) as error:
            raise EngineError(
                f"vLLM does not start: {_cut(error)}",
                where="engine.kind=vllm",
                remedy="see its log above; engine.memory_share and engine.max_model_len limit its "
                "memory",
            ) from error

    def describe(self) -> Sequence[ServedModel]:
        """The model that each worker serves."""
        results = self._call("grpodoctor_describe")
        return [ServedModel.model_validate(result) for result in results]

    def load(self, path: str) -> Sequence[LoadResult]:
        """Load a safetensors file in each worker."""
        results = self._call("grpodoctor_load", {"path": path})
        return [LoadResult.model_validate(result) for result in results]

    def reset_prefix_cache(self) -> None:
        """Empty the prefix cache."""
        if not self._llm.reset_prefix_cache():
            raise EngineError(
                "vLLM did not empty its prefix cache, which still depends on the old weights",
                where="engine.kind=vllm",
            )

    def sample(
        self, requests: Sequence[PromptRequest], settings: SamplingSettings
    ) -> Sequence[Sequence[VllmResponse]]:
        """The responses to each prompt, in order."""
        from vllm import SamplingParams

        parameters = [
            SamplingParams(
                n=request.responses,
                seed=request.seed,
                temperature=settings.temperature,
                top_p=settings.top_p,
                top_k=settings.top_k or -1,
                max_tokens=settings.max_length,
                stop_token_ids=list(settings.end_ids),
                logprobs=settings.top_tokens,
                detokenize=False,
            )
            for request in requests
        ]
        prompts = [{"prompt_token_ids": list(request.prompt)} for request in requests]
        try:
            outputs = self._llm.generate(prompts, parameters, use_tqdm=False)
        except (RuntimeError, ValueError) as error:
            raise EngineError(
                f"vLLM failed: {_cut(error)}", where="engine.kind=vllm", remedy="see its log above"
            ) from error
        return [
            [_response(one) for one in sorted(output.outputs, key=lambda one: int(one.index))]
            for output in outputs
        ]

    def close(self) -> None:
        """End the engine and its workers."""
        self._llm.llm_engine.engine_core.shutdown()

    def _call(self, method: str, arguments: dict[str, str] | None = None) -> list[object]:
        results: list[object] = self._llm.collective_rpc(method, kwargs=arguments or {})
        return results


@contextmanager
def _keep_torch_threads() -> Iterator[None]:
    """Restore torch's thread settings: on a CPU, vLLM disables `torch.set_num_threads`."""
    set_threads, threads = torch.set_num_threads, torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads = set_threads
        set_threads(threads)


def _cut(error: Exception) -> str:
    return printable(" ".join(str(error).split()), 300)


def _response(output: Any) -> VllmResponse:
    ids = list(output.token_ids)
    top = [{token: one.logprob for token, one in entry.items()} for entry in output.logprobs]
    logprobs = [entry[token] for entry, token in zip(top, ids, strict=True)]
    return VllmResponse(ids, logprobs, top)


def _settings(config: TrainConfig, policy: Policy, folder: Path) -> dict[str, Any]:
    engine = config.engine
    learner_dtype = str(policy.model.dtype).removeprefix("torch.")
    return {
        "model": str(folder),
        "load_format": "dummy",  # the first sync loads the weights
        "skip_tokenizer_init": True,  # prompts and responses are token ids
        "dtype": "bfloat16" if engine.precision == "bf16" else learner_dtype,
        "max_model_len": engine.max_model_len,
        "tensor_parallel_size": engine.tensor_parallel,
        "gpu_memory_utilization": engine.memory_share,
        "worker_extension_cls": EXTENSION,
        "logprobs_mode": "processed_logprobs",
        "max_logprobs": config.loss.sampler_top_tokens(),
        "enforce_eager": not torch.cuda.is_available(),  # compilation takes minutes on a CPU
        "seed": config.seed,
        "disable_log_stats": True,
    }


def _write_config(model: PreTrainedModel, folder: Path) -> None:
    """Write the learner's config.json; a model built in memory does not name its architecture."""
    settings = json.loads(model.config.to_json_string(use_diff=False))
    if not settings.get("architectures"):
        settings["architectures"] = [type(model).__name__]
    (folder / "config.json").write_text(json.dumps(settings), encoding="utf-8")
