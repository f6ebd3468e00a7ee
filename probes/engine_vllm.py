"""Engine program: vLLM in process, `vllm:MODEL?dtype=bfloat16&tensor_parallel_size=2`.

Options are arguments of `vllm.LLM(...)`, structures as JSON. Additional options:

- `adapter=DIR`: a LoRA adapter in peft's format, with which every token is sampled and scored
- `attention`: vLLM's attention backend; `batch_tokens`: its `max_num_batched_tokens`
- `sync=DIR`: load this checkpoint into the running engine before the first sample or score, after
  the prompts have passed through the engine with the old weights; `sync_reset_cache=false` keeps
  those prompts in the prefix cache; `sync_stock=true` uses only vLLM's own reload, which on a CPU
  leaves stale packed copies of tied embeddings and experts
- `structured_outputs`: arguments of vLLM's `StructuredOutputsParams` as JSON, such as
  `{"regex": "[0-9]+"}`; applies to sampling
- `perturb`: noise on every weight matrix, relative to its standard deviation, as in a stale
  checkpoint

Sampled log-probabilities are raw (temperature 1, whole vocabulary) unless
`logprobs_mode=processed_logprobs`. Scores are vLLM's `prompt_logprobs`, which are always raw. For
scores under a temperature or truncation, a worker extension applies vLLM's own processing to the
logits; if this vLLM has a model runner unknown to the extension, such scores are refused. Experts
come from vLLM if it can return them (`enable_return_routed_experts`, set except on a CPU), and from
the extension otherwise.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import contract
import numpy as np
from contract import PROCESSORS, Processing, RefusalError, Response, Sampling, response_seed
from hf import tokenizer as hf_tokenizer
from vllm_options import checked_options, engine_arguments, prepare_environment
from vllm_worker_extension import unpack_experts

_FAILURES = (RuntimeError, ValueError, TypeError, KeyError, AttributeError, AssertionError, OSError)
"""What vLLM raises if model, device, memory or options do not fit."""
_REPORTED = (
    "quantization", "kv_cache_dtype", "enable_prefix_caching", "enable_chunked_prefill",
    "max_num_seqs", "speculative_config", "attention_backend", "logprobs_mode", "sync",
    "sync_reset_cache", "sync_stock", "perturb", "structured_outputs", "adapter",
)  # fmt: skip
"""Options that affect log-probabilities; reported if given."""


class VllmEngine:
    """A vLLM engine in this process.

    Args:
        model: a directory or a name on the hub.
        options: see the module.

    Raises:
        RefusalError: if an option is unknown or vLLM does not start.
    """

    def __init__(self, model: str, options: dict[str, Any]) -> None:
        options = checked_options(options)
        prepare_environment(options)
        from vllm import LLM
        from vllm.platforms import current_platform

        self._on_cpu = current_platform.is_cpu()
        self._given = dict(options)
        self._noise = options.pop("perturb", 0.0)
        self._sync = str(options.pop("sync", "") or (model if self._noise else ""))
        self._reset_cache = bool(options.pop("sync_reset_cache", True))
        self._stock = bool(options.pop("sync_stock", False))
        self._structured = options.pop("structured_outputs", None)
        self._model = model
        self._adapter: Any = None
        adapter = str(options.get("adapter") or "")
        settings = engine_arguments(model, options, on_cpu=self._on_cpu)
        try:
            self._llm: Any = LLM(**settings)
        except _FAILURES as error:
            raise RefusalError(
                f"vLLM does not start: {_one_line(error)}",
                "read its log; check the options, the memory and the model",
            ) from error
        if adapter:
            self._adapter = self._loaded_adapter(Path(adapter).resolve())
        self._config: Any = self._llm.llm_engine.vllm_config
        self._routers: list[int] = self._call("probe_router_layers")[0]

    def _loaded_adapter(self, folder: Path) -> Any:
        """The part of each request that names the adapter."""
        from vllm.lora.request import LoRARequest

        request = LoRARequest("adapter", 1, str(folder))
        try:
            is_loaded = self._llm.llm_engine.add_lora(request)
        except _FAILURES as error:
            raise RefusalError(
                f"vLLM cannot load the adapter {folder}: {_one_line(error)}",
                "merge it with peft, and name the merged model",
            ) from error
        if not is_loaded:
            raise RefusalError(f"vLLM does not load the adapter {folder}", "read its log")
        return request

    def describe(self) -> dict[str, Any]:
        """What the engine is and how it is configured."""
        import vllm

        model = self._config.model_config
        parallel = self._config.parallel_config
        tokenizer = self._llm.get_tokenizer()
        return {
            "name": "vllm",
            "version": vllm.__version__,
            "model": self._sync or self._model,
            "dtype": str(model.dtype).removeprefix("torch."),
            "device": str(self._config.device_config.device_type),
            "layout": {
                "tensor_parallel": parallel.tensor_parallel_size,
                "pipeline_parallel": parallel.pipeline_parallel_size,
            },
            "vocab_size": int(model.get_vocab_size()),
            "end_ids": _end_ids(model, tokenizer),
            "begin_id": getattr(tokenizer, "bos_token_id", None),
            "context": int(model.max_model_len),
            "logprobs": self._mode,
            "processors": list(PROCESSORS),
            "settings": self._reported_settings(),
        }

    def tokenise(self, prompts: Sequence[Mapping[str, Any]]) -> list[list[int]]:
        """The ids that reach the model, determined by sending the prompts through vLLM.

        For prompts that vLLM would refuse, the ids come from its tokenizer, since the probe needs
        their lengths.
        """
        tokenizer = self._llm.get_tokenizer()
        ids = [hf_tokenizer.encoded(tokenizer, prompt) for prompt in prompts]
        fitting = [place for place, prompt_ids in enumerate(ids) if len(prompt_ids) < self._context]
        chats = [place for place in fitting if "messages" in prompts[place]]
        texts = [place for place in fitting if "messages" not in prompts[place]]
        self._read(ids, chats, self._llm.chat, [prompts[place].get("messages") for place in chats])
        self._read(ids, texts, self._llm.generate, [prompts[place].get("text") for place in texts])
        self._llm.reset_prefix_cache()
        return ids

    @staticmethod
    def _read(
        ids: list[list[int]], places: Sequence[int], send: Callable[..., Any], prompts: list[Any]
    ) -> None:
        """Replace the ids of some prompts by those that vLLM reports."""
        from vllm import SamplingParams

        if not prompts:
            return
        try:
            outputs = send(prompts, SamplingParams(max_tokens=1, detokenize=False), use_tqdm=False)
        except _FAILURES as error:
            raise RefusalError(
                f"vLLM rejects the prompts: {_one_line(error)}",
                "check them and the model's chat template",
            ) from error
        for place, output in zip(places, outputs, strict=True):
            ids[place] = list(output.prompt_token_ids)

    def sample(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, want: Sequence[str]
    ) -> list[Response]:
        """One request per response, so that each reports its use of the prefix cache."""
        self._refuse_longer(prompts, "a prompt", room=2)
        self._sync_now(prompts)
        structured = self._structured_outputs()
        requests = [
            (prompt, sample) for prompt in range(len(prompts)) for sample in range(sampling.samples)
        ]
        settings = [
            self._sampling_params(sampling, prompts, request, want, structured)
            for request in requests
        ]
        ids = [list(prompts[prompt]) for prompt, _ in requests]
        outputs, experts = self._generate(ids, settings, want)
        return [
            self._sampled(output, prompt, sample, experts, want)
            for output, (prompt, sample) in zip(outputs, requests, strict=True)
        ]

    def _sampling_params(
        self,
        sampling: Sampling,
        prompts: Sequence[Sequence[int]],
        request: tuple[int, int],
        want: Sequence[str],
        structured: Any,
    ) -> Any:
        """The settings of one request: the index of its prompt, and that of the sample."""
        from vllm import SamplingParams

        prompt, sample = request
        # Leave room for one token, which scoring the response needs.
        max_tokens = min(sampling.max_tokens, self._context - len(prompts[prompt]) - 1)
        return SamplingParams(
            max_tokens=max_tokens,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            min_p=sampling.min_p,
            repetition_penalty=sampling.repetition_penalty,
            presence_penalty=sampling.presence_penalty,
            frequency_penalty=sampling.frequency_penalty,
            min_tokens=min(sampling.min_tokens, max_tokens),
            logit_bias=dict(sampling.logit_bias) or None,
            seed=response_seed(sampling, prompt, sample),
            stop_token_ids=[] if sampling.ignore_end else list(sampling.stop_ids),
            ignore_eos=sampling.ignore_end,
            logprobs=1 if "ranks" in want else 0,
            detokenize=False,
            structured_outputs=structured,
        )

    def _structured_outputs(self) -> Any:
        """What responses must match; None for anything."""
        if not self._structured:
            return None
        from vllm.sampling_params import StructuredOutputsParams

        try:
            return StructuredOutputsParams(**self._structured)
        except (TypeError, ValueError) as error:
            raise RefusalError(
                f"structured_outputs= is not understood: {_one_line(error)}",
                'write JSON, such as {"regex": "[0-9]+"}, {"json": {...}} or {"choice": [...]}',
            ) from error

    def score(
        self, responses: Sequence[Response], processing: Processing, want: Sequence[str]
    ) -> list[Response]:
        """Send each prompt with its response as one prompt, and read `prompt_logprobs`."""
        from vllm import SamplingParams

        ids = [[*each.prompt_ids, *each.response_ids] for each in responses]
        self._refuse_longer(ids, "a prompt with its response", room=1)
        self._refuse_promptless(responses)
        self._sync_now([list(each.prompt_ids) for each in responses])
        self._process(processing)
        one = SamplingParams(
            max_tokens=1, prompt_logprobs=1 if "ranks" in want else 0, detokenize=False
        )
        outputs, experts = self._generate(ids, [one] * len(ids), want)
        self._process(Processing())
        return [
            self._scored(output, response, experts, want)
            for output, response in zip(outputs, responses, strict=True)
        ]

    def close(self) -> None:
        """Shut down the engine and its workers."""
        self._llm.llm_engine.engine_core.shutdown()

    @property
    def _context(self) -> int:
        return int(self._config.model_config.max_model_len)

    @property
    def _mode(self) -> str:
        mode = str(self._config.model_config.logprobs_mode)
        return "processed" if mode == "processed_logprobs" else "raw"

    def _reported_settings(self) -> dict[str, Any]:
        cache = self._config.cache_config
        settings = {name: self._given[name] for name in _REPORTED if name in self._given}
        settings |= {
            "enable_prefix_caching": bool(cache.enable_prefix_caching),
            "kv_cache_dtype": str(cache.cache_dtype),
            "block_size": int(cache.block_size),
            "quantization": self._config.model_config.quantization,
            "scores": "prompt_logprobs, processed by the worker extension where asked",
            "router_layers": self._routers,
        }
        parallel = self._config.parallel_config
        # Digests of a shard, or of weights that a sync or adapter changes, could not be compared.
        if parallel.world_size == 1 and not self._sync and self._adapter is None:
            settings["weight_digests"] = self._call("probe_digests")[0]
        return settings

    def _sync_now(self, prompts: Sequence[Sequence[int]]) -> None:
        """Load the checkpoint of `sync` if there is one and it is not loaded yet."""
        if not self._sync:
            return
        from vllm import SamplingParams

        folder, self._sync = self._sync, ""
        one = SamplingParams(max_tokens=1, detokenize=False)
        distinct = [list(each) for each in dict.fromkeys(map(tuple, prompts))]
        self._generate(distinct, [one] * len(distinct), ())
        for error in self._call("probe_load", folder, self._stock, self._noise):
            if error:
                raise RefusalError(
                    f"vLLM cannot load {folder} into the running engine: {error}",
                    "give sync= a checkpoint of the same model",
                )
        if self._reset_cache and not self._llm.reset_prefix_cache():
            raise RefusalError("vLLM cannot reset its prefix cache")

    def _process(self, processing: Processing) -> None:
        values = dataclasses.astuple(processing)
        if not all(self._call("probe_processing", *values)) and processing != Processing():
            raise RefusalError(
                "this vLLM's model runner scores only at temperature 1 over the whole vocabulary",
                "set VLLM_USE_V2_MODEL_RUNNER=0, or compare at temperature 1 without truncation",
            )

    def _generate(
        self, ids: Sequence[Sequence[int]], settings: Sequence[Any], want: Sequence[str]
    ) -> tuple[Sequence[Any], _Experts]:
        watching = "experts" in want and bool(self._routers) and not self._native
        if watching and not all(self._call("probe_watch_experts")):
            watching = False
        try:
            prompts = [{"prompt_token_ids": list(each)} for each in ids]
            outputs = self._llm.generate(
                prompts, list(settings), use_tqdm=False, lora_request=self._adapter
            )
        except _FAILURES as error:
            raise RefusalError(f"vLLM failed: {_one_line(error)}", "read its log") from error
        recorded = self._call("probe_take_experts")[0] if watching else {}
        if len(outputs) != len(ids):
            raise RefusalError(f"vLLM returned {len(outputs)} answers to {len(ids)} requests")
        return outputs, _Experts(recorded, self._routers)

    @property
    def _native(self) -> bool:
        aside = getattr(self._config, "aux_output_config", None)
        own = getattr(self._config.model_config, "enable_return_routed_experts", False)
        return bool(own or getattr(aside, "enable_return_routed_experts", False))

    def _sampled(
        self, output: Any, prompt: int, sample: int, experts: _Experts, want: Sequence[str]
    ) -> Response:
        (one,) = output.outputs
        ids = list(one.token_ids)
        if not ids or one.logprobs is None or len(one.logprobs) != len(ids):
            raise RefusalError(
                f"vLLM returned {len(ids)} tokens with {len(one.logprobs or ())} log-probabilities"
            )
        response = Response(
            list(output.prompt_token_ids),
            ids,
            prompt=prompt,
            sample=sample,
            ended=one.finish_reason == "stop",
            cached=int(output.num_cached_tokens or 0),
        )
        return _with_values(response, one.logprobs, experts.of(output, response), want)

    def _scored(
        self, output: Any, response: Response, experts: _Experts, want: Sequence[str]
    ) -> Response:
        entries = output.prompt_logprobs
        whole = len(response.prompt_ids) + len(response.response_ids)
        if entries is None or len(entries) != whole:
            raise RefusalError(
                f"vLLM returned log-probabilities of {len(entries or ())} of {whole} tokens"
            )
        scored = dataclasses.replace(response, cached=int(output.num_cached_tokens or 0), extras={})
        own = [entries[place] for place in range(len(response.prompt_ids), whole)]
        return _with_values(scored, own, experts.of(output, scored), want)

    def _refuse_longer(self, ids: Sequence[Sequence[int]], what: str, room: int) -> None:
        longest = max(map(len, ids), default=0)
        if longest + room > self._context:
            raise RefusalError(
                f"{what} of {longest} tokens does not fit into vLLM's context of {self._context}",
                "raise max_model_len, or remove long prompts",
            )

    @staticmethod
    def _refuse_promptless(responses: Sequence[Response]) -> None:
        if any(not len(each.prompt_ids) for each in responses):
            raise RefusalError(
                "vLLM returns no log-probability of a sequence's first token, and a response has "
                "no prompt",
                "give every prompt at least one token",
            )

    def _call(self, method: str, *arguments: Any) -> list[Any]:
        results: list[Any] = self._llm.collective_rpc(method, args=arguments)
        return results


class _Experts:
    """The experts of the tokens of some requests."""

    def __init__(self, recorded: Mapping[str, Any], layers: Sequence[int]) -> None:
        # vLLM appends a random suffix to the ids of requests.
        self._recorded = {**recorded} | {
            name.rpartition("-")[0]: packed for name, packed in recorded.items()
        }
        self._layers = list(layers)

    def of(self, output: Any, response: Response) -> dict[str, np.ndarray]:
        """The experts of the tokens that predict a response's tokens."""
        first = len(response.prompt_ids) - 1
        last = first + len(response.response_ids)
        native = getattr(output.outputs[0], "routed_experts", None)
        if native is not None:
            chosen = np.asarray(native)[first:last][:, self._layers]
            return {"experts": chosen} if len(chosen) == last - first else {}
        packed = self._recorded.get(output.request_id)
        if packed is None:
            return {}
        experts_TLK, margins_TL = unpack_experts(packed)
        return {"experts": experts_TLK[first:last], "router_margin": margins_TL[first:last]}


def load(model: str, options: dict[str, Any]) -> VllmEngine:
    """Start vLLM with a model."""
    return VllmEngine(model, options)


def _end_ids(model: Any, tokenizer: Any) -> list[int]:
    """End tokens of the tokenizer and the generation config."""
    declared = model.try_get_generation_config().get("eos_token_id", [])
    listed = declared if isinstance(declared, list) else [declared]
    own = [getattr(tokenizer, "eos_token_id", None)]
    return sorted({int(token) for token in (*listed, *own) if token is not None})


def _with_values(
    response: Response,
    entries: Sequence[Mapping[int, Any]],
    experts: Mapping[str, np.ndarray],
    want: Sequence[str],
) -> Response:
    """The response with vLLM's values at each of its positions."""
    own = [entry[token] for entry, token in zip(entries, response.response_ids, strict=True)]
    response.logprobs = [each.logprob for each in own]
    if "ranks" in want:
        response.extras["rank"] = np.array([each.rank - 1 for each in own], np.int32)
        response.extras["top_logprob"] = np.array(
            [max(each.logprob for each in entry.values()) for entry in entries], np.float32
        )
    if "experts" in want:
        response.extras.update(experts)
    return response


def _one_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:400]


if __name__ == "__main__":
    contract.serve(load)
