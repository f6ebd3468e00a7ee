"""What runs inside vLLM's processes: it takes over the learner's weights and says what is served.

vLLM mixes this class into each of its workers when it is started with
`--worker-extension-cls grpodoctor.trainer.engines.vllm_worker.WeightSync`. Its methods are called
by name through `collective_rpc`, in process or over HTTP; so they take and return JSON values.

On a CPU vLLM's own reload is not enough, since the kernels there work on packed copies: where input
and output embeddings are tied it leaves the copy made of the second, and it does not pack experts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn

EXTENSION = "grpodoctor.trainer.engines.vllm_worker.WeightSync"
"""How vLLM is told of it."""

SIZES = (
    *("model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers"),
    *("num_attention_heads", "num_key_value_heads", "num_experts", "num_local_experts"),
    *("moe_intermediate_size", "tie_word_embeddings"),
)
"""What two models that can share weights have in common, by the names in their config.json."""


class WeightSync:
    """Mixed into vLLM's worker class; never made on its own."""

    vllm_config: Any  # vLLM is not installed where this is type-checked
    model_runner: Any

    def grpodoctor_describe(self) -> dict[str, Any]:
        """What is served: vLLM's version, the model's sizes, what bears on log-probabilities."""
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
        """Take over all weights of a safetensors file.

        Args:
            path: the file, with the names that a saved checkpoint has.

        Returns:
            `tensors`, how many the file held; `missing`, the parameters that it did not set; and
            `error`, empty unless the file could not be loaded.
        """
        from safetensors import SafetensorError

        try:
            tensors, missing = self._load(path)
        # Whatever vLLM's loading code makes of a file that does not fit. Told, it is one line;
        # raised, it is a page in the server's log.
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

        def listening(weights: Iterable[tuple[str, Tensor]]) -> set[str]:
            """`load_weights` returns what it set; vLLM's reload only logs it."""
            names: set[str] = load_weights(weights)
            loaded.update(names)
            return names

        load_weights: Any = model.load_weights
        model.load_weights = listening  # type: ignore[assignment]  # shadows the method
        try:
            # The file is opened first: a reload that fails half-way leaves a model without weights.
            with safe_open(path, "pt") as file, set_current_vllm_config(self.vllm_config):
                names = list(file.keys())
                _forget_packed_experts(model)
                self.model_runner.reload_weights(
                    weights_iterator=((name, file.get_tensor(name)) for name in names)
                )
                _refresh_embeddings(model)
        finally:
            del model.load_weights
        quantised = self.vllm_config.model_config.quantization is not None
        return len(names), [] if quantised else sorted(parameters - loaded)[:3]


def _forget_packed_experts(model: nn.Module) -> None:
    """Have experts packed anew when they are loaded, as if for the first time.

    Where a kernel stands already, vLLM loads them as they are, for the sake of recorded CUDA
    graphs; the CPU's kernel would then read unpacked weights as packed ones.
    """
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        return
    for module in model.modules():
        method: Any = getattr(module, "quant_method", None)
        if getattr(method, "moe_kernel", None) is not None:
            method.moe_kernel = None


def _refresh_embeddings(model: nn.Module) -> None:
    """Make what kernels derived from unquantised embeddings anew; they may be tied to the head."""
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
