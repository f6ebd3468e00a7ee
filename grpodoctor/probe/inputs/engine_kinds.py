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
    can_replay: bool = False
    """Whether it can be asked to force another engine's experts; a user's program may refuse."""
    can_alter: bool = False
    """Whether its model can compute differently for what-if experiments."""
    is_record: bool = False
    """Whether it returns recorded values and computes nothing."""


ENGINES = {
    "vllm": EngineKind(
        summary="vLLM in process",
        packages=("vllm",),
        experiment_options=frozenset({"perturb"}),
    ),
    "openai_server": EngineKind(
        summary="a server with OpenAI's completions API: `vllm serve`, SGLang",
        model="url",
    ),
    "transformers": EngineKind(
        summary="transformers in one process",
        packages=("torch", "transformers"),
        experiment_options=frozenset({"attention", "quantise", "perturb"}),
        can_replay=True,
        can_alter=True,
    ),
    "fsdp": EngineKind(
        summary="transformers under torchrun: FSDP2, DTensor tensor parallel",
        packages=("torch", "transformers"),
        rank_options=("fsdp", "tensor_parallel"),
        single_process="transformers",
        experiment_options=frozenset({"attention", "perturb"}),
        can_replay=True,
    ),
    "llama_cpp": EngineKind(
        summary="llama.cpp, GGUF files",
        model="path",
        packages=("llama_cpp",),
    ),
    "recorded": EngineKind(
        summary="log-probabilities recorded by a training run",
        model="path",
        packages=("grpodoctor",),
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
