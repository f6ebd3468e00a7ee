"""vLLM inside the trainer's own process (its workers are processes of their own if several)."""

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
from grpodoctor.trainer.engines.vllm_engine import (
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
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # the learner's cores are not vLLM's alone
    "VLLM_LOGGING_LEVEL": "ERROR",  # or it writes over the progress bar, several lines a step
    "VLLM_NO_USAGE_STATS": "1",  # nobody was asked
}
"""What vLLM reads when it is imported, unless the user has set it."""


class LocalVllm:
    """A vLLM engine of our own.

    Args:
        config: the run's configuration.
        policy: the learner, whose sizes vLLM takes over.
        folder: where its configuration is written for vLLM to read.

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
        if config.engine.tensor_parallel == 1:  # its loop in this process: a faster start
            os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
        try:
            with _own_threads():
                from vllm import LLM

                self._llm: Any = LLM(**_settings(config, policy, folder))
        # What the model, the device or the memory lacks, in words of vLLM's many parts.
        except (RuntimeError, ValueError, OSError, AssertionError, ImportError) as error:
            raise EngineError(
                f"vLLM does not start: {_cut(error)}",
                where="engine.kind=vllm",
                remedy="see its log above; engine.memory_share and engine.max_model_len bound what "
                "it takes",
            ) from error

    def describe(self) -> Sequence[ServedModel]:
        """What each worker serves."""
        return [ServedModel.model_validate(each) for each in self._call("grpodoctor_describe")]

    def load(self, path: str) -> Sequence[LoadResult]:
        """Have each worker load a safetensors file."""
        results = self._call("grpodoctor_load", {"path": path})
        return [LoadResult.model_validate(each) for each in results]

    def reset_prefix_cache(self) -> None:
        """Empty the prefix cache."""
        if not self._llm.reset_prefix_cache():
            raise EngineError(
                "vLLM does not empty its prefix cache, which would keep the old weights",
                where="engine.kind=vllm",
            )

    def sample(
        self, requests: Sequence[PromptRequest], terms: SamplingSettings
    ) -> Sequence[Sequence[VllmResponse]]:
        """The responses to each prompt, in order."""
        from vllm import SamplingParams

        settings = [
            SamplingParams(
                n=request.responses,
                seed=request.seed,
                temperature=terms.temperature,
                max_tokens=terms.max_length,
                stop_token_ids=list(terms.end_ids),
                logprobs=terms.top_tokens,
                detokenize=False,
            )
            for request in requests
        ]
        prompts = [{"prompt_token_ids": list(request.prompt)} for request in requests]
        try:
            outputs = self._llm.generate(prompts, settings, use_tqdm=False)
        except (RuntimeError, ValueError) as error:
            raise EngineError(
                f"vLLM failed: {_cut(error)}", where="engine.kind=vllm", remedy="see its log above"
            ) from error
        return [
            [_response(each) for each in sorted(output.outputs, key=lambda one: int(one.index))]
            for output in outputs
        ]

    def close(self) -> None:
        """End the engine and its workers."""
        self._llm.llm_engine.engine_core.shutdown()

    def _call(self, method: str, arguments: dict[str, str] | None = None) -> list[object]:
        results: list[object] = self._llm.collective_rpc(method, kwargs=arguments or {})
        return results


@contextmanager
def _own_threads() -> Iterator[None]:
    """Keep torch's threads as they are: on a CPU vLLM takes away the means to set them."""
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
    own = str(policy.model.dtype).removeprefix("torch.")
    return {
        "model": str(folder),
        "load_format": "dummy",  # the first sync brings the weights
        "skip_tokenizer_init": True,  # ids in, ids out
        "dtype": "bfloat16" if engine.precision == "bf16" else own,
        "max_model_len": engine.max_model_len,
        "tensor_parallel_size": engine.tensor_parallel,
        "gpu_memory_utilization": engine.memory_share,
        "worker_extension_cls": EXTENSION,
        "logprobs_mode": "processed_logprobs",
        "max_logprobs": config.loss.sampler_top_tokens(),
        "enforce_eager": not torch.cuda.is_available(),  # compiling takes a CPU minutes
        "seed": config.seed,
        "disable_log_stats": True,
    }


def _write_config(model: PreTrainedModel, folder: Path) -> None:
    """The learner's config.json, with the architecture that one made on the spot does not name."""
    settings = json.loads(model.config.to_json_string(use_diff=False))
    if not settings.get("architectures"):
        settings["architectures"] = [type(model).__name__]
    (folder / "config.json").write_text(json.dumps(settings), encoding="utf-8")
