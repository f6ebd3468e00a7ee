"""Tokens per second of the probe's scoring, compared with a bare forward pass, and peak memory.

The bare pass runs the transformers model on the same batches, with one log-softmax over all logits
and a gather. A lean variant computes only the logits of the response tokens, still for a whole
batch at once. All run in float32 with one thread; the figure is the best of several alternating
rounds, in processor time, which hardly depends on the machine's load. The model is random, with a
vocabulary that is large for its size, as in small models. Memory is the growth of the peak resident
set, as reported by Linux.
"""

from __future__ import annotations

import ctypes
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
sys.path.insert(0, str(Path(__file__).parents[2] / "probes"))

import numpy as np
import torch
from contract import Processing, Response
from engine_transformers import load
from hf.engine import model_input, right_padded
from hf.logits import batches
from transformers import Qwen2Config, Qwen2ForCausalLM

VOCABULARY, RESPONSES, ROUNDS, BATCH_TOKENS = 16_384, 24, 4, 2048
Score = Callable[[], list[float]]


def main() -> None:
    """Print speed and memory of each; exit with an error if their log-probabilities differ."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        path = save_model(folder)
        engine: Any = load(path, {"threads": 1, "batch_tokens": BATCH_TOKENS})
        model = Qwen2ForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    responses = draw()
    contenders = {
        "grpodoctor": ours(engine, responses),
        "bare forward pass": bare(model, responses, lean=False),
        "the same, lean": bare(model, responses, lean=True),
    }
    results = {name: np.array(run()) for name, run in contenders.items()}
    best, peak = dict.fromkeys(contenders, float("inf")), dict.fromkeys(contenders, 0.0)
    for _ in range(ROUNDS):
        for name, run in contenders.items():
            before, begun = forget_peak(), time.process_time()
            run()
            best[name] = min(best[name], time.process_time() - begun)
            peak[name] = max(peak[name], resident("VmHWM") - before)
    tokens = sum(len(model_input(each)) for each in responses)
    for name, seconds in best.items():
        print(f"{name:18} {tokens / seconds:8,.0f} tokens/s  {peak[name]:6,.0f} MB more at peak")
    for name, values in results.items():
        if np.abs(values - results["grpodoctor"]).max() > 1e-4:
            raise SystemExit(f"{name} gives other log-probabilities")
    for name in ("bare forward pass", "the same, lean"):
        ratio = best[name] / best["grpodoctor"]
        print(f"{len(responses)} responses, {tokens} tokens: {ratio:.2f} times the speed of {name}")


def save_model(folder: str) -> str:
    """A random model of eleven million parameters, four of them in its tied embeddings."""
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=256,
        intermediate_size=1024,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=4,
        tie_word_embeddings=True,
    )
    torch.manual_seed(0)
    Qwen2ForCausalLM(config).save_pretrained(folder)
    return folder


def draw() -> list[Response]:
    """Responses of 64 to 256 tokens to prompts of 16 to 64."""
    rng = random.Random(0)

    def ids(least: int, most: int) -> list[int]:
        return [rng.randrange(VOCABULARY) for _ in range(rng.randint(least, most))]

    return [Response(ids(16, 64), ids(64, 256)) for _ in range(RESPONSES)]


def ours(engine: Any, responses: list[Response]) -> Score:
    """Scoring by the engine program."""

    def run() -> list[float]:
        scored = engine.score(responses, Processing(), ())
        return [logprob for each in scored for logprob in each.logprobs]

    return run


def bare(model: Any, responses: list[Response], *, lean: bool) -> Score:
    """One log-softmax over all logits of a batch, or over those of its response tokens."""
    passes = batches([len(model_input(each)) for each in responses], BATCH_TOKENS)

    def run() -> list[float]:
        by_index: dict[int, list[float]] = {}
        for batch in passes:
            rows = [responses[index] for index in batch]
            lengths = [len(each.response_ids) for each in rows]
            logprobs = torch.split(whole_batch(model, rows, lean=lean), lengths)
            by_index |= {index: part.tolist() for index, part in zip(batch, logprobs, strict=True)}
        return [logprob for index in sorted(by_index) for logprob in by_index[index]]

    return run


@torch.no_grad()
def whole_batch(model: Any, rows: list[Response], *, lean: bool) -> torch.Tensor:
    """Log-probabilities of a batch's response tokens, concatenated."""
    ids_BL, where_N = right_padded(rows)
    targets_N = torch.cat([torch.tensor(each.response_ids) for each in rows])
    if lean:
        logits_NV = model.lm_head(model.model(input_ids=ids_BL)[0].flatten(0, 1)[where_N])
        return torch.log_softmax(logits_NV, dim=-1).gather(1, targets_N[:, None])[:, 0]
    logprobs_BLV = torch.log_softmax(model(input_ids=ids_BL).logits, dim=-1)
    targets_BL = torch.zeros_like(ids_BL).flatten().scatter(0, where_N, targets_N).view_as(ids_BL)
    return logprobs_BLV.gather(2, targets_BL[:, :, None]).flatten()[where_N]


def forget_peak() -> float:
    """Reset the peak of the resident set; returns the resident set in MB.

    The allocator's cached memory is released first, because it would hide the growth.
    """
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return resident("VmRSS")


def resident(field: str) -> float:
    """A memory figure of this process from /proc, in MB."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    line = next(line for line in status.splitlines() if line.startswith(field))
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    main()
