"""The vLLM worker extension: loads the learner's weights and describes the served model.

vLLM mixes `WeightSync` into each of its workers when it is started with
`--worker-extension-cls grpodoctor.trainer.engines.vllm_worker.WeightSync`. Its methods are called
by name through `collective_rpc`, in process or over HTTP. They take and return JSON values.

On a CPU, vLLM's own reload is not sufficient, because the kernels there use packed copies. If input
and output embeddings are tied, it leaves the output's packed copy unchanged. It also does not pack
the experts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn

EXTENSION = "grpodoctor.trainer.engines.vllm_worker.WeightSync"
"""The value of `--worker-extension-cls`."""

SIZES = (
    *("model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers"),
    *("num_attention_heads", "num_key_value_heads", "num_experts", "num_local_experts"),
    *("moe_intermediate_size", "tie_word_embeddings"),
)
"""Names in config.json that must have the same value in two models that share weights."""


class WeightSync:
    """Mixed into vLLM's worker class; never instantiated on its own."""

    vllm_config: Any  # vLLM is not installed where this is type-checked
    model_runner: Any

    def grpodoctor_describe(self) -> dict[str, Any]:
        """VLLM's version, the model's sizes, and the settings that affect log-probabilities."""
        import vllm

        model = self.vllm_config.model_config
        text = model.hf_text_config
        return {
            "version": vllm.__version__,
            "sizes": {name: getattr(text, name) for name in SIZES if hasattr(text, name)},
            "logprobs_mode": str(getattr(model, "logprobs_mode", "raw_logprobs")),
            "max_model_len": model.max_model_len,
        }

    def grpodoctor_load(self, path: str) -> dict[str, Any]:
        """Load all weights of a safetensors file.

        Args:
            path: the file, with the names of a saved checkpoint.

        Returns:
            `tensors`, the number of tensors in the file; `missing`, parameters that it did not set;
            and `error`, empty unless the file could not be loaded.
        """
        from safetensors import SafetensorError

        try:
            tensors, missing = self._load(path)
        # What vLLM's loading code raises for an unsuitable file. Returned, it is one line; raised,
        # it is a page in the server's log.
        except (
            OSError,
            SafetensorError,
            ValueError,
            KeyError,
            RuntimeError,
            AssertionError,
        ) as error:
            return {"tensors": 0, "missing": [], "error": f"{type(error).__name__}: {error}"[:300]}
        return {"tensors": tensors, "missing": missing, "error": ""}

    def _load(self, path: str) -> tuple[int, list[str]]:
        from safetensors import safe_open
        from vllm.config import set_current_vllm_config

        model: nn.Module = self.model_runner.get_model()
        parameters = {name for name, _ in model.named_parameters()}
        loaded: set[str] = set()

        def load_and_note(weights: Iterable[tuple[str, Tensor]]) -> set[str]:
            """Keep the names that `load_weights` returns; vLLM's reload only logs them."""
            names: set[str] = load_weights(weights)
            loaded.update(names)
            return names

        load_weights: Any = model.load_weights
        model.load_weights = load_and_note  # type: ignore[assignment]  # shadows the method
        try:
            # The file is opened first: a reload that fails midway leaves a model without weights.
            with safe_open(path, "pt") as file, set_current_vllm_config(self.vllm_config):
                names = list(file.keys())
                _forget_packed_experts(model)
                self.model_runner.reload_weights(
                    weights_iterator=((name, file.get_tensor(name)) for name in names)
                )
                _refresh_embeddings(model)
        finally:
            del model.load_weights
        quantized = self.vllm_config.model_config.quantization is not None
        return len(names), [] if quantized else sorted(parameters - loaded)[:3]


def _forget_packed_experts(model: nn.Module) -> None:
    """Make vLLM pack the experts again when they are loaded.

    If a kernel exists already, vLLM loads the experts unpacked, because of recorded CUDA graphs.
    The CPU's kernel would then read unpacked weights as packed ones.
    """
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        return
    for module in model.modules():
        method: Any = getattr(module, "quant_method", None)
        if getattr(method, "moe_kernel", None) is not None:
            method.moe_kernel = None


def _refresh_embeddings(model: nn.Module) -> None:
    """Recompute what kernels derived from unquantized embeddings, which may be tied to the head."""
    from vllm.model_executor.layers.vocab_parallel_embedding import (
        UnquantizedEmbeddingMethod,
        VocabParallelEmbedding,
    )

    for module in model.modules():
        method = getattr(module, "quant_method", None)
        if isinstance(module, VocabParallelEmbedding) and isinstance(
            method, UnquantizedEmbeddingMethod
        ):
            method.process_weights_after_loading(module)
