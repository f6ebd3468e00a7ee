"""Models and engines that the tests of vLLM share."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx2
import pytest
import torch

from grpodoctor.runs.reading.native_run import read_run
from grpodoctor.runs.records import StepRecord
from grpodoctor.trainer.config.train_config import TrainConfig, load_config
from grpodoctor.trainer.data.loading import build_task
from grpodoctor.trainer.engines.vllm_engine import VllmEngine, open_vllm
from grpodoctor.trainer.engines.vllm_server import serve_command
from grpodoctor.trainer.loop import Trainer
from grpodoctor.trainer.model.policy import Policy, load_policy
from grpodoctor.trainer.model.scoring import score
from grpodoctor.trainer.samples import Samples
from grpodoctor.vocabulary.values import scalar
from tests.trainer.families import save

SMALL = (
    *("threads=1", "evaluation.every=0", "rollout.max_length=16", "rollout.group_size=4"),
    # A reward with a gradient even if no answer is right, and large steps.
    *("overlong.kind=soft-punishment", "overlong.buffer=15", "optimizer.learning_rate=0.01"),
    *("rollout.prompts_per_batch=8", "engine.timeout=60", "engine.wait=20"),
)
SIZES = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 2,  # vLLM's attention on the CPU wants 32 dimensions a head
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
}
VOCABULARY = 24
ROOT = Path(__file__).parents[3]
PYTHON = Path(os.environ.get("GRPODOCTOR_VLLM_PYTHON", ROOT / ".venv-vllm/bin/python"))
ENVIRONMENT = {
    **os.environ,
    "HF_HUB_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_SERVER_DEV_MODE": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the worker in the process of the engine core
    "VLLM_LOGGING_LEVEL": "WARNING",
    "PYTHONPATH": str(ROOT),
}
NAME = "policy"


def save_model(folder: Path, family: str = "qwen2", **changes: object) -> Path:
    """A random model of a size that vLLM can run on a CPU."""
    return save(family, folder, **{**SIZES, **changes})


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until a vLLM server responds, which takes half a minute on an idle machine."""
    for _ in range(500):
        if process.poll() is not None:
            break
        try:
            if httpx2.get(f"{url}/health", timeout=5, trust_env=False).is_success:
                return
        except httpx2.TransportError:
            time.sleep(0.5)
    pytest.fail(f"the vLLM server does not start:\n{log.read_text(errors='replace')[-3000:]}")


def vllm_python() -> Path:
    if not PYTHON.exists():
        pytest.fail(f"vLLM's environment is missing: {PYTHON}; run: make venv-vllm")
    return PYTHON


@contextmanager
def served(model: Path, folder: Path, dtype: str = "float32") -> Iterator[str]:
    """The address of a vLLM server, started as the documentation says."""
    url, log = f"http://127.0.0.1:{free_port()}", folder / "log"
    _, _, *arguments = serve_command(str(model), url).split()
    arguments += ["--served-model-name", NAME, "--dtype", dtype, "--max-model-len", "256"]
    arguments += ["--enforce-eager"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [vllm_python(), *arguments],
            env=ENVIRONMENT,
            cwd=folder,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            wait_for(url, process, log)
            yield url
        finally:
            end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """Interrupt the server as Ctrl-C does, and end its whole process group."""
    process.send_signal(signal.SIGINT)
    with suppress(subprocess.TimeoutExpired):
        process.wait(30)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(10)


def reading(step: StepRecord, name: str) -> float:
    return scalar(step.values[name])  # type: ignore[arg-type]  # present in every such run


def small(model: Path, url: str, *assignments: str) -> TrainConfig:
    served = (f"model.name={model}", "engine.kind=server", f"engine.url={url}")
    return load_config(assignments=[*SMALL, *served, *assignments])


def trained(config: TrainConfig, run_dir: Path) -> list[StepRecord]:
    Trainer(config, run_dir).run()
    return list(read_run(run_dir).steps)


@contextmanager
def opened(model: Path, url: str, *assignments: str) -> Iterator[tuple[VllmEngine, Policy]]:
    """An engine with the weights of a newly loaded policy."""
    config, policy = policy_and(small(model, url, *assignments))
    engine = open_vllm(config, policy)
    try:
        engine.sync(1)
        yield engine, policy
    finally:
        engine.close()


def drawn(engine: VllmEngine, prompts: list[list[int]], seed: int = 0, **more: int) -> Samples:
    return engine.generate(prompts, torch.Generator().manual_seed(seed), **more)


def gap(policy: Policy, samples: Samples, temperature: float = 1.0) -> float:
    """The largest difference in the probability of a sampled token."""
    learner = score(policy.model, samples, temperature).logprobs_BT
    gaps_BT = (learner.exp() - samples.logprobs_BT.exp()).abs()
    return float(gaps_BT[samples.mask_BT].max())


def move(policy: Policy, by: float = 1.1) -> None:
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.mul_(by)


def prompts_of(policy: Policy, *texts: str, each: int = 4) -> list[list[int]]:
    return [policy.tokenizer.encode(text) for text in texts for _ in range(each)]


def policy_and(config: TrainConfig) -> tuple[TrainConfig, Policy]:
    return config, load_policy(config, build_task(config.task))
