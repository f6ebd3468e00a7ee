"""Faults from public issues of engines and trainers, in families that no earlier plant uses.

Families, faults, sizes and the names that count were fixed and committed before the first run of
attribution. Kinds come from the issues in `SOURCES`. The author had read the earlier plants, but
neither attribution's code nor its documentation. Gaps were measured before, without attribution;
each is a warning at least. A name counts that a practitioner would act on correctly; names that
attribution does not have are listed, too. `EXPERT` says how an expert would word each cause that is
new among the plants.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from tests.probe.plants.computing import _RESTORED, add_faults
from tests.probe.plants.report_bugs import _updates
from tests.probe.plants.unseen_computing import _wrap_prefill

Names = tuple[str, ...]
SOURCES: dict[str, str] = {
    "adapter_scaled": "vllm-project/vllm#55545, NVIDIA/TensorRT-LLM#1668, vllm-project/vllm#10798",
    "block_from": "NovaSky-AI/SkyRL#1680, verl-project/verl#7978",
    "decay_heads": "sgl-project/sglang#30360 (review: slopes of another rank's heads)",
    "hidden_top_k": "NVIDIA-NeMo/RL#3497, OpenPipe/ART#140, huggingface/trl#6789",
    "ignores_temperature": "vllm-project/vime#64",
    "indexer_halves": "sgl-project/sglang#13495",
    "keys_permuted": "ggml-org/llama.cpp#3364, jzhang38/TinyLlama#24",
    "linear_split": "NVIDIA/Megatron-LM#1989, THUDM/slime#1671",
    "mask_misrouted": "vllm-project/vllm#22896, vllm-project/vllm-gaudi#1200",
    "negative_lost": "fla-org/flash-linear-attention#832",
    "ngram_drafts": "vllm-project/vllm-ascend#2881, ml-explore/mlx-swift-lm#459",
    "page_foreign": "gittensor-ai-lab/sparkinfer#289, vllm-project/vllm#41657",
    "repetition": "verl-project/verl#7270, PrimeIntellect-ai/prime-rl#886",
    "retokenised": "huggingface/trl#5224, THUDM/slime#117",
    "rope_theta": "vllm-project/vllm#42624, vllm-project/vllm#9490",
    "routed_scaling": "vllm-project/vllm#45037, kvcache-ai/sglang#86",
    "router_softmax": "1bit-MONSTER/1bit-MONSTER#650, MetaX-MACA/vLLM-metax#270",
    "scales_transposed": "vllm-project/vllm#50204, vllm-project/vllm#47116",
    "slot_lost": "ericcurtin/vllm-vulkan#78",
    "state_chunk": "vllm-project/vllm#51113, sgl-project/sglang#33450",
    "steps_unnormed": "vllm-project/vllm#10456",
    "top_list": "huggingface/text-generation-inference#1629, ollama/ollama#18579",
}
"""Where a fault of this kind was reported."""
EXPERT: dict[str, str] = {
    "decay_heads": "the heads of linear attention decay at the rates of other heads",
    "indexer_halves": "the sparse-attention indexer rotates halves instead of pairs, so it selects "
    "other keys",
    "keys_permuted": "the rows of the key projections were permuted for a wrong number of heads",
    "linear_split": "the fused projection of linear attention was split evenly among two ranks",
    "mask_misrouted": "the token mask of another request is applied to some requests",
    "negative_lost": "the delta rule ignores linear_allow_neg_eigval: its step is half as large",
    "ngram_drafts": "after a rejected draft, the next token is drawn from the whole distribution "
    "instead of the residual",
    "page_foreign": "a cached block of some prompts belongs to another request",
    "retokenised": "responses were decoded and tokenized again: some token ids are not the sampled "
    "ones",
    "router_softmax": "the router scores experts with a softmax instead of a sigmoid",
    "scales_transposed": "block scales of quantized weights are transposed",
    "slot_lost": "the keys and values of some generated tokens are never written to the cache",
    "state_chunk": "the state of the prompt's first chunk is lost before the second",
    "steps_unnormed": "the norms of the time steps, B and C of state-space layers are skipped",
    "top_list": "tokens outside the returned top list get the value of its last entry",
}
"""The cause of each kind that no earlier set has."""


def _modules_with(engine: Any, field: str) -> list[Any]:
    found = [module for module in engine._model.modules() if hasattr(module, field)]
    assert found, field
    return found


def _steps_unnormed(engine: Any, _: str) -> None:
    """Time steps, B and C enter the scan without their norms."""
    for mixer in _modules_with(engine, "dt_layernorm"):
        for name in ("dt_layernorm", "b_layernorm", "c_layernorm"):
            getattr(mixer, name).forward = lambda x: x


def _indexer_halves(engine: Any, _: str) -> None:
    """The indexer rotates the two halves of a head; attention itself rotates pairs."""
    source = sys.modules[type(engine._model).__module__]
    plain = source.apply_rotary_pos_emb_interleave

    def turned(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, *rest: Any, **named: Any) -> Any:
        if named.get("unsqueeze_dim") != 2:  # not the indexer
            return plain(q, k, cos, sin, *rest, **named)
        half = cos.shape[-1] // 2
        pairs = torch.arange(2 * half).view(2, half).T.flatten()
        return plain(q[..., pairs], k[..., pairs], cos, sin, *rest, **named)

    source.apply_rotary_pos_emb_interleave = turned
    _RESTORED.append((source, "apply_rotary_pos_emb_interleave", plain))


def _negative_lost(engine: Any, _: str) -> None:
    for layer in _modules_with(engine, "allow_neg_eigval"):
        assert layer.allow_neg_eigval
        layer.allow_neg_eigval = False


def _decay_heads(engine: Any, far: str) -> None:
    """Each head of linear attention decays as another one: a rank reads another rank's part."""
    with torch.no_grad():
        for layer in _modules_with(engine, "A_log"):
            heads = [size > 1 for size in layer.A_log.shape].index(True)
            layer.A_log.copy_(layer.A_log.roll(int(far), heads))


def _router_softmax(engine: Any, _: str) -> None:
    """Scores of experts are a softmax over all, not a sigmoid of each."""

    def forward_of(router: Any) -> Callable[..., Any]:
        def forward(hidden: Tensor, correction: Tensor) -> Any:
            logits = nn.functional.linear(hidden.flatten(0, -2).float(), router.weight.float())
            scores = logits.softmax(-1)
            chosen = (scores + correction).topk(router.top_k, -1).indices
            weights = scores.gather(1, chosen)
            weights = weights / weights.sum(-1, keepdim=True)
            return logits, weights * router.router_scaling_factor, chosen

        return forward

    for router in _modules_with(engine, "router_scaling_factor"):
        router.forward = forward_of(router)


def _scales_transposed(engine: Any, size: str) -> None:
    """Weights of layers are fp8 with a scale for each block; square grids are read transposed."""
    block = int(size)
    with torch.no_grad():
        for name, weight in engine._model.named_parameters():
            if weight.ndim != 2 or ".layers." not in name or "router" in name:
                continue
            if weight.shape[0] % block or weight.shape[1] % block:
                continue
            blocks = weight.unflatten(1, (-1, block)).unflatten(0, (-1, block))
            scales = blocks.abs().amax((1, 3), keepdim=True) / 448
            codes = (blocks / scales).to(torch.float8_e4m3fn).to(weight.dtype)
            is_square = weight.shape[0] == weight.shape[1]
            used = scales.transpose(0, 2) if is_square else scales
            weight.copy_((codes * used).flatten(2).flatten(0, 1))


def _keys_permuted(engine: Any, heads: str) -> None:
    """Rows of keys were permuted for `heads` heads, and are read with the right number."""
    with torch.no_grad():
        for layer in _modules_with(engine, "k_proj"):
            weight, own = layer.k_proj.weight, layer.config.num_key_value_heads
            assert int(heads) != own
            mixed = weight.unflatten(0, (int(heads), 2, -1)).transpose(1, 2).flatten(0, 2)
            weight.copy_(mixed.unflatten(0, (own, -1, 2)).transpose(1, 2).flatten(0, 2))


def _linear_split(engine: Any, _: str) -> None:
    """Rows of queries, keys and values are halved as a whole, not each on its own."""
    with torch.no_grad():
        for layer in _modules_with(engine, "in_proj_qkv"):
            sizes = [layer.key_dim // 2, layer.key_dim // 2, layer.value_dim // 2]
            ranks = [half.split(sizes) for half in layer.in_proj_qkv.weight.chunk(2)]
            read = [torch.cat(parts) for parts in zip(*ranks, strict=True)]
            layer.in_proj_qkv.weight.copy_(torch.cat(read))


def _adapter_scaled(engine: Any, value: str) -> None:
    """`FOLDER,PART,FACTOR`: layers of one kind have the adapter with another scale."""
    folder, part, factor = value.rsplit(",", 2)
    updates = {name: each for name, each in _updates(folder).items() if part in name}
    assert updates
    with torch.no_grad():
        for name, update in updates.items():
            engine._model.get_parameter(name).add_((float(factor) - 1) * update)


def _states(cache: Any) -> list[Tensor]:
    kept = [
        state
        for layer in cache.layers
        for name in ("conv_states", "recurrent_states")
        for state in getattr(layer, name, {}).values()
        if state is not None
    ]
    assert kept
    return kept


def _state_chunk(engine: Any, size: str) -> None:
    """The last `size` tokens of a prompt are a chunk of their own, which begins without states."""

    def changed(plain: Any, step: int, ids: Tensor, seen: Tensor, cache: Any) -> Any:
        first = ids.shape[1] - int(size)
        if step or first <= 0:
            return plain(ids, seen, cache)
        _, cache = plain(ids[:, :first], seen[:, :first], None)
        for state in _states(cache):
            state.zero_()
        return plain(ids[:, first:], seen, cache)

    _wrap_prefill(engine, changed)


def _page_foreign(engine: Any, value: str) -> None:
    """`EVERY,SIZE`: the second block of some prompts in the cache is another request's."""
    every, size = map(int, value.split(","))

    def changed(plain: Any, step: int, ids: Tensor, seen: Tensor, cache: Any) -> Any:
        logits, cache = plain(ids, seen, cache)
        if step == 0:
            for row, tokens in enumerate(ids.tolist()):
                if sum(tokens) % every == 0:
                    _copy_block(cache, seen.sum(1).tolist(), row, size)
        return logits, cache

    _wrap_prefill(engine, changed)


def _copy_block(cache: Any, lengths: Sequence[int], row: int, size: int) -> None:
    """Gives a row the second block of the first row of another prompt that is long enough."""
    others = [other for other, length in enumerate(lengths) if length >= 2 * size]
    if lengths[row] < 2 * size or not others:
        return
    other = others[0] if abs(others[0] - row) > 2 else others[-1]
    for layer in cache.layers:
        for kept in (layer.keys, layer.values):
            start, source = (kept.shape[2] - lengths[each] + size for each in (row, other))
            kept[row, :, start : start + size] = kept[other, :, source : source + size].clone()


def _slot_lost(engine: Any, size: str) -> None:
    """Generated tokens at the start of a block are never written: zeros remain in the cache."""

    def changed(plain: Any, step: int, ids: Tensor, seen: Tensor, cache: Any) -> Any:
        logits, cache = plain(ids, seen, cache)
        if step:
            begins = (seen.sum(1) - 1) % int(size) == 0
            for layer in cache.layers:
                layer.keys[begins, :, -1] = 0
                layer.values[begins, :, -1] = 0
        return logits, cache

    _wrap_prefill(engine, changed)


add_faults(
    {
        "adapter_scaled": _adapter_scaled,
        "decay_heads": _decay_heads,
        "indexer_halves": _indexer_halves,
        "keys_permuted": _keys_permuted,
        "linear_split": _linear_split,
        "negative_lost": _negative_lost,
        "page_foreign": _page_foreign,
        "router_softmax": _router_softmax,
        "scales_transposed": _scales_transposed,
        "slot_lost": _slot_lost,
        "state_chunk": _state_chunk,
        "steps_unnormed": _steps_unnormed,
    }
)
ROW_PROCESSORS = ("mask_misrouted", "ngram_drafts")


def changed_row(logits: Any, everything: Sequence[int], mine: Mapping[str, str]) -> Any:
    """The next token's logits after the processors of this set."""
    if "mask_misrouted" in mine and everything[0] % int(mine["mask_misrouted"]) == 0:
        logits[3::4] = -torch.inf  # every fourth token is not part of the grammar
    if "ngram_drafts" in mine:
        draft = _successor(everything)
        if draft is not None:
            chance = logits.softmax(-1)
            mixed = (1 - chance[draft]) * chance
            mixed[draft] += chance[draft]
            logits = mixed.log()
    return logits


def _successor(tokens: Sequence[int]) -> int | None:
    """What followed the last token where it occurred before."""
    earlier = [place for place in range(len(tokens) - 1) if tokens[place] == tokens[-1]]
    return tokens[earlier[-1] + 1] if earlier else None


@contextmanager
def reported_over(faults: Mapping[str, str]) -> Any:
    """Report no value below that of the last entry of a top list."""
    with ExitStack() as stack:
        for source in ("hf.generation", "hf.engine") if "top_list" in faults else ():
            name = "readings" if source == "hf.generation" else "token_readings"
            read = getattr(sys.modules[source], name)

            def listed(logits: Any, ids: Any, processing: Any, want: Any, read: Any = read) -> Any:
                last = logits.topk(int(faults["top_list"]), -1).indices[..., -1]
                columns = read(logits, ids, processing, want)
                least = read(logits, last, processing, ())["logprobs"]
                return columns | {"logprobs": torch.maximum(columns["logprobs"], least)}

            stack.enter_context(mock.patch.object(sys.modules[source], name, listed))
        yield


def reported(responses: Sequence[Any], faults: Mapping[str, str]) -> list[Any]:
    """The responses after text was tokenized again: some tokens have another spelling."""
    if "retokenised" not in faults:
        return list(responses)
    every = int(faults["retokenised"])
    return [
        replace(each, response_ids=[_spelled(token, every) for token in each.response_ids])
        for each in responses
    ]


def _spelled(token: int, every: int) -> int:
    """Another token with the same text for each `every`-th token of the vocabulary."""
    return token + 1 if token > 2 and token % every == 0 else token


_LAYOUT = ("tensor-order", "weight-layout", "swapped-weights")
_CACHE = ("kv-cache", "stale-cache", "generation-path")
_ROUTER = ("router-weights", "router-scale", "model-config")
_STATE_LOST = ("state-cache", "conv-state", "generation-path")
_DECAY = ("attention-decay", "linear-attention", "head-order", "model-config")
_KEYS = ("head-order", "kv-head-order", "qkv-layout", "rope-layout", *_LAYOUT)
_MASK = ("structured-output", "logit-bias", "truncation", "wrong-sampler")
_SLOTS = (*_CACHE, "missing-keys", "attention-mask", "lost-part")
_SCALES = ("quantisation", "quantisation-scale", "weight-scale", "transposed-weights")
SINGLES: tuple[tuple[str, str, Names], ...] = (
    ("falcon_mamba", "steps_unnormed",
     ("missing-norm", "norm-weights", "state-norm", "qk-norm", "model-config")),
    ("glm_moe_dsa", "indexer_halves",
     ("indexer", "sparse-attention", "rope-layout", "attention-mask", "model-config")),
    ("olmo_hybrid", "negative_lost", ("linear-attention", "delta-rule", "model-config")),
    ("kimi_linear", "decay_heads:2", _DECAY),
    ("hy_v3", "router_softmax", ("router-scoring", *_ROUTER)),
    ("bitnet", "page_foreign:3,4", (*_CACHE, "prefix-caching", "prompt-ids")),
    ("granitemoe_swa", "scales_transposed:16", _SCALES),
    ("olmo_hybrid", "state_chunk:6",
     (*_STATE_LOST, "chunked-prefill", "long-prompts", "first-tokens")),
    ("hy_v3", "slot_lost:8", _SLOTS),
    ("bitnet", "raw+ngram_drafts", ("speculative-decoding", "wrong-sampler")),
    ("cohere2_moe", "retokenised:10",
     ("response-ids", "token-ids", "retokenisation", "tokenizer", "prompt-ids")),
    ("glm4_moe_lite", "top_list:4",
     ("top-logprobs", "clipping", "missing-logprobs", "truncation")),
    ("glm4_moe_lite", "routed_scaling:1.8", _ROUTER),
    ("cohere2_moe", r"block_from:mlp\.experts,3,6,STALE", ("partial-sync",)),
    ("doge", "adapter_scaled:ADAPTER,v_proj,2",
     ("adapter", "lora-adapter", "lora-scale", "adapter-scale", "adapter-layers")),
    ("gemma3n", "raw+hidden_top_k:8", ("truncation", "wrong-sampler")),
    ("qwen3_5_moe", "linear_split", ("qkv-layout", "head-order", *_LAYOUT)),
    ("doge", "rope_theta:1000", ("rope-base", "model-config")),
    ("granitemoe_swa", "keys_permuted:4", _KEYS),
)  # fmt: skip
"""Families, faults of the sampler, and accepted names; one with an older checkpoint gets it."""
LEARNER: tuple[tuple[str, str, Names, dict[str, Any]], ...] = (
    ("xglm", "ignores_temperature", ("temperature",), {"temperature": 0.7}),
)
"""The same for the learner, and the requested sampling."""
_STALE = ("partial-sync",)
DOUBLES: tuple[tuple[str, str, tuple[Names, ...]], ...] = (
    ("doge", "slot_lost:8+hidden_temperature:0.9", (_SLOTS, ("temperature",))),
    ("granitemoe_swa", "keys_permuted:4+hidden_top_p:0.9", (_KEYS, ("truncation",))),
    ("kimi_linear", "decay_heads:2", (_DECAY, _STALE)),
    ("glm_moe_dsa", "routed_scaling:2.5+mask_misrouted:2", (_ROUTER, _MASK)),
    ("bitnet", "scales_transposed:16+begun", (_SCALES, ("prompt-ids",))),
    ("qwen3_5_moe", "quantised:fp8+repetition:1.2", (("quantisation",), ("repetition-penalty",))),
)  # fmt: skip
"""Families, faults and accepted names; one with a partial sync has a stale layer, too."""
_BFLOAT = {"dtype": "bfloat16"}
HEALTHY: tuple[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]], ...] = (
    ("glm_moe_dsa", {}, {"batch_tokens": 200}, {}),
    ("kimi_linear", _BFLOAT, _BFLOAT, {}),
    ("jamba", {"attention": "eager"}, {}, {"temperature": 0.7}),
    ("gemma3n", {}, {}, {}),
)
"""Families, options of either engine and requested sampling of healthy pairs."""
ROUTED = ("glm_moe_dsa", "glm4_moe_lite", "hy_v3", "jamba", "cohere2_moe",
          "qwen3_5_moe", "granitemoe_swa", "kimi_linear")  # fmt: skip
"""Families whose experts are recorded."""
