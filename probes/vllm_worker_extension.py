"""Extension of vLLM's workers for `engine_vllm.py`: routed experts, processing, other weights.

vLLM mixes this class into its worker class through `worker_extension_cls`. Its methods are called
by name through `collective_rpc`, so their arguments and results must be serializable.

It uses internals of vLLM. Each method reports whether they exist, so that the program can refuse
with a reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

EXTENSION = "vllm_worker_extension.ProbeWorker"
"""The value of `worker_extension_cls`."""
UNKNOWN_MARGIN = float("nan")
_LOADING = (OSError, ValueError, KeyError, AttributeError, RuntimeError, AssertionError)
"""What vLLM raises for a checkpoint that does not fit, or of an unknown format."""


class ProbeWorker:
    """Mixed into vLLM's worker class; never instantiated on its own."""

    vllm_config: Any  # vLLM is not installed where this is type-checked
    model_runner: Any
    _watch: _RouterWatch | None = None

    def probe_router_layers(self) -> list[int]:
        """Indices of the layers with a router."""
        return sorted(_routers(self.model_runner.get_model()))

    def probe_watch_experts(self) -> bool:
        """Start recording the experts of each token; whether this vLLM supports it."""
        runner = self.model_runner
        if not (hasattr(runner, "input_batch") and hasattr(runner, "query_start_loc")):
            return False
        self._watch = _RouterWatch(self.model_runner)
        return True

    def probe_take_experts(self) -> dict[str, dict[str, Any]]:
        """Stop recording; returns the experts by request.

        Returns:
            for each request the `shape` (T positions from 0, L layers, K experts per token) of
            `experts`, int16 as bytes, -1 where nothing was computed, and `margins` (T, L), float32
            as bytes.
        """
        watch, self._watch = self._watch, None
        return {} if watch is None else watch.finish()

    def probe_processing(self, temperature: float, top_p: float, top_k: int, min_p: float) -> bool:
        """Apply this processing to prompt log-probabilities, which vLLM computes at temperature 1.

        Neutral values restore vLLM's own behavior.

        Returns:
            whether this vLLM supports it.
        """
        runner = self.model_runner
        sampler: Any = getattr(runner, "sampler", None)
        if not (
            hasattr(runner, "_get_prompt_logprobs_dict") and hasattr(sampler, "compute_logprobs")
        ):
            return False
        vars(sampler).pop("compute_logprobs", None)
        if (temperature, top_p, top_k, min_p) == (1, 1, 0, 0):
            return True
        plain = sampler.compute_logprobs

        def processed(logits_NV: Any) -> Any:
            return plain(_process(logits_NV.float(), temperature, top_p, top_k, min_p))

        sampler.compute_logprobs = processed
        return True

    def probe_load(self, folder: str, stock: bool, noise: float) -> str:
        """Load another checkpoint into the running model.

        Args:
            folder: the checkpoint's directory.
            stock: use only vLLM's own reload, which on a CPU leaves stale packed copies of tied
                embeddings and experts.
            noise: noise on every weight matrix, relative to its standard deviation.

        Returns:
            the error; empty on success.
        """
        try:
            if not stock:
                _discard_packed_experts(self.model_runner.get_model())
            given: dict[str, Any] = {"weights_path": folder}
            if noise:
                given = {"weights_iterator": self._noisy(folder, noise)}
            self.reload_weights(**given)  # type: ignore[attr-defined]  # the worker's
            if not stock:
                _pack_embeddings(self.model_runner.get_model())
        except _LOADING as error:
            return f"{type(error).__name__}: {error}"[:300]
        return ""

    def _noisy(self, folder: str, noise: float) -> Iterator[tuple[str, Any]]:
        from vllm.model_executor.model_loader import get_model_loader

        config = self.vllm_config.model_config
        config.model = folder
        loader = get_model_loader(self.vllm_config.load_config)
        return noisy(loader.get_all_weights(config, self.model_runner.get_model()), noise)

    def probe_digests(self) -> dict[str, list[float]]:
        """Number of elements, sum and Euclidean norm of each readable parameter.

        Fused tensors (`qkv_proj`) have the sums of their parts. Parameters that a kernel has
        packed, as on a CPU, are empty and skipped.
        """
        import torch

        digests = {}
        for name, weight in self.model_runner.get_model().named_parameters():
            if weight.numel() and weight.is_floating_point() and weight.element_size() > 1:
                total = weight.detach().sum(dtype=torch.float64)
                norm = torch.linalg.vector_norm(weight.detach(), dtype=torch.float64)
                digests[name] = [weight.numel(), float(total), float(norm)]
        return digests


class _RouterWatch:
    """Records the experts of every token by request and position."""

    def __init__(self, runner: Any) -> None:
        self._runner = runner
        self._routers = _routers(runner.get_model())
        self._step: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self._parts: dict[str, list[tuple[int, np.ndarray, np.ndarray]]] = {}
        for layer, router in self._routers.items():
            self._listen(layer, router)
        self._hook = runner.get_model().register_forward_hook(lambda *_: self._sort())

    def finish(self) -> dict[str, dict[str, Any]]:
        """Stop recording; returns the experts by request."""
        self._hook.remove()
        for router in self._routers.values():
            vars(router).pop("select_experts", None)
        return {request: _joined(parts) for request, parts in self._parts.items()}

    def _listen(self, layer: int, router: Any) -> None:
        select = router.select_experts

        def listening(*args: Any, router_logits: Any, **kwargs: Any) -> Any:
            weights_NK, ids_NK = select(*args, router_logits=router_logits, **kwargs)
            # Copy now: the next forward pass may reuse the memory.
            ids = ids_NK.cpu().numpy().astype(np.int16)
            self._step[layer] = (ids, _margins(router_logits, ids_NK))
            return weights_NK, ids_NK

        router.select_experts = listening

    def _sort(self) -> None:
        """Assign the rows of a forward pass to their requests."""
        batch = self._runner.input_batch
        layers = [self._step[layer] for layer in sorted(self._step)]
        self._step = {}
        if not layers or len(layers) != len(self._routers):
            return
        experts_NLK = np.stack([ids for ids, _ in layers], axis=1)
        margins_NL = np.stack([margins for _, margins in layers], axis=1)
        borders = self._runner.query_start_loc.np
        for row, request in enumerate(batch.req_ids):
            rows = slice(int(borders[row]), int(borders[row + 1]))
            first = int(batch.num_computed_tokens_cpu[row])
            part = (first, experts_NLK[rows].copy(), margins_NL[rows].copy())
            self._parts.setdefault(request, []).append(part)


def _joined(parts: list[tuple[int, np.ndarray, np.ndarray]]) -> dict[str, Any]:
    """All rows of a request by position; recomputed rows replace earlier ones."""
    length = max(first + len(ids) for first, ids, _ in parts)
    shape = (length, *parts[0][1].shape[1:])
    experts_TLK = np.full(shape, -1, np.int16)
    margins_TL = np.full(shape[:2], UNKNOWN_MARGIN, np.float32)
    for first, ids, margins in parts:
        experts_TLK[first : first + len(ids)] = ids
        margins_TL[first : first + len(ids)] = margins
    return {
        "shape": list(shape),
        "experts": experts_TLK.tobytes(),
        "margins": margins_TL.tobytes(),
    }


def unpack_experts(packed: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """`experts_TLK` and `router_margin_TL` of one request of `probe_take_experts`."""
    shape = tuple(packed["shape"])
    experts_TLK = np.frombuffer(packed["experts"], np.int16).reshape(shape)
    return experts_TLK, np.frombuffer(packed["margins"], np.float32).reshape(shape[:2])


def _margins(logits_NE: Any, ids_NK: Any) -> np.ndarray:
    """The lowest logit of the chosen experts minus the highest of the others."""
    import torch

    logits = logits_NE.float()
    chosen = torch.zeros_like(logits, dtype=torch.bool).scatter_(1, ids_NK.long(), True)
    last = logits.masked_fill(~chosen, torch.inf).amin(dim=1)
    first = logits.masked_fill(chosen, -torch.inf).amax(dim=1)
    margins: np.ndarray = (last - first).cpu().numpy()
    return margins


def _routers(model: Any) -> dict[int, Any]:
    """The routers by layer index."""
    routers = {}
    for module in model.modules():
        router = getattr(module, "router", None)
        if hasattr(router, "select_experts") and hasattr(module, "layer_id"):
            routers[int(module.layer_id)] = router
    return routers


def noisy(weights: Iterable[tuple[str, Any]], relative: float) -> Iterator[tuple[str, Any]]:
    """A checkpoint's tensors with noise on each matrix, equal on every rank."""
    import torch

    for number, (name, tensor) in enumerate(weights):
        if tensor.ndim > 1 and tensor.is_floating_point() and tensor.element_size() > 1:
            generator = torch.Generator().manual_seed(number)
            noise = torch.randn(tensor.shape, generator=generator) * tensor.float().std().cpu()
            yield name, tensor + (relative * noise).to(tensor)
        else:
            yield name, tensor


def _process(logits_NV: Any, temperature: float, top_p: float, top_k: int, min_p: float) -> Any:
    """Process logits like vLLM's sampler: temperature, min-p, top-k, top-p."""
    import torch
    from vllm.v1.sample.ops.topk_topp_sampler import apply_top_k_top_p

    logits_NV = logits_NV / torch.tensor(temperature, device=logits_NV.device)
    if min_p > 0:
        probabilities = logits_NV.softmax(dim=-1)
        least = min_p * probabilities.amax(dim=-1, keepdim=True)
        logits_NV = logits_NV.masked_fill(probabilities < least, -torch.inf)
    rows, words = logits_NV.shape
    k = torch.full((rows,), min(top_k, words), device=logits_NV.device) if top_k > 0 else None
    p = torch.full((rows,), top_p, device=logits_NV.device) if top_p < 1 else None
    return apply_top_k_top_p(logits_NV, k, p)


def _discard_packed_experts(model: Any) -> None:
    """Make vLLM pack experts again, which a CPU needs and an existing kernel prevents."""
    from vllm.platforms import current_platform

    for module in model.modules() if current_platform.is_cpu() else ():
        method: Any = getattr(module, "quant_method", None)
        if getattr(method, "moe_kernel", None) is not None:
            method.moe_kernel = None


def _pack_embeddings(model: Any) -> None:
    """Recompute values derived from embeddings, which may be tied to the output head."""
    from vllm.model_executor.layers import vocab_parallel_embedding as embedding

    for module in model.modules():
        method = getattr(module, "quant_method", None)
        if isinstance(module, embedding.VocabParallelEmbedding) and isinstance(
            method, embedding.UnquantizedEmbeddingMethod
        ):
            method.process_weights_after_loading(module)
