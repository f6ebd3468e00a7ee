"""A ninth set of faults from public issues, in families that no earlier plant uses.

Families, faults, sizes and the names that count were fixed and committed before the first run of
attribution. Kinds come from the issues in `SOURCES`; about a third of them occurs in earlier sets.
The author had read the earlier plants, but neither attribution's code nor its documentation. Gaps
were measured before, without attribution; each is above rounding. A name counts that a practitioner
would act on correctly; names that attribution does not have are listed, too. `EXPERT` says how an
expert would word each cause that is new among the plants.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from tests.probe.plants.computing import add_faults
from tests.probe.plants.issue_bugs import _modules_with
from tests.probe.plants.report_bugs import _updates
from tests.probe.plants.reporting import CHANGES
from tests.probe.plants.unseen_computing import _wrap_prefill

Names = tuple[str, ...]
SOURCES: dict[str, str] = {
    "activation_fp8": "verl-project/verl#1803, radixark/miles#1678, Tencent-Hunyuan/UniRL#94",
    "block_from": "NovaSky-AI/SkyRL#1680, verl-project/verl#7978",
    "cache_hole": "microsoft/onnxruntime-genai#2354",
    "capacity": "deepspeedai/DeepSpeed#6809, NVIDIA/Megatron-LM#5542",
    "embedding_rows_lost": "huggingface/text-generation-inference#1463, hiyouga/LlamaFactory#10547",
    "experts_exchanged": "sgl-project/sglang#25882",
    "interleave_off": "sgl-project/sglang#13495",
    "local_normaliser": "tenstorrent/tt-metal#47902",
    "normaliser_twice": "NVIDIA/Megatron-LM#7452 (logits gathered, and reduced again)",
    "norms_exchanged": "meta-pytorch/torchtune#1835, NVIDIA-NeMo/Speech#11951",
    "penalty_stale": "vllm-project/vllm-ascend#7769, vllm-project/vllm-gaudi#1769",
    "prefix_without_adapter": "vllm-project/vllm#30931, vllm-project/vllm#3264",
    "separator_lost": "verl-project/verl#6921",
    "sinkhorn": "AI-Hypercomputer/maxtext#4337, NVIDIA/Megatron-LM#5106",
    "skip_lost": "state-spaces/mamba#979",
    "state_rows": "sgl-project/sglang#24717 (on #23975)",
    "swiglu_limit": "sgl-project/sglang#39920, vllm-project/vllm#42855",
    "token_masked": "huggingface/trl#6357, huggingface/trl#4970",
}
"""Where a fault of this kind was reported."""
EXPERT: dict[str, str] = {
    "activation_fp8": "inputs of linear layers are rounded to fp8, not only weights",
    "cache_hole": "an unwritten slot between prompt and response is attended, and later positions "
    "are one too large",
    "embedding_rows_lost": "the embeddings of the last tokens of the vocabulary are zero",
    "local_normaliser": "log-probabilities are normalized over the vocabulary of each token's own "
    "rank",
    "normaliser_twice": "the normalizer is summed over ranks that all have the whole vocabulary: "
    "each log-probability is too low by log(ranks)",
    "norms_exchanged": "the norm after attention and the norm before the MLP have each other's "
    "weights",
    "penalty_stale": "a repetition penalty sees the prompt only, not the generated tokens",
    "prefix_without_adapter": "cached keys and values of the prompt are those of the base model",
    "separator_lost": "a token inside of the prompt is lost",
    "sinkhorn": "the mixing matrix of hyper-connections is normalized once, not until it converges",
    "skip_lost": "state-space layers lack their skip connection D",
    "swiglu_limit": "gate and up projections are not limited",
    "token_masked": "a token that also pads is masked where it is real",
}
"""The cause of each kind that no earlier set has."""


def _with(name: str) -> Any:
    """Sets an attribute of every module that has it."""

    def fault(engine: Any, value: str) -> None:
        for module in _modules_with(engine, name):
            known = getattr(module, name)
            assert known != type(known)(float(value))
            setattr(module, name, type(known)(float(value)))

    return fault


def _skip_lost(engine: Any, _: str) -> None:
    with torch.no_grad():
        for mixer in _modules_with(engine, "D"):
            mixer.D.zero_()


def _norms_exchanged(engine: Any, value: str) -> None:
    """`ONE,OTHER`: two norms of each layer have each other's weights."""
    one, other = value.split(",")
    with torch.no_grad():
        for layer in _modules_with(engine, one):
            first, second = (getattr(layer, name).weight for name in (one, other))
            kept = first.clone()
            first.copy_(second)
            second.copy_(kept)


def _fp8(x: Tensor) -> Tensor:
    """Rounded to e4m3 with one scale for each row."""
    scale = x.abs().amax(-1, keepdim=True).clamp(min=1e-12) / 448
    return (x / scale).to(torch.float8_e4m3fn).to(x.dtype) * scale


def _activation_fp8(engine: Any, _: str) -> None:
    """Weights of linear layers and their inputs, token by token, in fp8."""
    found = [
        module
        for name, module in engine._model.named_modules()
        if isinstance(module, nn.Linear) and ".layers." in name
    ]
    assert found
    with torch.no_grad():
        for module in found:
            module.weight.copy_(_fp8(module.weight))
            module.register_forward_pre_hook(lambda _m, inputs: (_fp8(inputs[0]), *inputs[1:]))


def _interleave_off(engine: Any, _: str) -> None:
    """Pairs of neighboring dimensions are read as two halves."""
    assert engine._model.config.rope_interleave
    engine._model.config.rope_interleave = False


def _embedding_rows_lost(engine: Any, value: str) -> None:
    """`FIRST,LAST`: the embeddings of some tokens are zero."""
    first, last = map(int, value.split(","))
    with torch.no_grad():
        engine._model.get_input_embeddings().weight[first:last] = 0


def _prefix_without_adapter(engine: Any, folder: str) -> None:
    """Keys and values of the prompt were cached by a request without the adapter."""
    merged = {
        name: (engine._model.get_parameter(name).detach().clone(), update)
        for name, update in _updates(folder).items()
    }
    assert merged

    def changed(plain: Any, step: int, ids: Tensor, seen: Tensor, cache: Any) -> Any:
        if step:
            return plain(ids, seen, cache)
        with torch.no_grad():
            for name, (weight, update) in merged.items():
                engine._model.get_parameter(name).copy_(weight - update)
        _, cache = plain(ids[:, :-1], seen[:, :-1], None)
        with torch.no_grad():
            for name, (weight, _) in merged.items():
                engine._model.get_parameter(name).copy_(weight)
        return plain(ids[:, -1:], seen, cache)

    _wrap_prefill(engine, changed)


def _cache_hole(engine: Any, _: str) -> None:
    """Decoding writes one slot too far; the slot that it skips is attended."""
    width = [0]

    def changed(plain: Any, step: int, ids: Tensor, seen: Tensor, cache: Any) -> Any:
        if step:
            hole = torch.ones_like(seen[:, :1])
            before, after = seen[:, : width[0]], seen[:, width[0] :]
            return plain(ids, torch.cat([before, hole, after], 1), cache)
        logits, cache = plain(ids, seen, cache)
        width[0] = seen.shape[1]
        for layer in cache.layers:
            layer.keys = nn.functional.pad(layer.keys, (0, 0, 0, 1))
            layer.values = nn.functional.pad(layer.values, (0, 0, 0, 1))
        return logits, cache

    _wrap_prefill(engine, changed)


def _token_masked(engine: Any, value: str) -> None:
    """Tokens of a trainer's batch that equal the padding's id are masked."""
    split = engine._split

    def hidden(ids: Tensor, *_: Any) -> Tensor:
        with torch.no_grad():
            split.model(input_ids=ids, attention_mask=(ids != int(value)).long(), use_cache=False)
        taken: Tensor = split._taken()
        return taken

    split.hidden = hidden


add_faults(
    {
        "activation_fp8": _activation_fp8,
        "cache_hole": _cache_hole,
        "embedding_rows_lost": _embedding_rows_lost,
        "interleave_off": _interleave_off,
        "norms_exchanged": _norms_exchanged,
        "prefix_without_adapter": _prefix_without_adapter,
        "sinkhorn": _with("hc_sinkhorn_iters"),
        "skip_lost": _skip_lost,
        "swiglu_limit": _with("swiglu_limit"),
        "token_masked": _token_masked,
    }
)
CHANGES["normaliser_twice"] = lambda values, ranks, _: values - math.log(float(ranks))
ROW_PROCESSORS = ("penalty_stale",)


def changed_row(
    logits: Any, everything: Sequence[int], drawn: Sequence[int], mine: Mapping[str, str]
) -> Any:
    """The next token's logits after the processors of this set."""
    if "penalty_stale" in mine:
        for token in set(everything[: len(everything) - len(drawn)]):
            by = float(mine["penalty_stale"])
            logits[token] *= by if logits[token] < 0 else 1 / by
    return logits


def read_prompts(faults: Mapping[str, str], prompts: list[list[int]]) -> list[list[int]]:
    """The prompts that are really read."""
    if "separator_lost" not in faults:
        return prompts
    at = int(faults["separator_lost"])
    return [[*each[:at], *each[at + 1 :]] for each in prompts]


@contextmanager
def reported_over(faults: Mapping[str, str]) -> Iterator[None]:
    """Normalize over the part of the vocabulary that a token's rank has."""
    with ExitStack() as stack:
        for source in ("hf.generation", "hf.engine") if "local_normaliser" in faults else ():
            name = "readings" if source == "hf.generation" else "token_readings"
            read = getattr(sys.modules[source], name)

            def local(logits: Any, ids: Any, processing: Any, want: Any, read: Any = read) -> Any:
                size = logits.shape[-1] // int(faults["local_normaliser"])
                own = torch.arange(logits.shape[-1])[None] // size == ids[:, None] // size
                return read(logits.masked_fill(~own, -torch.inf), ids, processing, want)

            stack.enter_context(mock.patch.object(sys.modules[source], name, local))
        yield


_LAYOUT = ("tensor-order", "weight-layout", "swapped-weights")
_LIMIT = ("activation", "activation-limit", "swiglu-limit", "model-config")
_NORMS = ("swapped-weights", "norm-order", "norm-weights", "layer-order", "tensor-order")
_ROTATED = ("rope-layout",)
_SKIP = ("missing-skip", "skip-weights", "state-skip", "lost-part", "state-space", "model-config")
_STATE_LOST = ("state-cache", "conv-state", "generation-path")
SINGLES: tuple[tuple[str, str, Names], ...] = (
    ("minimax_m3", "swiglu_limit:10000", _LIMIT),
    ("mamba2", "skip_lost", _SKIP),
    ("kolibri1", "norms_exchanged:post_self_attn_layernorm,post_attention_layernorm", _NORMS),
    ("qwen3_5", "activation_fp8", ("quantisation", "activation-quantisation", "precision")),
    ("lfm3", "prefix_without_adapter:ADAPTER",
     ("prefix-caching", "stale-cache", "adapter", "lora-adapter")),
    ("gpt_neo", "local_normaliser:2",
     ("local-normaliser", "vocabulary-part", "vocabulary-shards", "padded-vocabulary")),
    ("deepseek_v4", "sinkhorn:1",
     ("hyper-connection", "sinkhorn", "residual-scale", "model-config")),
    ("zaya", "embedding_rows_lost:56,64",
     ("embedding-rows", "missing-embedding", "lost-part", "vocabulary-part", "embedding-part")),
    ("jetmoe", "cache_hole",
     ("position-ids", "kv-cache", "attended-padding", "attention-sinks", "stale-cache",
      "cache-hole", "generation-path")),
    ("axk1", "interleave_off", _ROTATED),
    ("hy_v4", "experts_exchanged:1,0,2",
     ("swapped-weights", "layer-order", "expert-order", "tensor-order")),
    ("bailing_hybrid", "state_rows", _STATE_LOST),
    ("deepseek_v32", r"block_from:mlp\.experts,2,5,STALE", ("partial-sync",)),
)  # fmt: skip
"""Families, faults of the sampler, and accepted names; one with an older checkpoint gets it."""
LEARNER: tuple[tuple[str, str, Names], ...] = (
    ("flint", "token_masked:7",
     ("attention-mask", "masked-tokens", "missing-keys", "prompt-ids")),
    ("modernbert", "normaliser_twice:2",
     ("constant-offset", "logprob-offset", "normaliser", "scaled-logprobs", "padded-vocabulary")),
    ("kolibri1", "capacity:1",
     ("expert-capacity", "dropped-tokens", "router-capacity", "batch-variance")),
)  # fmt: skip
"""The same for the learner."""
_STALE = ("partial-sync",)
DOUBLES: tuple[tuple[str, str, tuple[Names, ...]], ...] = (
    ("mamba2", "skip_lost+hidden_temperature:0.9", (_SKIP, ("temperature",))),
    ("minimax_m3", "swiglu_limit:10000+separator_lost:5", (_LIMIT, ("prompt-ids",))),
    ("axk1", "interleave_off+penalty_stale:1.3", (_ROTATED, ("repetition-penalty",))),
    ("kolibri1", "norms_exchanged:post_self_attn_layernorm,post_attention_layernorm",
     (_NORMS, _STALE)),
)  # fmt: skip
"""Families, faults and accepted names; one with a partial sync has a stale layer, too."""
_BFLOAT = {"dtype": "bfloat16"}
HEALTHY: tuple[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]], ...] = (
    ("inkling", {}, {"batch_tokens": 200}, {}),
    ("zaya", _BFLOAT, _BFLOAT, {}),
    ("hy_v4", {}, {}, {"temperature": 0.7}),
)
"""Families, options of either engine and requested sampling of healthy pairs."""
ROUTED = ("axk1", "bailing_hybrid", "deepseek_v32", "deepseek_v4", "flint", "hy_v4", "inkling",
          "jetmoe", "kolibri1", "minimax_m3", "zaya")  # fmt: skip
"""Families whose experts are recorded."""
