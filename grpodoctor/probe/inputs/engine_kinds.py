"""The engines: one row per engine program.

A new engine is a program `probes/engine_<name>.py` and a row here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineKind:
    """What the probe must know about an engine before it starts it."""

    summary: str
    model: Literal["hub", "path", "url", "option"] = "hub"
    """What a spec names after the colon: a directory or a name on the hub, a local path, a URL, or
    the program itself, which then receives its model as an option."""
    packages: tuple[str, ...] = ()
    """Packages without which the engine cannot start."""
    rank_options: tuple[str, ...] = ()
    """Options whose product is the number of processes; such an engine runs under torchrun."""
    single_process: str = ""
    """The engine that runs the same model in one process."""
    experiment_options: frozenset[str] = frozenset()
    """Options that controls and experiments set: `attention`, `quantise`, `perturb`."""
    options: frozenset[str] | None = None
    """Names of all options of the program; None if only the program itself knows them. A test
    compares them with the programs."""
    own_options: frozenset[str] = frozenset()
    """Without `options`: those that the program adds to the arguments of its engine."""
    can_replay: bool = False
    """Whether it can be asked to force another engine's experts; a user's program may refuse."""
    can_alter: bool = False
    """Whether its model can compute differently for what-if experiments."""
    is_record: bool = False
    """Whether it returns recorded values and computes nothing."""


_COMPUTATION = frozenset(
    {
        *("dtype", "attention", "autocast", "batch_tokens", "batch_rows", "seed", "threads"),
        *("trust_remote_code", "perturb"),
    }
)
"""Options of both programs that run transformers."""

ENGINES = {
    "vllm": EngineKind(
        summary="vLLM in process",
        packages=("vllm",),
        own_options=frozenset(
            {
                *("adapter", "attention", "batch_tokens", "perturb", "structured_outputs"),
                *("sync", "sync_reset_cache", "sync_stock"),
            }
        ),
        experiment_options=frozenset({"perturb"}),
    ),
    "openai_server": EngineKind(
        summary="a server with OpenAI's completions API: `vllm serve`, SGLang",
        model="url",
        options=frozenset(
            {
                *("model", "tokenizer", "api_key_env", "wait", "request_timeout", "connections"),
                *("server", "logprobs", "dtype", "tensor_parallel_size", "trust_remote_code"),
            }
        ),
    ),
    "transformers": EngineKind(
        summary="transformers in one process",
        packages=("torch", "transformers"),
        options=_COMPUTATION
        | {
            *("device", "quantise", "quantise_only", "quantise_skip", "weights", "weights_only"),
            *("adapter", "adapter_use"),
        },
        experiment_options=frozenset({"attention", "quantise", "perturb"}),
        can_replay=True,
        can_alter=True,
    ),
    "fsdp": EngineKind(
        summary="transformers under torchrun: FSDP2, DTensor tensor parallel",
        packages=("torch", "transformers"),
        options=_COMPUTATION | {"fsdp", "tensor_parallel"},
        rank_options=("fsdp", "tensor_parallel"),
        single_process="transformers",
        experiment_options=frozenset({"attention", "perturb"}),
        can_replay=True,
    ),
    "llama_cpp": EngineKind(
        summary="llama.cpp, GGUF files",
        model="path",
        packages=("llama_cpp",),
        options=frozenset(
            {
                *("context", "sequences", "batch_tokens", "type_k", "type_v", "flash_attention"),
                *("threads", "gpu_layers"),
            }
        ),
    ),
    "recorded": EngineKind(
        summary="log-probabilities recorded by a training run",
        model="path",
        packages=("grpodoctor",),
        options=frozenset(
            {"side", "step", "tokenizer", "responses", "logprobs", "trust_remote_code"}
        ),
        is_record=True,
    ),
    "program": EngineKind(
        summary="your own engine program: program:PATH/engine.py?model=…",
        model="option",
        experiment_options=frozenset({"attention", "perturb"}),
        can_replay=True,
    ),
}
"""Engines by name. Each is the program `probes/engine_<name>.py`, except `program`."""
